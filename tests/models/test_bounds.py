"""What headers, configurations and options may ask for: an architecture alone, of bounded size."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import timm
from tiny import ENCODER, SIZE, VIT, configure

import mast
from mast.config import build_method
from mast.core import memory
from mast.core.errors import UserError
from mast.core.tensors import write_tensors
from mast.models import Encoder, EncoderConfig, load_encoder
from mast.models.encoders import NO_ARCHITECTURE

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
        (ENCODER, {"options": {"checkpoint_path": "x.pth"}}), (ENCODER, {"size": 2049}),
        (ENCODER, {"options": {"stem_type": "../x"}}), (ENCODER, {"options": {"layers": [1] * 65}}),
        (ENCODER, {"options": {"layers": {"a": 1}}}), (ENCODER, {"options": {"drop_rate": -0.5}}),
        (ENCODER, {"size": "32"}), (ENCODER, {"stem_padding": 10**9}), (ENCODER, {"stdd": 1}),
        (ENCODER, {"normalization": {"mean": [0, 0, 10**400], "std": [1, 1, 1]}}),
        (ENCODER, {"normalization": [1]}), (ENCODER, {"stem_stride": 3}),
        (ENCODER, {"name": ["timm:resnet18"]}), (ENCODER, {"name": "timm:resnet18.\n\x1b[2J"}),
    ],
    ids=lambda value: str(value)[-60:],
)  # fmt: skip
def test_a_header_is_an_architecture_of_the_size_of_its_file(
    tmp_path: Path, config: EncoderConfig, changes: dict[str, Any]
) -> None:
    assert "\n" not in refused(tmp_path, config, changes)


def test_a_configuration_is_bounded_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this machine's memory, and by how many tensors there may be."""
    with pytest.raises(UserError, match="4,096 tensors"):
        Encoder(EncoderConfig("timm:resnet18", {"layers": [16384] * 4, "channels": [8] * 4}), SIZE)
    with pytest.raises(UserError, match=r"encoder\.options\.layers"):
        mast.configure("vicreg5_small", encoder={"options": {"layers": [4 * 10**7]}})
    with pytest.raises(UserError, match=r"encoder\.options.*checkpoint_path"):
        mast.configure("vicreg5_small", encoder={"options": {"checkpoint_path": "x.pth"}})
    with pytest.raises(UserError, match="size: expected 1 to 2048 pixels"):
        mast.configure("vicreg5_small", size=10**9)
    config = configure(tmp_path, tmp_path / "run")
    monkeypatch.setattr(memory, "machine_memory", lambda: 10_000)
    with pytest.raises(UserError, match="GB, the memory of this machine"):
        build_method(config)


# ---------------------------------------------------------------------------------- options


def test_no_option_is_an_argument_of_the_factory() -> None:
    """What `timm.create_model` takes itself, but the name."""
    taken = inspect.signature(timm.create_model).parameters.keys() - {"model_name", "kwargs"}
    assert taken <= NO_ARCHITECTURE


CASES = [
    ("timm:resnet18", {"layers": []}), ("timm:test_vit", {"global_pool": ""}),
    ("torchvision:resnet18", {"groups": 0}), (MOBILE, {"dropout": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_what_cannot_be_built_is_one_line(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"encoder\.options") as caught:
        Encoder(EncoderConfig(name, options), SIZE)
    assert "\n" not in str(caught.value)
