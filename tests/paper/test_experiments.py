"""Every experiment from images to result files, at a scale of seconds, and what they share."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import sem, ttest_1samp
from tiny import ENCODER

import experiments.__main__ as command
import mast
from experiments.__main__ import EXPERIMENTS
from experiments.advice_check import AdviceCheck
from experiments.beyond import READ, TRAINED, WAYS, Beyond
from experiments.detectors import Detectors
from experiments.does_it_help import DoesItHelp
from experiments.findings import Findings, Inquiry
from experiments.flowers import Flowers
from experiments.forgetting import CONTENDERS, Forgetting
from experiments.protocols import Protocols
from experiments.small import Tasks
from experiments.small_sets import SmallRun, folds, with_colors
from experiments.starts import STARTS, Starts
from experiments.uncertainty_check import UncertaintyCheck
from experiments.variants import VARIANTS
from mast.core.errors import UserError
from mast.data import generated, open_canvas
from mast.evaluation.intervals import tango
from mast.evaluation.protocols.run import EvaluationSettings
from mast.evaluation.result import Result
from paper.experiment import CIFAR, Experiment, Workplace, drawn_positions, link, perform
from paper.protocols import Detection, Segmentation
from paper.seeds import cell, difference, pack, unpack
from paper.studies.engine import RunShard, StudyRun, carry_out

pytestmark = pytest.mark.usefixtures("baselines")
RESULTS = Path(__file__).parents[2] / "experiments" / "results"
PROJECTOR = {"projector": {"hidden": 32, "dim": 24}}
TWO = ["horizontal_flip", "color_jitter"]
QUICK_PROBE = {"penalties": [0.01], "resamples": 20}
QUICK: dict[str, Any] = {
    "iterations": 3, "batch_size": 2, "min_sizes": (64,), "test_min_size": 64, "max_size": 96,
    "pyramid": 16, "regions": 16, "anchors": (8, 12, 16, 24, 32),
}  # fmt: skip


def small(recipe: str, data: str, **changes: Any) -> SmallRun:
    """A run of a second."""
    objective = {**PROJECTOR, **changes.pop("objective", {})}
    scale = {"size": 32, "epochs": 1, "batch_size": 16, "encoder": asdict(ENCODER)}
    return SmallRun(recipe, data, {**scale, "objective": objective, **changes})


def variants() -> dict[str, Any]:
    """Those of the table that differ in how they are weighed, at one weight."""
    names = ("untrained", "vicreg5", "learned_slow")
    return {name: replace(VARIANTS[name], weights=VARIANTS[name].weights[:1]) for name in names}


TINY: dict[str, Experiment] = {
    "does_it_help": DoesItHelp(
        variants(), 24, 1, 8, asdict(ENCODER),
        EvaluationSettings(protocols={
            "linear": QUICK_PROBE, "rotation": QUICK_PROBE,
            "knn": {"resamples": 20}, "retrieval": {"resamples": 20},
            "fewshot": {"shots": [1], "repeats": 2, "penalties": [0.01], "episodes": 0},
        }),
    ),
    "forgetting": Forgetting(
        {name: CONTENDERS[name] for name in ("untrained", "vicreg", "exempt")}, ("color",), 128, 1,
        asdict(ENCODER), EvaluationSettings(protocols={
            "linear": QUICK_PROBE, "retrieval": {"resamples": 20},
        }),
    ),
    "starts": Starts(
        {name: STARTS[name] for name in ("mast-random", "vicreg-0.1")}, 24, 1, 1, 8,
        asdict(ENCODER), EvaluationSettings(protocols={"linear": QUICK_PROBE}),
    ),
    "flowers": Flowers(changes={"size": 32, "epochs": 1, "batch_size": 8, "objective": PROJECTOR,
                                "encoder": asdict(ENCODER)}),
    "protocols": Protocols(24, 1, 8, asdict(ENCODER),
                           {"linear_sgd": {"epochs": 1, "learning_rates": [0.1], "batch_size": 8}}),
    "detectors": Detectors(
        replace(ENCODER, stem_stride=None), 64, 3, Detection(architecture="fpn", **QUICK),
        {"mask": Segmentation(**QUICK), "c4": Detection(architecture="fpn", **QUICK)},
    ),
    "advice_check": AdviceCheck(
        {"run": small("mast_c5_small", "factors@train:64", operators=TWO)}
    ),
    "uncertainty_check": UncertaintyCheck({
        "run": (small("mast5_small", CIFAR), "prediction"),
        "other": (small("vicreg5_small", CIFAR), "neighbours"),
    }, 24, 6),
    "findings": Findings(
        {"run": Inquiry("cifar10", ("curves", "masks"), {"leave_one_out": {"epochs": 1}}, "other")},
        {name: small(recipe, CIFAR, operators=TWO)
         for name, recipe in (("run", "mast_c5_small"), ("other", "vicreg5_small"))},
        24, 12,
    ),
}  # fmt: skip
# A result of each that is kept in the repository: the same is written now.
KEPT = {
    "does_it_help": ("validation/vicreg5-5-0", "does_it_help/validation/vicreg5-5-0.json"),
    "forgetting": ("color/exempt-0", "forgetting/color/exempt-0.json"),
    "starts": ("validation/source", "starts/validation/source.json"),
    "flowers": ("", "flowers17.json"),
    "protocols": ("", "protocols.json"),
    "detectors": ("", "detection.json"),
    "advice_check": ("advice-run", "insight/advice-factors_mast5.json"),
    "uncertainty_check": ("uncertain-run", "insight/uncertain-cifar_mast5.json"),
    "findings": ("findings-run", "insight/findings-cifar_mast5.json"),
}


@pytest.fixture
def tiny_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, experiment in TINY.items():
        monkeypatch.setitem(EXPERIMENTS, name, experiment)
    for part, count in (("train", 256), ("val", 96), ("test", 96)):
        monkeypatch.setitem(generated.SPLITS, part, count)


def workplace(sets: Path, out: Path, pretrain: Any = mast.pretrain) -> Workplace:
    return Workplace(sets, out, pretrain, mast.evaluate, "cpu")


def keys(value: Any, depth: int = 2) -> Any:
    """The names in a result file, as deep as they do not depend on what was run."""
    if isinstance(value, dict) and depth:
        return {key: keys(each, depth - 1) for key, each in value.items()}
    return type(value).__name__


def contents(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
@pytest.mark.usefixtures("tiny_experiments")
def test_conformance(name: str, sets: Path, tmp_path: Path) -> None:
    experiment = TINY[name]
    planned, results = perform(experiment, workplace(sets, tmp_path), [0], dry=True)
    assert not list(tmp_path.iterdir())
    assert {run.state for run in planned} == {"to do"}
    assert not results
    before = contents(sets)

    done, results = perform(experiment, workplace(sets, tmp_path), [0])
    assert [run.state for run in done] == ["finished"] * len(planned)
    table = experiment.table(results)
    assert table.rows
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert contents(sets) == before  # nothing is written beside the images
    run, kept = KEPT[name]
    file = tmp_path / (f"{experiment.results}/{run}.json" if run else f"{experiment.results}.json")
    result, expected = (json.loads(path.read_text()) for path in (file, RESULTS / kept))
    assert expected.keys() <= result.keys()
    assert "provenance" in result
    if name not in ("detectors", "protocols"):  # of which parts were named by what was run
        assert set(keys(expected, 1).items()) <= set(keys(result, 1).items())

    for path in tmp_path.glob("protocols/*/evaluations/*.json"):
        assert Result.read(path).set_name == "cifar10/test"  # wherever the folder of sets is

    conclusion = tmp_path / f"{experiment.results}.json"
    concluded = conclusion.is_file()
    conclusion.unlink(missing_ok=True)  # as if killed after the last run
    # Again: nothing is trained or measured; what was not concluded is.
    perform(experiment, workplace(sets, tmp_path, pretrain=None), [0])
    assert conclusion.is_file() == concluded
    after = contents(tmp_path)
    again, same = perform(experiment, workplace(sets, tmp_path, pretrain=None), [0])
    assert [run.state for run in again] == ["finished"] * len(planned)
    assert experiment.table(same) == table
    assert contents(tmp_path) == after


def test_a_set_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no coco128; give a folder"):
        command.main(["detectors", "--data", str(tmp_path), "--out", str(tmp_path)])


@pytest.mark.slow
def test_ways_from_weights_are_tested_at_the_best_rate(sets: Path, tmp_path: Path) -> None:
    few = {"shots": [5], "repeats": 2, "penalties": [0.01], "episodes": 0}
    quick = {"linear": QUICK_PROBE, "knn": {"resamples": 20}, "fewshot": few}
    settings = EvaluationSettings(protocols=quick)
    chosen = ("frozen", "statistics", "mast")
    ways = {name: WAYS[name]._replace(weights=False, rates=WAYS[name].rates[:2]) for name in chosen}
    ways["larger"] = WAYS["frozen_224"]._replace(weights=False, size=48)
    experiment = Beyond({"photos": 1}, ways, 32, asdict(ENCODER), settings=settings)
    runs, results = perform(experiment, workplace(sets, tmp_path), [0, 1])
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
    again, same = perform(experiment, workplace(sets, tmp_path, None), [0, 1])
    assert {run.state for run in again} == {"finished"}
    assert same == results


# ------------------------------------------------------------------------------ what they share


def test_seeds_and_images_of_a_difference() -> None:
    """Two seeds of a hundred images: most are right in one or both where the other's are not."""

    def result(seed: int, right_N: Sequence[float]) -> dict[str, Any]:
        credit_N = torch.tensor(right_N)
        score = 100 * float(credit_N.mean())
        return {"seed": seed, "scores": {"a": score}, "each": {"a": pack(credit_N)}}

    ours = [result(seed, ([0.0] + [1.0] * 9) * 10) for seed in (0, 1, 2)]
    theirs = [result(0, [0.0] * 100), result(1, ([0.0] + [0.0, 1.0, 1.0] * 3) * 10)]
    found = difference(ours, theirs, "a")
    assert (found.mean, found.spread) == pytest.approx((60.0, 30 * 2**0.5))  # 90 and 30
    # The mean gains of images are 0, 1, 0.5, 0.5, ...
    gains_N = np.array([0.0] + [1.0, 0.5, 0.5] * 3)
    error = 100 * gains_N.std() / 100**0.5
    assert found.low == pytest.approx(60 - 1.96 * error, abs=0.6)
    assert found.high == pytest.approx(60 + 1.96 * error, abs=0.6)
    one = difference(ours[:1], theirs[:1], "a")  # a single seed: images are right or wrong
    assert (one.low, one.high) == pytest.approx([100 * end for end in tango(90, 0, 100)])
    assert str(difference(ours[:1], [{"seed": 0, "scores": {"a": 80.0}}], "a")) == "+10.0"
    with pytest.raises(ValueError, match="no seed has both"):
        difference(ours, [], "a")
    with pytest.raises(ValueError, match="tested on 1 and 100 images"):
        difference(ours, [result(0, [1.0])], "a")
    with pytest.raises(ValueError, match="credits are in"):
        pack(torch.tensor([0.0, float("nan")]))
    credit_N = torch.randint(0, 201, (500,)) / 200
    torch.testing.assert_close(unpack(pack(credit_N)), credit_N.double(), rtol=0, atol=1e-7)
    assert [cell([1.0, None]), cell([None]), cell([1.0, 3.0])] == ["1.0", "", "2.0 ± 1.4"]


def test_a_lead_of_the_mean_of_groups() -> None:
    """Tasks of one set share its images; sets are independent, and so are seeds."""
    groups = {"objects": ("a/class/linear",), "others": ("a/colour/linear", "b/class/linear")}
    tasks = Tasks(groups=groups)
    images = {"a/class/linear": 40, "a/colour/linear": 40, "b/class/linear": 25}
    right = {key: np.random.default_rng(0).integers(0, 2, (2, 3, n)) for key, n in images.items()}
    ours, theirs = (
        [
            {
                "seed": seed,
                "scores": {key: 100 * each[method, seed].mean() for key, each in right.items()},
                "each": {key: pack(torch.from_numpy(each[method, seed]))
                         for key, each in right.items()},
            }
            for seed in range(3)
        ]
        for method in range(2)
    )  # fmt: skip
    first_SN, second_SN, of_b_SN = (each[0] - each[1] for each in right.values())
    of_a_SN, of_b_SN = first_SN / 2 + second_SN / 4, of_b_SN / 4
    gain_S = 100 * (of_a_SN.mean(axis=1) + of_b_SN.mean(axis=1))
    low, high = ttest_1samp(gain_S, 0).confidence_interval(0.95)
    errors = (sem(part_SN.mean(axis=0)) for part_SN in (of_a_SN, of_b_SN))
    mean, margin = gain_S.mean(), 196 * math.hypot(*errors)
    over_seeds = f"{mean:+.2f} (seeds {low:+.2f} to {high:+.2f})"
    over_images = f"[{mean - margin:+.2f}, {mean + margin:+.2f}]"
    assert tasks.lead(ours, theirs) == f"{over_seeds} {over_images}"
    del theirs[0]["each"]["b/class/linear"]  # of folds: its images are not known
    assert tasks.lead(ours, theirs) == over_seeds


def test_sets_that_are_made_of_others(sets: Path, tmp_path: Path) -> None:
    images = open_canvas(str(sets / "cifar10" / "train"), 32)
    parts = [drawn_positions(len(images), 20, part) for part in range(3)]
    assert sorted(np.concatenate(parts)) == list(range(60))
    for flat in (True, False):
        target = tmp_path / str(flat)
        link(images, sets / "cifar10" / "train", parts[0], target, flat)
        linked = open_canvas(str(target), 32)
        assert len(linked) == 20
        assert bool(linked.targets) != flat
    train, test = with_colors((images, images.subset(parts[0])))
    assert train.targets.keys() == test.targets.keys() == {"class", "colour"}
    assert len(train.classes["colour"]) == 8
    # The color of an image's class is above the median in one channel alone, or so.
    assert np.array_equal(train.targets["colour"][parts[0]], test.targets["colour"])
    tested = [name for data in folds(images, 32) for name in data.test.identifiers]
    assert sorted(tested) == sorted(images.identifiers)


def test_a_run_that_is_needed_stops_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    def work(run: StudyRun) -> None:
        if run.name != "good":
            raise UserError(f"{run.name} failed")

    def finished(run: StudyRun) -> str:
        return "finished"

    runs = [StudyRun("bad", {}), StudyRun("good", {})]
    states = [run.state for run in carry_out(runs, work, finished, RunShard(0, 1))]
    assert states == ["bad failed", "finished"]
    assert "bad: bad failed" in capsys.readouterr().err
    with pytest.raises(UserError, match="base failed"):
        carry_out([StudyRun("base", {}, needed=True), *runs], work, finished, RunShard(0, 1))
    shared = [run.state for run in carry_out(runs, work, finished, RunShard.parse("1/2"))]
    assert shared == ["to do", "finished"]
