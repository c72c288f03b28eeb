"""Experiments that choose on validation images: of candidates, and of ways from weights."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import tiny
from tiny import ENCODER

import mast
from experiments.beyond import READ, TRAINED, WAYS, Beyond
from mast.evaluation.protocols.run import EvaluationSettings
from paper.experiment import Workplace, perform

QUICK = {"penalties": [0.01], "resamples": 20}
SETTINGS = EvaluationSettings(
    protocols={
        "linear": QUICK,
        "knn": {"resamples": 20},
        "fewshot": {"shots": [5], "repeats": 2, "penalties": [0.01], "episodes": 0},
    }
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("baselines")]


@pytest.fixture
def photos(sets: Path, tmp_path: Path) -> Path:
    """The sets, and one of photos."""
    folder = tmp_path / "sets"
    folder.mkdir()
    for each in sets.iterdir():
        (folder / each.name).symlink_to(each)
    tiny.write_images(folder / "photos", 110)
    return folder


def place(photos: Path, pretrain: Any = mast.pretrain) -> Workplace:
    return Workplace(photos, photos.parent / "out", pretrain, mast.evaluate, "cpu")


def test_ways_from_weights_are_tested_at_the_best_rate(photos: Path) -> None:
    chosen = ("frozen", "statistics", "mast")
    ways = {name: WAYS[name]._replace(weights=False, rates=WAYS[name].rates[:2]) for name in chosen}
    ways["larger"] = WAYS["frozen_224"]._replace(weights=False, size=48)
    experiment = Beyond({"photos": 1}, ways, 32, asdict(ENCODER), settings=SETTINGS)
    runs, results = perform(experiment, place(photos), [0, 1])
    assert {run.state for run in runs} == {"finished"}
    trials = [results[f"validation/photos-mast-{rate:g}-0"] for rate in ways["mast"].rates]
    best = max(trials, key=lambda trial: trial["scores"]["linear"] + trial["scores"]["knn"])
    assert results["test/photos-mast-1"]["rate"] == best["rate"]
    assert [row[2:4] for row in experiment.table(results).rows] == [
        (way.title, READ[read])
        for way in ways.values()
        for read in (TRAINED if way.recipe else READ)
    ]
    tested = {name for name in results if name.startswith("test/")}
    seeds = {way: (0, 1) if ways[way].recipe else (0,) for way in ways}
    assert tested == {f"test/photos-{way}-{seed}" for way in ways for seed in seeds[way]}
    # again: nothing is trained
    again, same = perform(experiment, place(photos, pretrain=None), [0, 1])
    assert {run.state for run in again} == {"finished"}
    assert same == results
