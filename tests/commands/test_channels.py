"""Sets of 16-bit gray, of 5 and of 13 channels: pretrained, evaluated, searched and exported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import SIZE, configure

import mast
from mast.core.errors import UserError
from mast.core.reading import Layout, Reading

pytestmark = pytest.mark.slow

CHANNELS = {"gray": 1, "thirteen": 13}
READINGS = {
    "gray": Reading(Layout(1, deep=True), (0.0,), (4095.0,)),
    "thirteen": Reading(Layout(13, deep=True), (-1.0,), (2.0,), -9999.0),
}


def write(folder: Path, kind: str, values_HWC: np.ndarray, name: str) -> None:
    """An image of values in [0, 1], in the units and the format of its set."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "gray":
        pixels = (values_HWC[..., 0] * 4095).astype(np.uint16)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    else:
        cube = (3 * values_HWC - 1).astype(np.float32)
        cube[:3, :3] = -9999
        np.save(folder / f"{name}.npy", cube)


@pytest.fixture(scope="module", params=CHANNELS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A set and a run on it."""
    kind, root = request.param, tmp_path_factory.mktemp(request.param)
    generator = np.random.default_rng(0)
    for part, count in (("train", 24), ("test", 9)):
        for index in range(count):
            label, shape = index % 3, (36, int(generator.integers(34, 60)), CHANNELS[kind])
            bright_C = np.arange(shape[2]) % 3 == label if shape[2] > 1 else np.array([label / 2])
            noisy = (0.2 + 0.6 * bright_C + generator.normal(0, 0.05, shape)).clip(0, 1)
            write(root / part / f"class{label}", kind, noisy, str(index))
    data = {"spec": str(root / "train"), "channels": CHANNELS[kind]}
    if kind == "thirteen":
        data |= {"range": (-1.0, 2.0), "no_data": -9999.0}
    config = configure(root, root / "run", "mast_c5_small", data=data)
    mast.pretrain(config)
    return kind, root


def test_a_run_keeps_how_its_files_were_read(made: Any) -> None:
    kind, root = made
    encoder = mast.load_encoder(root / "run")
    assert encoder.reading == READINGS[kind]
    assert encoder.channels == CHANNELS[kind]
    [path, *_] = sorted((root / "test").rglob("*.*"))
    images_1CHW = mast.open_images(path, SIZE, encoder.reading)
    assert images_1CHW.shape == (1, CHANNELS[kind], SIZE, SIZE)
    assert 0 <= images_1CHW.min() < images_1CHW.max() <= 1
    assert encoder(images_1CHW).isfinite().all()


def test_it_is_searched_learned_from_and_evaluated(made: Any) -> None:
    kind, root = made
    [query, *_] = sorted((root / "test").rglob("*.*"))
    found = mast.neighbours(root / "train", query, root / "run", k=3, ignore="color").columns
    assert [*found["rank"]] == [1, 2, 3]
    copies = mast.duplicates(root / "test", root / "run").columns
    assert not any(map(len, copies.values()))
    classifier = mast.fit(root / "train", root / "run")
    assert mast.load_classifier(classifier.path).reading == READINGS[kind]
    linear, robust = mast.evaluate(root / "run", root, ("linear", "robust"))
    assert linear.targets["class"].values["top1"] > 60  # of 33 by chance
    assert "band_jitter" in robust.targets["class"].values
    assert "grayscale" not in robust.targets["class"].values
    settings = {"robust": {"operators": ["grayscale"]}}
    with pytest.raises(UserError, match="none of the operators acts on images of"):
        mast.evaluate(root / "run", root, "robust", settings)


def test_it_is_exported_with_an_example_that_reads_values(made: Any) -> None:
    kind, root = made
    folder = mast.export(root / "run", "pt2", root / "exported").folder
    assert "def prepare(values)" in (folder / "README.md").read_text()
    module = torch.export.load(folder / "encoder.pt2").module()
    images_BCHW = torch.rand(2, CHANNELS[kind], SIZE, SIZE)
    encoder = mast.load_encoder(root / "run")
    torch.testing.assert_close(module(images_BCHW), encoder(images_BCHW), rtol=1e-3, atol=1e-4)
