"""Every study on runs whose scores are made up: its plan, its arrays, and what is missing."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from subjects import conforms

from mast.analyses import Subject
from mast.augment.presets import MAST5
from paper.analyses.scores import Score
from paper.studies import STUDIES, Study
from paper.studies.epochs import Epochs
from paper.studies.leave_one_out import LeaveOneOut
from paper.studies.study import Trial

RUN = Subject("run", method="mast", trained_with=MAST5, operators=MAST5, epochs=100)


def scores(top1: float) -> tuple[Score, ...]:
    """Of a task, beside another measure that no study looks at."""
    both = {"top1": top1, "top5": 99.0}
    return tuple(Score("linear", "birds-test", "task0", *each) for each in both.items())


def trained(
    study: Study, score: Callable[[str, int], float], seeds: int = 1, subject: Subject = RUN
) -> Study:
    """The study with every run of its plan, measured as `score` says."""
    trials = [
        Trial(name, seed, scores(score(name, seed)), subject.epochs)
        for seed in range(seeds)
        for name in study.plan(subject)
    ]
    return replace(study, trials=tuple(trials))


# -------------------------------------------------------------------------------- conformance


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("case", ["whole", "partial", "not finite"])
def test_conformance(name: str, case: str, tmp_path: Path) -> None:
    study = trained(STUDIES[name].kind(), lambda trial, seed: 40.0 + seed + len(trial) % 5, seeds=2)
    if case == "partial":
        study = replace(study, trials=study.trials[:2])
    if case == "not finite":
        lost = [replace(trial, scores=scores(math.nan)) for trial in study.trials]
        study = replace(study, trials=tuple(lost))
    conforms(study, RUN, tmp_path)
    arrays = study.compute(RUN)
    assert (arrays["finished"] < arrays["planned"]) == (case == "partial")
    assert ("runs are finished" in study.caption(arrays)) == (case == "partial")
    assert "nan" not in study.caption(arrays)
    assert study.caption(arrays).startswith(study.headline(arrays))  # with which the page opens
    if case == "whole":
        assert "task0" in study.headline(arrays)
        one = replace(study, trials=tuple(t for t in study.trials if t.seed == 0))
        assert "With one seed, a difference may be chance." in study.headline(one.compute(RUN))


@pytest.mark.parametrize("name", STUDIES)
def test_what_was_not_run_is_said(name: str) -> None:
    study = STUDIES[name].kind()
    done = trained(study, lambda *_: 50.0).trials
    for some in ((), done[:1], done[1:]):  # the base alone, and nothing to compare to
        lacking = str(replace(study, trials=some).lacking(RUN))
        assert f"python -m paper study {name} RUN" in lacking
    unmeasured = tuple(replace(trial, scores=()) for trial in done)
    assert "no top-1" in str(replace(study, trials=unmeasured).lacking(RUN))


# -------------------------------------------------------------------------------------- plans


def test_plan_of_leave_one_out() -> None:
    plan = LeaveOneOut().plan(RUN)
    assert list(plan) == ["base", *(f"without-{name}" for name in MAST5)]
    assert plan["base"] == {}
    assert plan["without-color_jitter"] == {
        "operators": ["random_resized_crop", "horizontal_flip", "grayscale", "gaussian_blur"]
    }
    one = replace(RUN, trained_with=MAST5[:1])
    assert "one operator: without it" in str(LeaveOneOut().lacking(one))


@pytest.mark.parametrize(("epochs", "budgets"), [(100, [25, 50, 100, 200]), (1, [1, 2])])
def test_plan_of_epochs(epochs: int, budgets: list[int]) -> None:
    plan = Epochs().plan(replace(RUN, epochs=epochs))
    ours = [{} if at == epochs else {"epochs": at} for at in budgets]
    assert [plan[name] for name in plan if not name.startswith("vicreg")] == sorted(ours, key=len)
    theirs = [changes for name, changes in plan.items() if name.startswith("vicreg")]
    assert theirs == [{"method": "vicreg", "epochs": at} for at in budgets]
    alone = Epochs().plan(replace(RUN, method="vicreg", epochs=epochs))
    assert list(alone.values()) == sorted(ours, key=len)


# ------------------------------------------------------------------------------------- arrays


def test_change_without_an_operator() -> None:
    def score(name: str, seed: int) -> float:
        change = {"without-color_jitter": -3.0 - seed / 10, "without-grayscale": 2.0 + seed / 10}
        return 50.0 + seed + change.get(name, 0.0)

    study = LeaveOneOut()
    arrays = trained(study, score, seeds=3).compute(RUN)
    assert arrays["tasks"].tolist() == ["task0"]
    assert arrays["base"] == pytest.approx([51.0])
    assert arrays["change_by_seed"].shape == (3, 1, 5)
    assert arrays["change"][0] == pytest.approx([0.0, 0.0, -3.1, 2.1, 0.0])
    # Student's t of two degrees of freedom, 4.303, times 0.1 / sqrt(3).
    assert arrays["change_high"][0, 2] - arrays["change"][0, 2] == pytest.approx(0.2484, abs=1e-4)
    text = study.caption(arrays)
    assert "needs color jitter (-3.1 ± 0.2) and does better without grayscale (+2.1 ± 0.2)" in text
    assert "chance alone exceeds 0.1 of 2 of them" in text  # the others did not vary
    one = trained(study, score).compute(RUN)
    assert np.isnan(one["change_low"]).all()
    assert "needs color jitter (-3.0)" in study.caption(one)


def test_epochs_beside_vicreg() -> None:
    def score(name: str, seed: int) -> float:
        return 40.0 + 5 * name.startswith("vicreg") * (name.endswith("-25")) + (name == "base")

    study = Epochs()
    arrays = trained(study, score).compute(RUN)
    assert arrays["methods"].tolist() == ["mast", "vicreg"]
    assert arrays["accuracy"][:, 0, 0].tolist() == [[40, 40, 41, 40], [45, 40, 40, 40]]
    assert "mast minus vicreg +0.0 points after 200 epochs, ahead at 1 of 4 lengths" in (
        study.caption(arrays)
    )
    # Cheaper runs: the budgets are those of the base that was trained.
    cheap = trained(study, score, subject=replace(RUN, epochs=8))
    assert cheap.compute(RUN)["epochs"].tolist() == [2, 4, 8, 16]
