"""Options of an encoder, from headers, configurations and command lines: architecture alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import ENCODER, SIZE, configure

import mast
from mast.config import read, record
from mast.core.errors import UserError
from mast.core.tensors import write_tensors
from mast.models import Encoder, EncoderConfig, load_encoder, load_foreign
from mast.models.encoders import OPTIONS

MOBILE = "torchvision:mobilenet_v3_small"


def written(folder: Path, config: EncoderConfig, options: dict[str, Any]) -> Path:
    """A file of an encoder whose header has other options than it was built with."""
    encoder = Encoder(config, SIZE)
    described = encoder.describe()
    described["encoder"]["options"] = options
    file = folder / "encoder.safetensors"
    write_tensors(file, encoder.model.state_dict(), described)
    return file


def test_a_header_is_never_executed_by_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchvision takes any keyword of a MobileNet, and the printed line has it as it is."""
    monkeypatch.chdir(tmp_path)
    code = {"a=__import__('os').mkdir('executed'),b": 1}
    file = written(tmp_path, EncoderConfig(MOBILE), code)
    with pytest.raises(UserError, match=r"encoder\.safetensors.*encoder\.options"):
        mast.export(file, "torchvision", tmp_path / "out")
    assert not Path("executed").exists()


def from_header(options: dict[str, Any], folder: Path) -> None:
    load_encoder(written(folder, ENCODER, options))


def from_export(options: dict[str, Any], folder: Path) -> None:
    state = Encoder(ENCODER, SIZE).model.state_dict()
    header = {
        "architecture": ENCODER.name, "options": json.dumps(options),
        "stem": json.dumps({"stem": "small", "stride": 2, "size": SIZE}),
        "mean": "[0.5, 0.5, 0.5]", "std": "[0.5, 0.5, 0.5]",
    }  # fmt: skip
    write_tensors(folder / "model.safetensors", state, header=header)
    load_foreign(folder / "model.safetensors")


def from_yaml(options: dict[str, Any], folder: Path) -> None:
    values = record(configure(folder, folder / "run"))
    values["encoder"]["options"] = options
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    read(folder / "config.yaml")


SOURCES = (from_header, from_export, from_yaml)


@pytest.mark.parametrize("source", SOURCES)
def test_options_are_looked_at_wherever_they_come_from(
    source: Callable[[dict[str, Any], Path], None], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"encoder\.options.*checkpoint_path"):
        source({"checkpoint_path": "x.pth"}, tmp_path)


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


VIT, RESNET = "timm:test_vit", "timm:resnet18"
CASES = [
    (RESNET, {"layers": []}), (RESNET, {"channels": [-1] * 4}), (RESNET, {"global_pool": "x"}),
    (VIT, {"patch_size": 0}), (VIT, {"patch_size": 64}), (VIT, {"depth": 1.5}),
    (VIT, {"global_pool": ""}), ("timm:test_convnext", {"dims": [8]}),
    ("torchvision:resnet18", {"groups": 0}), (MOBILE, {"dropout": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_what_cannot_be_built_is_one_line(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"encoder\.options") as caught:
        Encoder(EncoderConfig(name, options), SIZE)
    assert "\n" not in str(caught.value)
