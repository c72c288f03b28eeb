"""Protocols measure encoders of images of five bands, or refuse them in one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import ENCODER
from tiny_evaluation import QUICK

from mast.core.errors import UserError
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder
from mast.models import Encoder
from mast.models.encoders import usual_normalization
from paper.protocols import Detection
from paper.protocols.detection.detectors import build_detector

SIDE = 32
FIVE = replace(ENCODER, **usual_normalization(5)._asdict())


def bands(folder: Path, count: int, seed: int) -> CanvasSet:
    """16-bit images whose class is the brightest of two bands."""
    draw = np.random.default_rng(seed)
    for at in range(count):
        values = draw.integers(0, 3000, (SIDE, SIDE, 5)).astype(np.uint16)
        values[..., at % 2] += 1000
        target = folder / f"class{at % 2}"
        target.mkdir(parents=True, exist_ok=True)
        np.save(target / f"{at}.npy", values)
    cache = folder.parent / "cache"
    return open_canvas(DataConfig(str(folder), channels=5, cache=str(cache)), SIDE)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> EvaluationData:
    root = tmp_path_factory.mktemp("bands")
    sets = (bands(root / name, 12, seed) for seed, name in enumerate(("train", "val", "test")))
    return EvaluationData(*sets, SIDE)


@pytest.mark.parametrize("name", ["linear_sgd", "finetune", "retained", "robust"])
def test_they_measure_encoders_of_bands(data: EvaluationData, name: str) -> None:
    changes = {"epochs": 1, "batch_size": 8, "views": "mast5"}
    settings: dict[str, dict[str, Any]] = {
        **QUICK.protocols,
        "linear_sgd": {"epochs": 1, "batch_size": 8},
        "finetune": {"changes": changes},
        "retained": {"operators": ["color_jitter", "grayscale"]},
    }
    encoder = Encoder(FIVE, SIDE).eval()
    (result,) = evaluate_encoder(encoder, data, name, EvaluationSettings(protocols=settings))
    (measured,) = result.targets.values()
    assert np.isfinite(measured.values["top1"])
    acted = {measure for measure in measured.values if "jitter" in measure or "gray" in measure}
    assert bool(acted) == (name in ("retained", "robust"))
    assert not any("color_jitter" in measure or "grayscale" in measure for measure in acted)


def test_detection_reads_rgb() -> None:
    protocol = Detection(architecture="c4", anchors=(32,))
    with pytest.raises(UserError, match="RGB, and this encoder takes images of 5 channels"):
        build_detector(Encoder(FIVE, SIDE), 2, protocol._network)
