"""Exports of encoders in every format, loaded by processes that have no `mast`."""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported import (
    HALF,
    INSTALLED,
    NARROW,
    NEEDS,
    Case,
    load_in_a_fresh_process,
    normalised,
    pictures_of,
    scrambled,
)
from PIL import Image

import mast
from mast.core.errors import UserError
from mast.core.tensors import write_tensors
from mast.exports import FORMATS, Original, Place
from mast.measure.features import extract
from mast.models import Encoder, EncoderConfig, load_foreign, save_encoder


def saved(folder: Path, encoder: Encoder) -> Path:
    folder.mkdir(exist_ok=True)
    save_encoder(encoder, folder / "encoder.safetensors")
    return folder / "encoder.safetensors"


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """An export of every format that can be loaded here, after a fresh process loaded it."""
    root = tmp_path_factory.mktemp("exports")
    narrow = scrambled(Encoder(normalised(NARROW), 96))
    small = scrambled(Encoder(normalised(EncoderConfig("resnet18", stem_stride=2)), 32))
    found = {}
    for encoder, names in (
        (narrow, [name for name in INSTALLED if name != "torchvision"]),
        (small, ["torchvision"]),
    ):
        file = saved(root / str(encoder.size), encoder)
        pictures = pictures_of(root / f"pictures{encoder.size}", encoder.size)
        for name in names:
            found[name] = Case(mast.export(file, name), encoder, pictures)
    load_in_a_fresh_process([*found.values()], "features", root)
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_a_process_without_mast_gets_the_same_features(cases: dict[str, Case], name: str) -> None:
    if name not in cases:
        pytest.skip(f"{NEEDS[name]} is not installed")
    case = cases[name]
    expected_BC = case.ours()
    assert expected_BC.std(dim=0).max() > 0.01  # two images differ
    for count in (2, 1):
        torch.testing.assert_close(case.theirs(count), expected_BC[:count], rtol=1e-3, atol=1e-4)
    assert case.exported.difference < 1e-4
    assert "\n" not in case.exported.line


def test_only_the_format_is_written(cases: dict[str, Case]) -> None:
    files = {
        "timm": {"config.json", "model.safetensors"}, "hf": {"config.json", "model.safetensors"},
        "torchvision": {"model.safetensors"}, "pt2": {"encoder.pt2"}, "onnx": {"encoder.onnx"},
    }  # fmt: skip
    assert files.keys() == FORMATS.keys()
    for name, case in cases.items():
        written = {file.name for file in case.exported.folder.iterdir()}
        assert written == files[name] | {"README.md", "mast.json"}
    for folder in {case.exported.folder.parent for case in cases.values()}:
        assert not [file for file in folder.iterdir() if file.name.startswith(".")]


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_what_was_exported_is_evaluated(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    encoder = case.module
    assert isinstance(encoder, Encoder)
    foreign = load_foreign(case.exported.folder / "model.safetensors")
    assert (foreign.encoder.size, foreign.encoder.config.normalization) == (encoder.size, HALF)
    images_BCHW = torch.rand(2, 3, encoder.size, encoder.size)
    with torch.inference_mode():
        assert torch.equal(foreign.encoder(images_BCHW), encoder(images_BCHW))


def test_what_earlier_versions_exported_is_read(tmp_path: Path) -> None:
    """A single file, whose header has the stride of the stem as it was configured."""
    encoder = scrambled(Encoder(normalised(NARROW), 48))
    header = {
        "architecture": "timm:resnet18", "options": json.dumps(NARROW.options),
        "stem": json.dumps({"stem": "auto", "stride": None, "size": 48}),
        "mean": json.dumps(HALF.mean), "std": json.dumps(HALF.std),
    }  # fmt: skip
    file = tmp_path / "encoder-timm.safetensors"
    write_tensors(file, encoder.model.state_dict(), header=header)
    images_BCHW = torch.rand(2, 3, 48, 48)
    with torch.inference_mode():
        assert torch.equal(load_foreign(file).encoder(images_BCHW), encoder(images_BCHW))


def test_timm_prepares_images_as_they_were_measured(tmp_path: Path) -> None:
    """Above 96 pixels a border is cut off, below none."""
    import timm

    encoder = scrambled(Encoder(normalised(NARROW), 112))
    exported = mast.export(saved(tmp_path, encoder), "timm")
    names: dict[str, Any] = {}
    exec(exported.line, names)
    settings = timm.data.resolve_model_data_config(names["model"])
    prepare = timm.data.create_transform(**settings, is_training=False)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 6, 3)).astype(np.uint8)
    (tmp_path / "set").mkdir()
    Image.fromarray(pixels).resize((256, 256)).save(tmp_path / "set" / "0.png")
    with Image.open(tmp_path / "set" / "0.png") as image, torch.inference_mode():
        theirs = names["model"](prepare(image)[None])
    canvases = mast.data.open_canvas(mast.data.DataConfig(str(tmp_path / "set")), 112)
    measured = extract(encoder, canvases, 112)
    torch.testing.assert_close(theirs, measured, rtol=0.02, atol=0.02 * measured.abs().max().item())


def test_a_vit_of_another_size(tmp_path: Path) -> None:
    config = EncoderConfig("timm:test_vit", {"embed_dim": 16, "num_heads": 2, "depth": 1})
    encoder = Encoder(config, 32).eval()
    exported = mast.export(saved(tmp_path, encoder), "hf")
    kept = json.loads((exported.folder / "config.json").read_text())
    assert kept["model_args"]["img_size"] == 32
    assert kept["pretrained_cfg"]["input_size"] == [3, 32, 32]


def test_what_a_library_cannot_build_is_refused(tmp_path: Path) -> None:
    for config, size, name, message in (
        (EncoderConfig("resnet18"), 32, "timm", "no ResNet with a 3x3 stem and no max-pooling"),
        (EncoderConfig("resnet18"), 32, "hf", "onnx and pt2 hold any encoder"),
        (NARROW, 96, "torchvision", "torchvision has no model with the weights of 'timm:resnet18'"),
        (EncoderConfig("squeezenet1_1"), 64, "torchvision", "gives other features"),
        (EncoderConfig("squeezenet1_1"), 64, "timm", "timm has no model"),
    ):
        file = saved(tmp_path, Encoder(config, size))
        with pytest.raises(UserError, match=message):
            mast.export(file, name)
    assert [file.name for file in tmp_path.iterdir()] == ["encoder.safetensors"]


def test_the_manual_lists_every_format() -> None:
    manual = Path(__file__).parents[2] / "docs" / "export.md"
    assert re.findall(r"^\| `(\w+)` \|", manual.read_text(), re.MULTILINE) == list(FORMATS)


def test_onnx_asks_for_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    file = saved(tmp_path, Encoder(NARROW, 96))
    with pytest.raises(UserError, match=r"pip install 'mast-ssl\[onnx\]'"):
        mast.export(file, "onnx")


@pytest.mark.parametrize("name", FORMATS)
def test_a_place_is_a_literal_whatever_it_is_called(name: str) -> None:
    if name not in INSTALLED:
        pytest.skip(f"{NEEDS[name]} is not installed")
    config = EncoderConfig("resnet18") if name == "torchvision" else NARROW
    form = FORMATS[name].kind(Original(Encoder(config, 96).eval()))
    place = "a'); open('b', 'w'); (\"\n{x} \\"
    line = form.line(Place(place))
    texts = [node.value for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Constant)]
    assert any(isinstance(text, str) and place in text for text in texts)
    assert "\n" not in line


def test_a_place_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, Encoder(NARROW, 96))
    with pytest.raises(UserError, match="is not UTF-8"):
        mast.export(file, "pt2", tmp_path / "a\udcff")
    assert [path.name for path in tmp_path.iterdir()] == ["encoder.safetensors"]
