"""Exports of encoders and classifiers that read other files than 8-bit RGB."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported import INSTALLED, NARROW
from tiny import scrambled
from torch import Tensor, nn

import mast
from mast.core.reading import Layout, Reading
from mast.models import Classifier, Encoder, EncoderConfig, load_encoder, save_encoder
from mast.models.classifier import save_classifier

pytestmark = pytest.mark.slow

MOMENTS = {"mean": (0.5, 0.4, 0.3, 0.2, 0.1), "std": (0.5, 0.25, 0.2, 0.3, 0.4)}
HIGH = 4000.0
READING = Reading(Layout(5, deep=True), (0.0, 10.0, 20.0, 30.0, 40.0), (HIGH,), no_data=-9999.0)
SIDE = 32


def of_five_channels(config: EncoderConfig) -> Encoder:
    encoder = scrambled(Encoder(replace(config, **MOMENTS), SIDE))
    for module in encoder.train().modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # statistics are those of the next batch
            module.reset_running_stats()
    with torch.no_grad():
        encoder(torch.rand(8, 5, SIDE, SIDE, generator=torch.Generator().manual_seed(0)))
    encoder.reading = READING
    return encoder.eval()


def values_of_files() -> list[np.ndarray]:
    """Two images of the size that is read, so that nothing is resized."""
    generator = np.random.default_rng(0)
    images = [generator.integers(0, 5000, (SIDE, SIDE, 5)).astype(np.int32) for _ in range(2)]
    for values_HWC in images:
        values_HWC[3] = -9999
    return images


def seen(images: list[np.ndarray]) -> Tensor:
    """What an encoder sees of them, by hand."""
    low = torch.tensor(READING.low)
    shares = ((torch.from_numpy(np.stack(images)) - low) / (HIGH - low)).clamp(0, 1)
    shares[:, 3] = 0
    return shares.permute(0, 3, 1, 2)


@pytest.mark.parametrize("name", INSTALLED)
def test_what_the_card_says_gives_the_same_features(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stem = "standard" if name == "timm" else "auto"  # it builds no small stem
    encoder = of_five_channels(replace(NARROW, stem=stem))
    save_encoder(encoder, tmp_path / "encoder.safetensors")
    exported = mast.export(tmp_path / "encoder.safetensors", name)
    with torch.inference_mode():
        expected_BC = encoder(seen(values_of_files()))
    assert expected_BC.std(dim=0).max() > 0.001
    text = (exported.folder / "README.md").read_text()
    assert "images of 5 channels of 32 × 32" in text
    assert "0 to 4000, 10 to 4000, 20 to 4000, 30 to 4000, 40 to 4000 become 0 to 1" in text
    assert "-9999" in text
    assert "RGB" not in text
    monkeypatch.chdir(exported.folder)
    names: dict[str, Any] = {"images": values_of_files()}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    features_BC = torch.as_tensor(names["features"])
    torch.testing.assert_close(features_BC, expected_BC, rtol=1e-3, atol=1e-4)
    if name == "timm":  # a file that is read again
        again = load_encoder(exported.folder / "model.safetensors")
        assert again.reading == READING
        with torch.inference_mode():
            assert torch.equal(again(seen(values_of_files())), expected_BC)


def test_a_classifier_of_five_channels(tmp_path: Path) -> None:
    encoder = of_five_channels(EncoderConfig("resnet18", stem="standard"))
    classifier = Classifier(encoder, nn.Linear(encoder.dim, 3), ("a", "b", "c"), SIDE).eval()
    file = tmp_path / "classifier-a.safetensors"
    save_classifier(classifier, file)
    exported = mast.export(file, "pt2")  # which compares probabilities
    assert "images of 5 channels of 32 × 32" in (exported.folder / "README.md").read_text()
    kept = json.loads((exported.folder / "classes.json").read_text())
    assert kept["reading"] == json.loads(json.dumps(asdict(READING)))


@pytest.mark.parametrize(
    "reading",
    [
        None,  # of 8 bits
        Reading(Layout(3, deep=True), (0.0,), (65535.0,)),
    ],
    ids=["two channels", "16-bit RGB"],
)
def test_files_of_other_kinds(reading: Reading | None, tmp_path: Path) -> None:
    """The example is run against what `mast` reads before an export is kept."""
    channels = 2 if reading is None else reading.layout.channels
    config = replace(NARROW, mean=(0.5,) * channels, std=(0.25,) * channels)
    encoder = scrambled(Encoder(config, 112))  # of which a border is cut off
    encoder.reading = reading
    save_encoder(encoder, tmp_path / "encoder.safetensors")
    exported = mast.export(tmp_path / "encoder.safetensors", "pt2")
    text = (exported.folder / "README.md").read_text()
    assert ("RGB images of 112" in text) == (channels == 3)
    assert "Pillow" not in text
