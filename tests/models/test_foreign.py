"""Checkpoints of other projects: each layout gives back the model that was wrapped, or an error."""

import re
import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from lightly.models import ResNetGenerator
from safetensors.torch import save_file
from tiny import Attack, scrambled
from torch import nn

from mast.core.errors import UserError
from mast.models import Encoder, EncoderConfig, save_encoder
from mast.models.foreign import RESNETS, Foreign, _inferred, is_foreign, load_foreign
from mast.models.layouts import CLASSIFIERS, LAYOUTS, recognise

State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    return scrambled(torchvision.models.resnet18())


@pytest.fixture(autouse=True)
def _nothing_is_kept(tmp_path: Path) -> Iterator[None]:
    """Dozens of ResNets would otherwise stay in pytest's folder."""
    yield
    shutil.rmtree(tmp_path)


@torch.no_grad()
def assert_is(foreign: Foreign, model: nn.Module, size: int = 64) -> None:
    """The encoder's representations are the model's pooled features."""
    images_BCHW = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    normalised = torchvision.transforms.functional.normalize(
        images_BCHW, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    )
    expected_BC = model(normalised).flatten(1)
    assert not foreign.encoder.training
    torch.testing.assert_close(foreign.encoder(images_BCHW), expected_BC, rtol=1e-4, atol=1e-5)


def pooled(resnet: nn.Module) -> nn.Module:
    return nn.Sequential(*list(resnet.children())[:-1])


def under(prefix: str, module: nn.Module, without: tuple[str, ...] = ("fc.",)) -> State:
    return {
        prefix + key: value
        for key, value in module.state_dict().items()
        if not key.startswith(without)
    }


# ------------------------------------------------------------------------------ each layout


@cache
def other() -> nn.Module:
    """A model that must not be taken for the encoder: all zeros, on no disk."""
    model = torchvision.models.resnet18()
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
    return model


BACKBONE, BARE = (
    "VICReg, Barlow Twins, DINO, lightly or stable-pretraining",
    "timm, torchvision or SwAV",
)
# By file: the layout, where its state dict is, and the prefixes of the encoder and of all else.
ROWS = {
    "moco.pth": ("MoCo v1 or v2", "state_dict", "module.encoder_q.",
                 "module.encoder_k. module.encoder_q.fc. module.queue."),
    "moco3.pth": ("MoCo v3", "state_dict", "module.base_encoder.",
                  "module.momentum_encoder. module.base_encoder.fc. module.predictor."),
    "simsiam.pth": ("SimSiam", "state_dict", "module.encoder.",
                    "module.encoder.fc. module.predictor."),
    "swav.pth": (BARE, "", "module.", "module.projection_head. module.prototypes."),
    "vicreg.pth": (BACKBONE, "model", "module.backbone.", "module.projector."),
    "barlow.pth": (BACKBONE, "model", "module.backbone.", "module.projector. module.bn."),
    "dino.pth": (BACKBONE, "teacher", "module.backbone.", "module.head."),
    "dino2.pth": (BACKBONE, "teacher", "backbone.", "dino_head. ibot_head."),
    "stable.ckpt": (BACKBONE, "state_dict", "backbone.", "projector. predictor. callbacks_probe."),
    "byol.pt": ("BYOL-pytorch", "", "online_encoder.net.",
                "net. target_encoder.net. online_encoder.projector. online_predictor."),
    "solo.ckpt": ("solo-learn", "state_dict", "backbone.",
                  "momentum_backbone. classifier. projector. queue."),
    "solo-old.ckpt": ("solo-learn's first versions", "state_dict", "encoder.",
                      "momentum_encoder. classifier. projector."),
    "solo-dino.ckpt": ("solo-learn's DINO", "state_dict", "backbone.",
                       "momentum_backbone. classifier. head. momentum_head. dino_loss_func."),
    "vissl.torch": ("VISSL", "classy_state_dict.base_model.model.trunk", "_feature_blocks.", ""),
    "lightly.ckpt": (BACKBONE, "state_dict", "backbone.",
                     "backbone_momentum. projection_head. criterion."),
    "mmselfsup.pth": ("MMSelfSup", "state_dict", "backbone.",
                      "encoder_q.0. encoder_k.0. target_net.module.0. neck."),
    "lightly-dino.ckpt": ("lightly with a teacher", "state_dict", "teacher_backbone.",
                          "student_backbone. student_head. teacher_head."),
    "plain.pth": (BARE, "", "", "fc."),
    "timm.pth.tar": (BARE, "state_dict_ema", "", ""),
    "compiled.pth": (BARE, "", "_orig_mod.module.", ""),
}  # fmt: skip


def content_of(file: str, resnet: nn.Module) -> Any:
    """What a project writes into such a file, with arguments beside the weights."""
    _, place, prefix, others = ROWS[file]
    content: Any = under(prefix, resnet)
    for name in others.split():
        content |= under(name, other())
    for step in reversed(place.split(".") if place else []):
        content = {step: content, "epoch": 3, "args": Namespace(lr=np.float64(0.3))}
    return content


@pytest.mark.parametrize(
    ("outer", "layout"),
    [
        ("encoder_q.", "MoCo v1 or v2"), ("my.net.", BARE), ("encoder.", BARE),
        ("model.backbone.0.", BARE), ("backbone.net.", BACKBONE),
    ],
)  # fmt: skip
def test_any_modules_around_an_encoder_are_left_out(
    outer: str, layout: str, resnet: nn.Module
) -> None:
    assert_recognised(layout, {"state_dict": under(outer, resnet), "epoch": 1}, resnet)
    whole = content_of("moco.pth", resnet)["state_dict"]
    within = {f"model.{key}": tensor for key, tensor in whole.items()}
    assert_recognised("MoCo v1 or v2", within, resnet)


def test_a_model_whose_modules_are_all_in_one_is_left_whole(tmp_path: Path) -> None:
    """Such as torchvision's without their classifier, perhaps inside another module."""
    model = scrambled(torchvision.models.get_model("mobilenet_v3_small"))
    torch.save(under("my.net.", model, ("classifier.",)), tmp_path / "model.pth")
    model.classifier = nn.Identity()
    assert_is(load_foreign(tmp_path / "model.pth", "torchvision:mobilenet_v3_small", 64), model)


def assert_recognised(layout: str, content: Any, resnet: nn.Module) -> None:
    found, tensors, _ = recognise(content)
    expected = resnet.state_dict()
    assert found.name == layout
    assert expected.keys() - tensors.keys() <= {"fc.weight", "fc.bias"}
    for key, tensor in tensors.items():
        assert key.startswith(CLASSIFIERS) or torch.equal(tensor, expected[key])


@pytest.mark.parametrize("file", ROWS)
def test_layouts(file: str, resnet: nn.Module) -> None:
    layout, place, *_ = ROWS[file]
    content = content_of(file, resnet)
    assert_recognised(layout, content, resnet)
    if file in ("moco3.pth", "vicreg.pth"):  # the weights saved alone
        assert_recognised(layout, content[place], resnet)


def test_a_layout_is_loaded(resnet: nn.Module, tmp_path: Path) -> None:
    torch.save(content_of("simsiam.pth", resnet), tmp_path / "simsiam.pth")
    foreign = load_foreign(tmp_path / "simsiam.pth", size=64)
    assert foreign.layout == "SimSiam"
    assert foreign.encoder.config == EncoderConfig("resnet18", stem="standard")
    assert_is(foreign, pooled(resnet))
    assert {key.split(".")[0] for key in foreign.left_out} == {"encoder", "predictor"}


def test_safetensors_and_old_files(resnet: nn.Module, tmp_path: Path) -> None:
    state = {key: value for key, value in resnet.state_dict().items() if "batches" not in key}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for file in ("model.safetensors", "old.pth"):
        assert is_foreign(tmp_path / file)
        assert_is(load_foreign(tmp_path / file, size=64), pooled(resnet))
    save_encoder(Encoder(EncoderConfig("resnet18"), 32), tmp_path / "ours.safetensors")
    assert not is_foreign(tmp_path / "ours.safetensors")
    with pytest.raises(UserError, match="names its encoder itself"):
        load_foreign(tmp_path / "ours.safetensors", "resnet18")
    assert not is_foreign(tmp_path)


# ---------------------------------------------------------------------------- architectures


@pytest.mark.parametrize("name", RESNETS.values())
def test_resnets_are_inferred(name: str) -> None:
    with torch.device("meta"):  # the shapes are enough
        model = torchvision.models.get_model(name)
    assert _inferred(LAYOUTS[-1], model.state_dict()) == (name, {})


def small(resnet: nn.Module, padding: int) -> nn.Module:
    """A ResNet as it is made for CIFAR."""
    twin = deepcopy(resnet)
    twin.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=padding, bias=False)
    twin.maxpool = nn.Identity()
    return twin.eval()


@pytest.mark.parametrize(("file", "padding"), [("solo.ckpt", 2), ("vicreg.pth", 1)])
def test_small_stems(file: str, padding: int, resnet: nn.Module, tmp_path: Path) -> None:
    model = small(resnet, padding)
    torch.save(content_of(file, model), tmp_path / file)
    foreign = load_foreign(tmp_path / file)
    assert foreign.encoder.size == 32
    assert_is(foreign, pooled(model), size=32)


def test_lightlys_own_resnet(tmp_path: Path) -> None:
    resnet = scrambled(ResNetGenerator("resnet-18"))
    module = nn.Module()
    module.backbone = nn.Sequential(*list(resnet.children())[:-1], nn.AdaptiveAvgPool2d(1))
    torch.save({"state_dict": module.state_dict()}, tmp_path / "model.ckpt")
    foreign = load_foreign(tmp_path / "model.ckpt")
    resnet.linear = nn.Identity()  # its pooling is for 32 pixels
    assert_is(foreign, resnet, size=32)


def vit(name: str, **options: Any) -> nn.Module:
    return scrambled(timm.create_model(name, num_classes=3, **options))


def test_vits_are_inferred(tmp_path: Path) -> None:
    model = vit("vit_tiny_patch16_224", patch_size=8, img_size=64, init_values=0.1)
    torch.save({"teacher": under("backbone.", model, ())}, tmp_path / "vit.pth")
    foreign = load_foreign(tmp_path / "vit.pth", size=64)
    assert foreign.left_out == ("backbone.head.weight", "backbone.head.bias")
    model.reset_classifier(0)
    assert_is(foreign, model)
    larger = timm.create_model(
        "vit_tiny_patch16_224", num_classes=0, patch_size=8, img_size=64, init_values=0.1,
        dynamic_img_size=True,
    ).eval()  # fmt: skip
    larger.load_state_dict(model.state_dict())
    assert_is(load_foreign(tmp_path / "vit.pth", size=96), larger, size=96)
    with pytest.raises(UserError, match=r"size: expected a multiple .* got 100; give 104"):
        load_foreign(tmp_path / "vit.pth", size=100)


@torch.no_grad()
def test_registers_as_dinov2_has_them(tmp_path: Path) -> None:
    """Their class token has a position, which timm adds to the token."""
    registers = {"reg_tokens": 4, "no_embed_class": True}
    model = vit("vit_tiny_patch16_224", patch_size=8, img_size=64, init_values=0.1, **registers)
    model.reset_classifier(0)
    state = model.state_dict()
    own = torch.rand(1, 1, 192, generator=torch.Generator().manual_seed(0))
    state |= {
        "register_tokens": state.pop("reg_token"), "cls_token": state["cls_token"] - own,
        "pos_embed": torch.cat([own, state["pos_embed"]], dim=1),
        "mask_token": torch.zeros(1, 192),
    }  # fmt: skip
    torch.save(state, tmp_path / "dinov2.pth")
    assert_is(load_foreign(tmp_path / "dinov2.pth", size=64), model)
    assert load_foreign(tmp_path / "dinov2.pth", size=96).encoder.config.options["reg_tokens"] == 4


def test_heads_of_mocos_vits(tmp_path: Path) -> None:
    """No weight tells that MoCo v3's small ViT has 12 heads where timm's has 6."""
    model = vit("vit_small_patch16_224", num_heads=12, img_size=32)
    with torch.no_grad():
        model.pos_embed[0, 0] = 0.0
    state = {f"module.base_encoder.{key}": value for key, value in model.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "moco3.pth")
    foreign = load_foreign(tmp_path / "moco3.pth", size=32)
    model.reset_classifier(0)
    assert_is(foreign, model, size=32)
    torch.save(model.state_dict(), tmp_path / "plain.pth")
    with pytest.raises(UserError, match="architecture cannot be inferred"):
        load_foreign(tmp_path / "plain.pth", size=32)


@pytest.mark.parametrize("name", ["convnext_atto", "torchvision:mobilenet_v3_small"])
def test_names_of_other_models(name: str, tmp_path: Path) -> None:
    library, _, bare = name.rpartition(":")
    model = scrambled(torchvision.models.get_model(bare) if library else timm.create_model(bare))
    torch.save({"model": under("module.", model, ())}, tmp_path / "model.pth")
    with pytest.raises(UserError, match="give its timm or torchvision name"):
        load_foreign(tmp_path / "model.pth")
    foreign = load_foreign(tmp_path / "model.pth", name, 64)
    assert all(key.startswith(("head.fc", "classifier")) for key in foreign.left_out)
    if library:
        model.classifier = nn.Identity()
    else:
        model.reset_classifier(0)
    assert_is(foreign, model)


def test_efficientnets_with_names_of_their_own_in_timms_order(tmp_path: Path) -> None:
    model = scrambled(timm.create_model("efficientnet_b0"))
    weights = [of for key, of in model.state_dict().items() if "batches" not in key]
    names = ["_conv_stem", *["_blocks"] * (len(weights) - 3), "_fc", "_fc"]
    state = {f"{name}.{at}": of for at, (name, of) in enumerate(zip(names, weights, strict=True))}
    torch.save(state, tmp_path / "model.pth")
    foreign = load_foreign(tmp_path / "model.pth", "timm:efficientnet_b0", 64)
    assert len(foreign.left_out) == 2
    model.reset_classifier(0)
    assert_is(foreign, model)
    del state["_conv_stem.0"]
    torch.save({"_conv_stem.a": weights[1], **state}, tmp_path / "model.pth")
    assert "conv_stem.weight" in refused(tmp_path / "model.pth", "timm:efficientnet_b0")


# --------------------------------------------------------------------------------- failures


def refused(file: Path, name: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load_foreign(file, name, 32)
    return str(caught.value)


def test_weights_that_do_not_fit(resnet: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "model.pth"
    state = dict(resnet.state_dict())
    torch.save(state, file)
    message = refused(file, "resnet50")
    assert "are not those of 'resnet50'" in message
    assert "size mismatch for layer1.0.conv1.weight" in message
    assert "Did you mean 'resnet18'" in refused(file, "resnet81")

    missing = {key: value for key, value in state.items() if key != "layer3.1.bn2.running_var"}
    torch.save(missing, file)
    assert "missing keys: layer3.1.bn2.running_var)" in refused(file)

    torch.save(state | {"layer3.1.se.weight": torch.zeros(2)}, file)
    assert "unexpected keys: layer3.1.se.weight)" in refused(file)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"epoch": 3, "weights": {}}, "expected a state dict, .* got epoch, weights"),
        ([torch.zeros(2)], "got list"),
        ({"a.weight": torch.zeros(2)}, "begin with a.weight; give its timm or torchvision name"),
        ({"module.a": torch.zeros(2), "a": torch.zeros(2)}, "differ only by `module.`"),
    ],
)
def test_unknown_layouts(content: Any, found: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "model.pth")
    assert re.search(found, refused(tmp_path / "model.pth"))


@pytest.mark.parametrize("zipped", [True, False])
def test_code_is_refused_and_not_run(resnet: Any, tmp_path: Path, zipped: bool) -> None:
    file, made = tmp_path / "model.pth", tmp_path / "made"
    content = {"state_dict": resnet.fc.state_dict(), "args": Attack(made)}
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    message = refused(file)
    assert "posix.mkdir" in message
    assert "save only its weights" in message
    assert not made.exists()


def test_damaged_files(resnet: Any, tmp_path: Path) -> None:
    state = resnet.layer1.state_dict()
    torch.save(state, tmp_path / "whole.pth")
    save_file(state, tmp_path / "whole.safetensors")
    for suffix in ("pth", "safetensors"):
        whole = (tmp_path / f"whole.{suffix}").read_bytes()
        for part in (b"", whole[: len(whole) // 2], whole[:-10], b"\xff" * 64):
            (tmp_path / f"part.{suffix}").write_bytes(part)
            assert "not a readable" in refused(tmp_path / f"part.{suffix}")
    assert "no checkpoint at" in refused(tmp_path / "none.pth")


# -------------------------------------------------------------------- tensors of other kinds

ODD: dict[str, Callable[[torch.Tensor], Any]] = {
    "sparse": lambda tensor: torch.zeros(tensor.shape).to_sparse(),
    "quantized": lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
    "meta": lambda tensor: tensor.to("meta"),
    "whole numbers": lambda tensor: tensor.long(),
    "one number": lambda tensor: torch.zeros(()),
    "overlapping and huge": lambda tensor: torch.zeros(()).expand([10**4] * tensor.ndim),
    "an array": lambda tensor: np.zeros(3),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_plain_tensor_is_one_line(kind: str, tmp_path: Path) -> None:
    state, key = under("", other()), "conv1.weight"
    torch.save({**state, key: ODD[kind](state[key].contiguous())}, tmp_path / "odd.pth")
    with pytest.raises(UserError, match=r"odd\.pth") as caught:
        load_foreign(tmp_path / "odd.pth")
    assert "\n" not in str(caught.value)
