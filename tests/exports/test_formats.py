"""Exports of every format, loaded by processes that have no `mast`."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import to_tensor

import mast
from mast.core.errors import UserError
from mast.core.tensors import write_tensors
from mast.exports import FORMATS, Exported
from mast.measure.features import extract
from mast.models import Encoder, EncoderConfig, load_foreign, save_encoder
from mast.models.encoders import Normalization

NARROW = EncoderConfig("timm:resnet18", {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]})
HALF = Normalization((0.5, 0.4, 0.3), (0.5, 0.25, 0.2))
NEEDS = {"hf": "transformers", "onnx": "onnxruntime"}
INSTALLED = [name for name in FORMATS if find_spec(NEEDS.get(name, "torch")) is not None]

# The first block of each README.md in its folder, and then the printed line before the second.
FRESH = r"""
import sys
sys.modules["mast"] = None  # not even where it is installed
import json, os, re
from pathlib import Path
import numpy
from PIL import Image
try:
    import mast
except ImportError:
    pass
else:
    raise SystemExit("mast can be imported")
for folder, line, pictures in json.loads(sys.argv[1]):
    os.chdir(folder)
    images = [Image.open(picture).convert("RGB") for picture in pictures]
    load, use = re.findall(r"```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL)
    exec(load, {})
    for count in (len(images), 1):
        names = {"images": images[:count]}
        exec(line, names)
        exec(use, names)
        numpy.save(f"{folder}-{count}.npy", numpy.asarray(names["features"]))
"""


class Case(NamedTuple):
    """An export, what ours gives for two images, and what a process without `mast` gave."""

    exported: Exported
    encoder: Encoder
    pictures: list[str]


def normalised(config: EncoderConfig) -> EncoderConfig:
    return replace(config, mean=HALF.mean, std=HALF.std)


def scrambled(encoder: Encoder) -> Encoder:
    """With statistics other than those of the start."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for module in encoder.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0.0, 0.1, generator=generator)
                module.weight.uniform_(0.5, 1.5, generator=generator)
    return encoder.eval()


def saved(folder: Path, encoder: Encoder) -> Path:
    folder.mkdir(exist_ok=True)
    save_encoder(encoder, folder / "encoder.safetensors")
    return folder / "encoder.safetensors"


def pictures_of(folder: Path, size: int) -> list[str]:
    """Of that size, so that nothing is resized, and smooth: networks see little in noise."""
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    for at in range(2):
        pixels = generator.integers(0, 256, (4, 4, 3)).astype(np.uint8)
        Image.fromarray(pixels).resize((size, size)).save(folder / f"{at}.png")
    return [str(file) for file in sorted(folder.iterdir())]


def ours(case: Case) -> Tensor:
    images = [to_tensor(Image.open(picture)) for picture in case.pictures]
    with torch.inference_mode():
        return case.encoder(torch.stack(images))


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
    places = [
        (str(case.exported.folder), case.exported.line, case.pictures) for case in found.values()
    ]
    words = [sys.executable, "-P", "-c", FRESH, json.dumps(places)]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_a_process_without_mast_gets_the_same_features(cases: dict[str, Case], name: str) -> None:
    if name not in cases:
        pytest.skip(f"{NEEDS[name]} is not installed")
    case = cases[name]
    expected_BC = ours(case)
    assert expected_BC.std(dim=0).max() > 0.01  # two images differ
    for count in (2, 1):
        given = torch.from_numpy(np.load(f"{case.exported.folder}-{count}.npy"))
        torch.testing.assert_close(given, expected_BC[:count], rtol=1e-3, atol=1e-4)
    assert case.exported.difference < 1e-4
    assert "\n" not in case.exported.line


def test_only_the_format_is_written(cases: dict[str, Case]) -> None:
    files = {
        "timm": {"config.json", "model.safetensors"}, "hf": {"config.json", "model.safetensors"},
        "torchvision": {"model.safetensors"}, "pt2": {"encoder.pt2"}, "onnx": {"encoder.onnx"},
        "torchscript": {"encoder.torchscript"},
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
    foreign = load_foreign(case.exported.folder / "model.safetensors")
    assert (foreign.encoder.size, foreign.encoder.config.normalization) == (case.encoder.size, HALF)
    images_BCHW = torch.rand(2, 3, case.encoder.size, case.encoder.size)
    with torch.inference_mode():
        assert torch.equal(foreign.encoder(images_BCHW), case.encoder(images_BCHW))


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
        (EncoderConfig("resnet18"), 32, "hf", "onnx, pt2 and torchscript hold any encoder"),
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
