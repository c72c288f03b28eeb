"""What headers, configurations and options may ask for: an architecture alone, of bounded size."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import ENCODER, SIZE, VIT, configure
from torch import nn

import mast
from mast.config import build_method
from mast.core import memory
from mast.core.errors import UserError
from mast.core.memory import bounded_weights
from mast.core.tensors import write_tensors
from mast.models import Encoder, EncoderConfig, load_encoder, load_foreign
from mast.models.encoders import OPTIONS

MOBILE = "torchvision:mobilenet_v3_small"


def refused(folder: Path, config: EncoderConfig, changes: dict[str, Any]) -> str:
    """The error of a file whose header was changed."""
    encoder = Encoder(config, SIZE)
    described = encoder.describe()
    of_encoder = described["encoder"]
    for key, value in changes.items():
        if key in ("normalization", "stem_padding", "size"):
            described[key] = value
        else:
            of_encoder[key] = of_encoder["options"] | value if key == "options" else value
    write_tensors(folder / "encoder.safetensors", encoder.model.state_dict(), described)
    with pytest.raises(UserError, match=r"encoder\.safetensors") as caught:
        load_encoder(folder / "encoder.safetensors")
    assert len(str(caught.value)) < 2000
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (ENCODER, {"options": {"layers": [4 * 10**7, 1, 1, 1]}}),
        (VIT, {"options": {"embed_dim": 16383}}),  # 12 GB of weights a block
        (EncoderConfig(MOBILE), {"options": {"width_mult": 1000}}),
        # torchvision takes any keyword here, and the line that an export prints has it as it is
        (EncoderConfig(MOBILE), {"options": {"a=__import__('os').mkdir('executed'),b": 1}}),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_an_architecture_needs_no_more_than_the_file_holds(
    tmp_path: Path, config: EncoderConfig, changes: dict[str, Any]
) -> None:
    refused(tmp_path, config, changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 2049}, {"size": "32"}, {"size": 10**400}, {"stem_padding": 10**9},
        {"stem_padding": None}, {"normalization": {"mean": [0, 0, 10**400], "std": [1, 1, 1]}},
        {"normalization": {"mean": ["x" * 10**5] * 3, "std": [1, 1, 1]}},
        {"normalization": [1]}, {"stem": "large"}, {"stem_stride": 3}, {"stdd": 1},
        {"options": {"checkpoint_path": "x.pth"}}, {"name": ["timm:resnet18"]},
        {"name": "timm:resnet18.\n\x1b[2J"}, {"name": "x" * 10**5},
    ],
    ids=lambda changes: str(changes)[:40],
)  # fmt: skip
def test_every_other_field_is_looked_at(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert "\n" not in refused(tmp_path, ENCODER, changes)


def test_a_configuration_is_bounded_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this machine's memory, and by how many tensors there may be."""
    with pytest.raises(UserError, match="fewer layers"):
        Encoder(EncoderConfig("timm:resnet18", {"layers": [16384] * 4, "channels": [8] * 4}), SIZE)
    with pytest.raises(UserError, match=r"encoder\.options\.layers"):
        mast.configure("vicreg5_small", encoder={"options": {"layers": [4 * 10**7]}})
    with pytest.raises(UserError, match=r"encoder\.options.*checkpoint_path"):
        mast.configure("vicreg5_small", encoder={"options": {"checkpoint_path": "x.pth"}})
    with pytest.raises(UserError, match="size must be 1 to 2048 pixels"):
        mast.configure("vicreg5_small", size=10**9)
    config = configure(tmp_path, tmp_path / "run")
    monkeypatch.setattr(memory, "machine_memory", lambda: 10_000)
    with pytest.raises(UserError, match="all the memory of this machine"):
        build_method(config)


def test_weights_are_counted_before_they_have_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "machine_memory", lambda: 1000)
    with monkeypatch.context() as patched:
        patched.setattr(nn.init, "kaiming_uniform_", lambda *_, **__: pytest.fail("drawn"))
        with pytest.raises(UserError), bounded_weights():
            nn.Linear(100, 100)
    with bounded_weights(2):
        with torch.device("meta"):
            nn.Linear(100, 100)  # needs no memory
        with pytest.raises(UserError):
            nn.Linear(1, 1)
    nn.Linear(100, 100)


def test_the_header_of_an_export_is_bounded(tmp_path: Path) -> None:
    state = Encoder(ENCODER, SIZE).model.state_dict()
    usual = {"architecture": ENCODER.name, "options": "{}", "stem": '{"stride": 2, "size": 32}',
             "mean": "[0, 0, 0]", "std": "[1, 1, 1]"}  # fmt: skip
    for changes in (
        {"options": '{"layers": [40000000, 1, 1, 1]}'}, {"options": "null"},
        {"options": '{"checkpoint_path": "x.pth"}'},
        {"mean": "[NaN, 0, 0]"}, {"stem": '{"stride": 2, "size": 1e999}'},
    ):  # fmt: skip
        write_tensors(tmp_path / "model.safetensors", state, header=usual | changes)
        with pytest.raises(UserError, match=r"model\.safetensors"):
            load_foreign(tmp_path / "model.safetensors")


# ---------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("checkpoint_path", "x.pth"), ("pretrained", True), ("stem_type", "../x"),
        ("layers", {"a": 1}), ("layers", float("nan")), ("layers", [1] * 65),
        ("layers", [[[[1]]]]), ("layers", 10**9), ("stem_type", "x" * 65), ("drop_rate", -0.5),
    ],
)  # fmt: skip
def test_what_is_no_architecture_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"{name}"):
        Encoder(EncoderConfig(ENCODER.name, {name: value}), SIZE)


@pytest.mark.parametrize("library", OPTIONS)
def test_no_option_is_one_of_the_factory(library: str) -> None:
    """What timm.create_model and torchvision.get_model take themselves."""
    import inspect

    import timm
    import torchvision

    factory = {"timm": timm.create_model, "torchvision": torchvision.models.resnet18}[library]
    assert not OPTIONS[library] & inspect.signature(factory).parameters.keys()
    assert all(name.isidentifier() for name in OPTIONS[library])


TIMM_VIT, RESNET = "timm:test_vit", "timm:resnet18"
CASES = [
    (RESNET, {"layers": []}), (RESNET, {"channels": [-1] * 4}), (RESNET, {"global_pool": "x"}),
    (TIMM_VIT, {"patch_size": 0}), (TIMM_VIT, {"patch_size": 64}), (TIMM_VIT, {"depth": 1.5}),
    (TIMM_VIT, {"global_pool": ""}), ("timm:test_convnext", {"dims": [8]}),
    ("torchvision:resnet18", {"groups": 0}), (MOBILE, {"dropout": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_what_cannot_be_built_is_one_line(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"encoder\.options") as caught:
        Encoder(EncoderConfig(name, options), SIZE)
    assert "\n" not in str(caught.value)
