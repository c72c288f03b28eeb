"""Options of an encoder, from headers, configurations and command lines: architecture alone."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny import ENCODER, SIZE, configure

import mast
from mast.cli import main
from mast.config import read, record
from mast.core.errors import UserError
from mast.core.tensors import write_tensors
from mast.models import Encoder, EncoderConfig, load_encoder, load_foreign
from mast.models.encoders import OPTIONS

MOBILE = "torchvision:mobilenet_v3_small"


class Attack:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


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


def test_a_header_names_no_file_that_is_unpickled(tmp_path: Path) -> None:
    torch.save(Attack(tmp_path / "executed"), tmp_path / "weights.pth")
    file = written(tmp_path, ENCODER, {"checkpoint_path": str(tmp_path / "weights.pth")})
    with pytest.raises(UserError, match=r"encoder\.safetensors.*checkpoint_path"):
        load_encoder(file)
    assert not (tmp_path / "executed").exists()


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


def from_python(options: dict[str, Any], folder: Path) -> None:
    mast.configure("vicreg5_small", encoder={"name": "timm:resnet18", "options": options})


SOURCES = (from_header, from_export, from_yaml, from_python)


@pytest.mark.parametrize("source", SOURCES)
def test_options_are_looked_at_wherever_they_come_from(
    source: Callable[[dict[str, Any], Path], None], tmp_path: Path
) -> None:
    for options in ({"checkpoint_path": "x.pth"}, {"layers": "../x"}):
        with pytest.raises(UserError, match=rf"encoder\.options.*{next(iter(options))}"):
            source(options, tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("checkpoint_path", "x.pth"), ("pretrained", True), ("pretrained_cfg", {"file": "x.pth"}),
        ("pretrained_cfg_overlay", {"file": "x.pth"}), ("cache_dir", "."), ("device", "cuda"),
        ("dtype", "float16"), ("scriptable", True), ("features_only", True), ("weights", "DEFAULT"),
        ("num_classes", 5), ("in_chans", 1), ("layers", {"a": 1}), ("layers", float("nan")),
        ("stem_type", "../x"), ("layers", [1] * 65), ("layers", [[[[1]]]]), ("layers", 10**9),
        ("layers", 10**40), ("stem_width", float("inf")), ("stem_type", "x" * 65),
        ("drop_rate", -0.5), ("attn_drop_rate", "x"), ("drop_path_rate", [1]),
    ],
)  # fmt: skip
def test_what_is_no_architecture_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"{name}"):
        Encoder(EncoderConfig(ENCODER.name, {name: value}), SIZE)


def test_a_number_that_python_does_not_write_is_refused() -> None:
    with pytest.raises(UserError, match=r"encoder\.options\.layers .*, got a number too long"):
        Encoder(EncoderConfig(ENCODER.name, {"layers": 10**5000}), SIZE)


def test_a_command_line_is_refused_likewise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(tmp_path), "--encoder.options", '{"checkpoint_path": "x.pth"}']
    assert main(["pretrain", "--recipe", "vicreg5_small", *words]) == 2
    assert "'checkpoint_path'" in capsys.readouterr().err


@pytest.mark.parametrize("library", OPTIONS)
def test_no_option_is_one_of_the_factory(library: str) -> None:
    """What timm.create_model and torchvision.get_model take themselves."""
    import inspect

    import timm
    import torchvision

    factory = {"timm": timm.create_model, "torchvision": torchvision.models.resnet18}[library]
    assert not OPTIONS[library] & inspect.signature(factory).parameters.keys()
    assert all(name.isidentifier() for name in OPTIONS[library])


VIT = ("timm:test_vit", 32)
CASES = [
    *(
        (("timm:resnet18", 32), {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]} | options)
        for options in (
            {"layers": 0}, {"layers": []}, {"layers": [1]}, {"layers": "x"}, {"channels": [-1] * 4},
            {"channels": [0] * 4}, {"channels": ["x"] * 4},
            {"cardinality": 0}, {"cardinality": 3}, {"output_stride": 3},
            {"act_layer": "x"}, {"norm_layer": "x"}, {"aa_layer": "x"}, {"drop_path_rate": "x"},
            {"global_pool": "x"}, {"down_kernel_size": 0},
        )
    ),
    *(
        (VIT, options)
        for options in (
            {"patch_size": 0}, {"patch_size": -1}, {"patch_size": 64}, {"patch_size": [[1]]},
            {"embed_dim": 0}, {"embed_dim": -2}, {"embed_dim": 7}, {"embed_dim": "x"},
            {"depth": 1.5}, {"depth": [1]}, {"num_heads": 0}, {"num_heads": 5},
            {"num_heads": []}, {"img_size": 0}, {"img_size": []},
            {"mlp_ratio": -1}, {"mlp_ratio": "x"}, {"init_values": "x"}, {"reg_tokens": -1},
            {"global_pool": ""}, {"global_pool": "x"}, {"norm_layer": 3}, {"act_layer": True},
            {"pos_embed": 5}, {"weight_init": "x"},
        )
    ),
    *(
        (("timm:test_convnext", 32), options)
        for options in (
            {"dims": [8]}, {"dims": 8}, {"depths": [1, 1, 1, "x"]},
            {"kernel_sizes": [2] * 4}, {"patch_size": -1}, {"stem_type": "x"},
            {"output_stride": 7}, {"norm_eps": "x"}, {"drop_path_rate": [1]},
        )
    ),
    *(
        (("torchvision:resnet18", 32), options)
        for options in (
            {"groups": 0}, {"groups": 2}, {"width_per_group": 0}, {"width_per_group": "x"},
            {"replace_stride_with_dilation": [True]}, {"replace_stride_with_dilation": [True] * 3},
        )
    ),
    *(
        ((MOBILE, 32), options)
        for options in ({"dropout": "x"}, {"dropout": 2}, {"width_mult": []})
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "options"), CASES, ids=str)
def test_what_cannot_be_built_is_one_line(model: tuple[str, int], options: dict[str, Any]) -> None:
    name, size = model
    with pytest.raises(UserError, match=r"encoder\.options") as caught:
        Encoder(EncoderConfig(name, options), size)
    assert "\n" not in str(caught.value)
