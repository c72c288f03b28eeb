"""Encoders against the libraries they come from, their small stem, and their file.

Legend: B samples, L locations, C features, H and W pixels.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.models import (
    Encoder,
    EncoderConfig,
    SyncBatchNorm,
    load_encoder,
    save_encoder,
    synchronise_batchnorm,
)

TINY = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def tiny(size: int = 32, **options: Any) -> Encoder:
    """A narrow timm ResNet with 16 features."""
    return Encoder(EncoderConfig("timm:resnet18", {**TINY, **options}), size)


def normalised(images_BCHW: Tensor) -> Tensor:
    return torchvision.transforms.v2.functional.normalize(
        images_BCHW, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    )


def stir(model: nn.Module) -> None:
    """Give every BatchNorm its own statistics; residual branches start at zero otherwise."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.running_mean, -0.2, 0.2)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_torchvision_resnets_equal_torchvision(name: str) -> None:
    encoder = Encoder(EncoderConfig(name, stem="standard"), 96).eval()
    stir(encoder.model)
    reference = torchvision.models.get_model(name, weights=None)
    reference.fc = nn.Identity()
    reference.load_state_dict(encoder.model.state_dict())
    maps: list[Tensor] = []
    reference.eval().layer4.register_forward_hook(lambda *call: maps.append(call[2]))
    images_BCHW = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        expected_BC = reference(normalised(images_BCHW))
        representation_BC, features_BLC = encoder.encode(images_BCHW)
    assert encoder.library == "torchvision"
    assert encoder.dim == expected_BC.shape[1]
    torch.testing.assert_close(representation_BC, expected_BC)
    torch.testing.assert_close(features_BLC, maps[0].flatten(2).transpose(1, 2))
    with torch.no_grad():
        assert torch.equal(encoder(images_BCHW), representation_BC)


def test_timm_vit_equals_timm() -> None:
    encoder = Encoder(EncoderConfig("vit_tiny_patch16_224"), 32).eval()
    reference = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=0).eval()
    reference.load_state_dict(encoder.model.state_dict())
    images_BCHW = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        tokens = reference.forward_features(normalised(images_BCHW))
        expected_BC = reference.forward_head(tokens, pre_logits=True)
        representation_BC, features_BLC = encoder.encode(images_BCHW)
    assert encoder.library == "timm"
    assert encoder.dim == 192
    torch.testing.assert_close(representation_BC, expected_BC)
    torch.testing.assert_close(features_BLC, tokens[:, 1:])  # without the class token


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("densenet121", 32),
        ("mobilenet_v3_small", 32),
        ("shufflenet_v2_x0_5", 32),
        ("mnasnet0_5", 32),
        ("regnet_y_400mf", 32),
        ("squeezenet1_1", 64),
    ],
)
def test_every_torchvision_family_pools_its_features(name: str, size: int) -> None:
    encoder = Encoder(EncoderConfig(f"torchvision:{name}"), size).eval()
    with torch.no_grad():
        representation_BC, features_BLC = encoder.encode(torch.rand(2, 3, size, size))
    assert representation_BC.shape == (2, encoder.dim)
    torch.testing.assert_close(representation_BC, features_BLC.mean(dim=1))


def stem_of(encoder: Encoder) -> tuple[int, int, bool]:
    """Kernel and stride of the first convolution, and whether max-pooling follows."""
    conv = encoder.model.conv1
    return conv.kernel_size[0], conv.stride[0], isinstance(encoder.model.maxpool, nn.MaxPool2d)


@pytest.mark.parametrize("library", ["torchvision", "timm"])
@pytest.mark.parametrize(
    ("size", "choice", "expected"),
    [
        (32, {}, (3, 1, False)),
        (33, {}, (3, 2, False)),
        (64, {}, (3, 2, False)),
        (65, {}, (7, 2, True)),
        (32, {"stem": "standard"}, (7, 2, True)),
        (96, {"stem": "small"}, (3, 2, False)),
        (64, {"stem_stride": 1}, (3, 1, False)),
        (32, {"stem_stride": 2}, (3, 2, False)),
    ],
)
def test_stem_follows_the_size(
    library: str, size: int, choice: dict[str, Any], expected: tuple[int, int, bool]
) -> None:
    options = TINY if library == "timm" else {"width_per_group": 64}
    encoder = Encoder(EncoderConfig(f"{library}:resnet18", options, **choice), size)
    assert stem_of(encoder) == expected
    side = -(-size // (expected[1] * (2 if expected[2] else 1)) // 8)
    with torch.no_grad():
        assert encoder.encode(torch.rand(2, 3, size, size)).features_BLC.shape[1] == side**2


def test_a_deep_stem_keeps_its_convolutions() -> None:
    encoder = tiny(32, stem_type="deep", stem_width=4)
    assert [conv.stride for conv in encoder.model.conv1 if isinstance(conv, nn.Conv2d)] == [
        (1, 1)
    ] * 3
    with torch.no_grad():
        assert encoder.encode(torch.rand(2, 3, 32, 32)).features_BLC.shape == (2, 16, 16)


def test_only_resnets_have_a_small_stem() -> None:
    with pytest.raises(UserError, match="stem 'small' is for ResNets"):
        Encoder(EncoderConfig("vit_tiny_patch16_224", stem="small"), 32)


def test_prefixes_choose_the_library() -> None:
    assert Encoder(EncoderConfig("resnet18"), 32).library == "torchvision"
    assert Encoder(EncoderConfig("torchvision:resnet18"), 32).library == "torchvision"
    assert tiny().library == "timm"
    assert tiny().dim == 16


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet81", "unknown encoder 'resnet81'. Did you mean 'resnet"),
        ("torchvision:resnet81", "unknown torchvision encoder 'resnet81'. Did you mean 'resnet"),
        ("timm:vit_tiny_patch16_225", "Did you mean 'vit_tiny_patch16_224'"),
        ("tim:resnet18", "unknown encoder library 'tim'. Did you mean 'timm'"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        Encoder(EncoderConfig(name), 32)
    assert message in str(caught.value)


def test_a_name_of_the_other_library_is_not_offered() -> None:
    with pytest.raises(UserError, match="unknown timm encoder 'alexnet'") as caught:
        Encoder(EncoderConfig("timm:alexnet"), 32)
    assert "mean 'alexnet'" not in str(caught.value)


def test_options_that_a_model_does_not_take_are_refused() -> None:
    with pytest.raises(UserError, match=r"encoder 'timm:resnet18': .*'colour'"):
        Encoder(EncoderConfig("timm:resnet18", {"colour": 1}), 32)


def test_measuring_leaves_the_mode_and_the_statistics_alone() -> None:
    encoder = tiny()
    assert all(module.training for module in encoder.modules())
    for name, value in encoder.model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            assert value == 0


@pytest.mark.parametrize(
    "config",
    [
        EncoderConfig("timm:resnet18", TINY, stem_stride=2),
        EncoderConfig("torchvision:resnet18"),
        EncoderConfig("vit_tiny_patch16_224", {"depth": 2}),
    ],
)
def test_a_saved_encoder_gives_the_same_bits(tmp_path: Path, config: EncoderConfig) -> None:
    encoder = Encoder(config, 32)
    stir(encoder)
    images_BCHW = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        encoder(images_BCHW)  # moves the running statistics
        expected_BC = encoder.eval()(images_BCHW)
    save_encoder(encoder, tmp_path / "run" / "encoder.safetensors")
    for path in (tmp_path / "run", str(tmp_path / "run" / "encoder.safetensors")):
        loaded = load_encoder(path)
        assert not loaded.training
        assert loaded.describe() == encoder.describe()
        with torch.no_grad():
            assert torch.equal(loaded(images_BCHW), expected_BC)
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["encoder.safetensors"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing.safetensors"):
        with pytest.raises(UserError, match="no encoder at .*safetensors"):
            load_encoder(path)


@pytest.mark.parametrize("keep", [0, 4, 0.5])
def test_a_damaged_file_is_refused(tmp_path: Path, keep: float) -> None:
    file = tmp_path / "encoder.safetensors"
    save_encoder(tiny(), file)
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content)) if keep < 1 else int(keep)])
    with pytest.raises(UserError, match="not a readable safetensors file"):
        load_encoder(file)


def test_a_file_without_our_header_is_refused(tmp_path: Path) -> None:
    for metadata in (None, {"format": "pt"}):
        save_file({"weight": torch.ones(2)}, tmp_path / "foreign.safetensors", metadata=metadata)
        with pytest.raises(UserError, match="not written by `mast pretrain`"):
            load_encoder(tmp_path / "foreign.safetensors")


def test_a_header_that_does_not_describe_the_weights_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    encoder = tiny()
    save_encoder(encoder, file)
    tensors = load_file(file)
    described = encoder.describe()
    wide = {**described, "encoder": {**described["encoder"], "options": {}}}
    newer = {**described, "encoder": {**described["encoder"], "novelty": 1}}
    headers = ["{", "[]", "{}", json.dumps(wide), json.dumps(newer)]
    for header in headers:
        save_file(tensors, file, metadata={"mast": header})
        with pytest.raises(UserError, match="does not hold the encoder"):
            load_encoder(file)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_sync_batchnorm_in_one_process_is_batchnorm(momentum: float | None) -> None:
    plain = nn.BatchNorm2d(5, momentum=momentum)
    nn.init.uniform_(plain.weight)
    synced = SyncBatchNorm(5, momentum=momentum)
    synced.load_state_dict(plain.state_dict())
    for training in (True, True, False):
        plain.train(training)
        synced.train(training)
        first_BCHW = (3 * torch.randn(4, 5, 6, 6)).requires_grad_()
        second_BCHW = first_BCHW.detach().clone().requires_grad_()
        expected_BCHW, output_BCHW = plain(first_BCHW), synced(second_BCHW)
        assert torch.equal(output_BCHW, expected_BCHW)
        expected_BCHW.square().sum().backward()
        output_BCHW.square().sum().backward()
        torch.testing.assert_close(second_BCHW.grad, first_BCHW.grad)
    torch.testing.assert_close(synced.state_dict(), plain.state_dict())


def test_synchronised_encoder_keeps_its_weights_and_output() -> None:
    encoder = Encoder(EncoderConfig("torchvision:resnet18"), 32)
    images_BCHW = torch.rand(4, 3, 32, 32)
    state = {key: value.clone() for key, value in encoder.state_dict().items()}
    with torch.no_grad():
        expected_BC = encoder(images_BCHW)
    encoder.load_state_dict(state)
    assert synchronise_batchnorm(encoder, torch.device("cpu")) is encoder
    assert not any(type(module) is nn.BatchNorm2d for module in encoder.modules())
    assert list(encoder.state_dict()) == list(state)
    with torch.no_grad():
        assert torch.equal(encoder(images_BCHW), expected_BC)


def test_a_fused_batchnorm_is_refused_on_cpu() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), timm.layers.BatchNormAct2d(4))
    with pytest.raises(UserError, match="BatchNormAct2d cannot be synchronised"):
        synchronise_batchnorm(model, torch.device("cpu"))
    assert type(model[0]) is nn.BatchNorm2d  # all or nothing
