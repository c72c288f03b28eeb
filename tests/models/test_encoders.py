"""Encoders: equal to their library at the same weights, small stems, files that rebuild them."""

import copy
import json

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from tiny import scrambled
from torch import nn

from mast.core.errors import UserError
from mast.models import Encoder, EncoderConfig, load_encoder, save_encoder
from mast.models.encoders import IMAGENET, read_normalization, usual_normalization

NARROW = {"channels": [8, 16, 24, 32]}
TINY = EncoderConfig("timm:resnet18", NARROW)
TINY_VIT = {"embed_dim": 24, "depth": 2, "num_heads": 3, "patch_size": 8}


def normalised(images_BCHW: torch.Tensor) -> torch.Tensor:
    return torchvision.transforms.functional.normalize(
        images_BCHW, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    )


def test_resnet_is_torchvisions():
    encoder = scrambled(Encoder(EncoderConfig("resnet18", stem="standard"), 64))
    reference = torchvision.models.resnet18().eval()
    reference.fc = nn.Identity()
    reference.load_state_dict(encoder.model.state_dict())
    images = torch.rand(2, 3, 64, 64)
    last = {}
    reference.layer4.register_forward_hook(lambda _m, _i, output: last.update(map=output))
    with torch.no_grad():
        expected_BC = reference(normalised(images))  # layer4, avgpool, flatten
        representation_BC, features_BLC = encoder.encode(images)
    assert encoder.library == "torchvision"
    assert encoder.dim == expected_BC.shape[1]
    torch.testing.assert_close(representation_BC, expected_BC, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        features_BLC, last["map"].flatten(2).transpose(1, 2), rtol=1e-5, atol=1e-5
    )


def test_vit_is_timms():
    encoder = scrambled(Encoder(EncoderConfig("vit_tiny_patch16_224", TINY_VIT), 32))
    reference = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=32, **TINY_VIT)
    reference.load_state_dict(encoder.model.state_dict())
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        tokens = reference.eval().forward_features(normalised(images))
        expected_BC = reference.forward_head(tokens, pre_logits=True)
        representation_BC, features_BLC = encoder.encode(images)
    assert (encoder.library, encoder.dim) == ("timm", 24)
    torch.testing.assert_close(representation_BC, expected_BC)
    torch.testing.assert_close(features_BLC, tokens[:, 1:])  # without the class token
    assert features_BLC.shape == (2, 16, 24)


FAMILIES = {  # options, locations and dimensions of an image of 64 pixels
    "resnet18": ({}, 16, 512),
    "timm:resnet18": (NARROW, 16, 32),
    "timm:swin_tiny_patch4_window7_224": (
        {"embed_dim": 12, "depths": (1, 1), "num_heads": (1, 2)},
        64,
        24,
    ),
    "timm:convnext_atto": ({"dims": (8, 8, 16, 16), "depths": (1, 1, 1, 1)}, 4, 16),
    "timm:vit_tiny_patch16_224": (TINY_VIT, 64, 24),
    "torchvision:vit_b_16": ({}, 16, 768),
    "torchvision:regnet_x_400mf": ({}, 4, 400),
    "torchvision:shufflenet_v2_x0_5": ({}, 4, 1024),
    "torchvision:densenet121": ({}, 4, 1024),
    "torchvision:mobilenet_v3_small": ({}, 4, 576),
    "torchvision:swin_t": ({}, 4, 768),
}
NORMED_BEHIND_POOLING = ("vit", "convnext")  # a class token; a norm after the pooling
LARGE = ("torchvision:vit_b_16", "torchvision:swin_t")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in FAMILIES],
)
def test_families(name, tmp_path):
    """Each of five channels gets a gradient, and a written file gives the same features."""
    options, locations, dim = FAMILIES[name]
    config = EncoderConfig(name, dict(options), **usual_normalization(5)._asdict())
    encoder, images_BCHW = Encoder(config, 64).eval(), torch.rand(2, 5, 64, 64)
    representation_BC, features_BLC = encoder.encode(images_BCHW)
    assert (encoder.dim, encoder.channels) == (dim, 5)
    assert representation_BC.shape == (2, dim)
    assert features_BLC.shape == (2, locations, dim)
    if not any(family in name for family in NORMED_BEHIND_POOLING):
        torch.testing.assert_close(representation_BC, features_BLC.mean(dim=1))
    representation_BC.square().sum().backward()
    first = next(p for p in encoder.model.parameters() if p.ndim == 4 and p.shape[1] == 5)
    assert first.grad.abs().amax(dim=(0, 2, 3)).min() > 0
    save_encoder(encoder, tmp_path / "encoder.safetensors")
    with torch.no_grad():
        assert torch.equal(load_encoder(tmp_path)(images_BCHW), encoder(images_BCHW))
    (tmp_path / "encoder.safetensors").unlink()  # of up to 340 MB


@pytest.mark.parametrize("name", ["resnet18", "timm:resnet18"])
@pytest.mark.parametrize(
    ("size", "stem", "stride", "kernel", "side"),
    [
        (64, "auto", None, 3, 32),
        (65, "auto", None, 7, 17),  # stride 2, then max-pooling
        (32, "standard", None, 7, 8),
        (64, "small", 1, 3, 64),
    ],
)
def test_stem(name, size, stem, stride, kernel, side):
    model = Encoder(EncoderConfig(name, stem=stem, stem_stride=stride), size).model
    conv = model.conv1
    assert conv.kernel_size == (kernel, kernel)
    assert model.maxpool(conv(torch.zeros(1, 3, size, size))).shape[-1] == side


@pytest.mark.parametrize(
    ("name", "options", "size", "right"),
    [
        ("timm:vit_small_patch14_dinov2", TINY_VIT | {"patch_size": 14}, 96, 98),
        ("timm:vit_tiny_patch16_224", TINY_VIT | {"patch_size": 16}, 60, 64),
        ("timm:convnext_atto", FAMILIES["timm:convnext_atto"][0], 98, 100),
    ],
)
def test_images_whose_edges_no_patch_sees_are_refused(name, options, size, right):
    with pytest.raises(UserError, match=f"would miss the last .* give {right}"):
        Encoder(EncoderConfig(name, options), size)
    encoder = scrambled(Encoder(EncoderConfig(name, options), right))
    images = torch.rand(2, 3, right, right)
    images[1], images[1, :, -1, -1] = images[0], 1 - images[0, :, -1, -1]
    first, second = encoder(images)
    assert not torch.equal(first, second)
    with pytest.raises(UserError, match=str(right + 1)):
        encoder.check_side(right + 1)


def test_patches_that_are_padded_and_sizes_that_weights_have_are_taken():
    dynamic = TINY_VIT | {"dynamic_img_size": True, "dynamic_img_pad": True}
    padded = Encoder(EncoderConfig("timm:vit_tiny_patch16_224", dynamic), 60)
    assert padded.locations == 64
    so400m = {**TINY_VIT, "patch_size": 14}  # trained at 384 pixels, of which it sees 378
    encoder = Encoder(EncoderConfig("timm:vit_so400m_patch14_siglip_384", so400m), 384)
    assert encoder.locations == 729


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet81", "unknown encoder 'resnet81'. Did you mean 'resnet18'"),
        ("tim:resnet18", "unknown encoder library 'tim'. Did you mean 'timm'"),
        ("timm:vit_tiny_patch16_244", "Did you mean 'vit_tiny_patch16_224'"),
        ("mnasnet0_5", "torchvision's MNASNet cannot be an encoder: use timm's"),
    ],
)
def test_unknown_name_gives_the_nearest(name, message):
    with pytest.raises(UserError) as caught:
        Encoder(EncoderConfig(name), 32)
    assert message in str(caught.value)


# ---------------------------------------------------------------------------------- images


@pytest.mark.parametrize(
    ("scale", "shift", "message"),
    [
        (255.0, 0.0, r"got values from 0(\.\d+)? to 25\d: divide values of 0 to 255 by 255"),
        (4.5, -2.0, r"got values from -\d.* to 2.*: leave out mean and standard deviation"),
    ],
)
def test_images_far_from_0_to_1_are_refused(scale, shift, message):
    encoder = Encoder(TINY, 32).eval()
    with pytest.raises(UserError, match="in \\[0, 1\\], got uint8: divide values of 0 to 255"):
        encoder(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    assert encoder(1.4 * torch.rand(2, 3, 32, 32) - 0.2).isfinite().all()  # an interpolation's
    images = scale * torch.rand(2, 3, 32, 32) + shift
    with pytest.raises(UserError, match=r"expected images as RGB float in \[0, 1\], " + message):
        encoder(images)
    encoder.train()(images)  # where images are ours, and a look at them would cost time


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(2, 3, 0, 32), "got a tensor of shape"),
        (torch.rand(2, 1, 32, 32), r"expected images \(B, 3, H, W\)"),
    ],
)
def test_what_is_no_image_is_refused(images, message):
    with pytest.raises(UserError, match=message):
        Encoder(TINY, 32).eval()(images)


@pytest.mark.parametrize(
    "moments",
    [
        {"mean": (0.5, torch.nan, 0.5)}, {"std": (0.5, torch.nan, 0.5)}, {"std": (0.5,) * 4},
        {"mean": (), "std": ()}, {"mean": (0.5,) * 17, "std": (0.5,) * 17},
    ],
)  # fmt: skip
def test_a_normalization_that_cannot_be_is_refused(moments):
    moments = IMAGENET._replace(**moments)
    with pytest.raises(ValueError, match="1 to 16 channels"):
        read_normalization(*moments)
    with pytest.raises(UserError, match=r"encoder\.mean and .* expected finite"):
        EncoderConfig(**moments._asdict()).check()


# ---------------------------------------------------------------------------------- files


def test_foreign_files_are_user_errors(tmp_path):
    with pytest.raises(UserError, match=r"no encoder at .*encoder\.safetensors"):
        load_encoder(tmp_path)
    file = tmp_path / "encoder.safetensors"
    for damaged in (b"", b"\xff" * 64):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match="not a readable safetensors file"):
            load_encoder(file)
    save_file({"weight": torch.zeros(2)}, file)
    with pytest.raises(UserError, match="names no encoder"):
        load_encoder(file)
    described = Encoder(TINY, 32).describe()
    save_file({"weight": torch.zeros(2)}, file, metadata={"mast": json.dumps(described)})
    with pytest.raises(UserError, match="not the weights of its header"):
        load_encoder(file)
    for header in ("{}", "[1", '{"encoder": {"nane": "resnet18"}, "size": 32}'):
        save_file({"weight": torch.zeros(2)}, file, metadata={"mast": header})
        with pytest.raises(UserError, match=r"header|damaged"):
            load_encoder(file)


def test_a_copy_runs_its_own_weights():
    encoder = Encoder(EncoderConfig("torchvision:resnet18"), 32).eval()
    twin = copy.deepcopy(encoder)
    with torch.no_grad():
        twin.model.layer4[1].bn2.weight.fill_(1.0)
    images = torch.rand(2, 3, 32, 32)
    assert not torch.allclose(encoder(images), twin(images))
    twin(images).sum().backward()
    assert twin.model.conv1.weight.grad is not None
    assert encoder.model.conv1.weight.grad is None
