"""Every study on runs whose scores are made up: its plan, its arrays, and what is missing."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import mast
from mast.analyses import Grid, Score, Subject, Trial
from mast.analyses.interval import mean_and_margin
from mast.augment.presets import MAST5, MAST15
from mast.core.errors import UserError
from mast.studies import STUDIES, Study
from mast.studies.engine import vary
from mast.studies.epochs import Epochs
from mast.studies.growth import Growth
from mast.studies.leave_one_out import LeaveOneOut
from mast.studies.sensitivity import Sensitivity

# Three dimensions; the fifth mask shares nothing, the third is everything at once.
MASKS = torch.tensor(
    [[1.0, 1.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 1.0]]
)
COEFFICIENTS = {
    "objective.masked_weight": 10.0,
    "objective.sparsity_weight": -2.0,
    "objective.kl_weight": 0.0,
}
RUN = Subject(
    "run",
    method="mast",
    trained_with=MAST5,
    operators=MAST5,
    mask_DK=MASKS,
    epochs=100,
    coefficients=COEFFICIENTS,
)


def scores(*values: float, protocol: str = "linear") -> tuple[Score, ...]:
    """Top-1 of as many tasks, beside another measure that no study looks at."""
    return (
        *(Score(protocol, "birds-test", f"task{at}", "top1", value)
          for at, value in enumerate(values)),
        Score(protocol, "birds-test", "task0", "top5", 99.0),
    )  # fmt: skip


def trained(
    study: Study, subject: Subject, score: Callable[[str, int], float], seeds: int = 1
) -> Subject:
    """The subject with every run of the study's plan, measured as `score` says."""
    trials = [
        Trial(name, seed, scores(score(name, seed)), subject.epochs)
        for seed in range(seeds)
        for name in study.plan(subject)
    ]
    return replace(subject, trials=tuple(trials))


# -------------------------------------------------------------------------------- conformance


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("case", ["whole", "partial", "not finite"])
def test_conformance(name: str, case: str, tmp_path: Path) -> None:
    study = STUDIES[name].kind()
    assert study.name == name
    subject = trained(study, RUN, lambda trial, seed: 40.0 + seed + len(trial) % 5, seeds=2)
    if case == "partial":
        subject = replace(subject, trials=subject.trials[:2])
    if case == "not finite":
        lost = [replace(trial, scores=scores(math.nan)) for trial in subject.trials]
        subject = replace(subject, trials=tuple(lost))
    assert study.lacking(subject) is None
    arrays = study.compute(subject)
    assert (arrays["finished"] < arrays["planned"]) == (case == "partial")
    assert study.caption(arrays).endswith(".")
    assert ("runs are finished" in study.caption(arrays)) == (case == "partial")
    assert "nan" not in study.caption(arrays)
    # The page opens with what was found, and with how sure that is.
    assert study.headline(arrays).startswith(study.finding(arrays))
    assert study.caption(arrays).startswith(study.headline(arrays))
    if case == "whole":
        assert "task0" in study.headline(arrays)
        one = replace(subject, trials=tuple(t for t in subject.trials if t.seed == 0))
        assert "With one seed, a difference may be chance." in study.headline(study.compute(one))
    assert all(key in str(study.__doc__) for key in arrays)
    grid = study.details(arrays).grid
    assert isinstance(grid, Grid)
    assert all(len(row) == len(grid.columns) for row in grid.rows)
    # What is kept on disk draws the same figure.
    np.savez(tmp_path / "arrays.npz", **arrays)  # type: ignore[arg-type]
    with np.load(tmp_path / "arrays.npz") as kept:
        study.draw(dict(kept)).savefig(tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text()


@pytest.mark.parametrize("name", STUDIES)
def test_what_was_not_run_is_said(name: str) -> None:
    study = STUDIES[name].kind()
    command = f"Not run yet: mast study {name} RUN --data SET."
    assert study.lacking(RUN) == command
    done = trained(study, RUN, lambda *_: 50.0)
    assert study.lacking(replace(RUN, trials=done.trials[:1])) == command  # the base alone
    assert study.lacking(replace(RUN, trials=done.trials[1:])) == command  # nothing to compare to
    unmeasured = [replace(trial, scores=()) for trial in done.trials]
    assert "no top-1" in str(study.lacking(replace(RUN, trials=tuple(unmeasured))))
    other = replace(done.trials[1], name="of-another-study")
    assert study.lacking(replace(RUN, trials=(done.trials[0], other))) == command


@pytest.mark.parametrize(
    ("name", "subject", "message"),
    [
        ("leave_one_out", replace(RUN, trained_with=MAST5[:1]), "one operator: without it"),
        ("growth", Subject("run", "vicreg", MAST5), "its method learns none. Growth adds"),
        ("growth", replace(RUN, mask_DK=MASKS * math.nan), "diverged"),
        ("growth", replace(RUN, mask_DK=MASKS * torch.arange(5)), "crop is all zero"),
        ("growth", replace(RUN, operators=MAST5[:1], mask_DK=MASKS[:, :1]), "nothing to add"),
        ("sensitivity", Subject("run", "vicreg", MAST5), "its method's loss has none"),
        ("sensitivity", replace(RUN, coefficients=dict.fromkeys(COEFFICIENTS, 0.0)), "all 0"),
    ],
)
def test_runs_that_cannot_be_varied(name: str, subject: Subject, message: str) -> None:
    study = STUDIES[name].kind()
    assert message in str(study.lacking(subject))
    with pytest.raises(UserError, match=r"This run|masks?|all 0"):
        study.plan(subject)


# -------------------------------------------------------------------------------------- plans


def test_plan_of_leave_one_out() -> None:
    plan = LeaveOneOut().plan(RUN)
    assert list(plan) == ["base", *(f"without-{name}" for name in MAST5)]
    assert plan["base"] == {}
    assert plan["without-color_jitter"] == {
        "operators": ["random_resized_crop", "horizontal_flip", "grayscale", "gaussian_blur"]
    }
    vicreg = Subject("run", "vicreg", MAST5)
    assert LeaveOneOut().plan(vicreg) == plan


def test_a_trial_whose_views_teach_nothing_is_refused_when_it_is_planned(tmp_path: Path) -> None:
    config = mast.configure("looc_small", data="nowhere")
    plan = {"without-flip": {"operators": [n for n in config.preset.operators if "flip" not in n]}}
    with pytest.raises(UserError, match="needs views that share the operators which destroy"):
        vary(config, plan, [0], tmp_path)


def test_plan_of_growth_by_correlation() -> None:
    # Sums of cosines with the others: 2.28, 2.23, 2.55, 2.28 and 0.58.
    plan = Growth().plan(RUN)
    assert list(plan) == [
        "base",
        "grow-1-gaussian_blur",
        "grow-2-horizontal_flip",
        "grow-3-random_resized_crop",
        "grow-4-grayscale",
    ]
    assert plan["grow-2-horizontal_flip"] == {"operators": ["gaussian_blur", "horizontal_flip"]}


def test_growth_starts_with_the_five_of_mast() -> None:
    mask_DK = torch.eye(15)
    mask_DK[:, 5] = 1.0  # shear x is like all others
    mask_DK[6, 7] = 1.0  # translate x is like shear y
    subject = replace(RUN, trained_with=MAST15, operators=MAST15, mask_DK=mask_DK)
    plan = Growth().plan(subject)
    assert list(plan)[1] == "grow-5-gaussian_blur"
    assert plan["grow-5-gaussian_blur"] == {"operators": list(MAST5)}
    assert len(plan) == 11
    arrays = Growth().compute(trained(Growth(), subject, lambda *_: 50.0))
    assert arrays["operators"][-1] == "shear_x"
    assert arrays["operators"][:5].tolist() == list(MAST5)
    assert arrays["counts"].tolist() == list(range(5, 16))
    assert np.all(np.diff(arrays["mean_cosine"][5:]) >= 0)


def test_plan_of_sensitivity() -> None:
    plan = Sensitivity().plan(RUN)
    assert list(plan)[:3] == ["base", "masked_weight-x0.25", "masked_weight-x0.5"]
    assert plan["masked_weight-x0.25"] == {"objective.masked_weight": 2.5}
    assert plan["sparsity_weight-x4"] == {"objective.sparsity_weight": -8.0}
    assert len(plan) == 9  # kl_weight is 0


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
    arrays = study.compute(trained(study, RUN, score, seeds=3))
    assert arrays["tasks"].tolist() == ["task0"]
    assert arrays["base"] == pytest.approx([51.0])
    assert arrays["change_by_seed"].shape == (3, 1, 5)
    assert arrays["change"][0] == pytest.approx([0.0, 0.0, -3.1, 2.1, 0.0])
    # Student's t of two degrees of freedom, 4.303, times 0.1 / sqrt(3).
    assert arrays["change_high"][0, 2] - arrays["change"][0, 2] == pytest.approx(0.2484, abs=1e-4)
    text = study.caption(arrays)
    assert "needs color jitter (-3.1 ± 0.2) and does better without grayscale (+2.1 ± 0.2)" in text
    assert "of 5 comparisons chance alone brings 0.2 there" in text
    one = study.compute(trained(study, RUN, score))
    assert np.isnan(one["change_low"]).all()
    assert "With one seed" in study.caption(one)
    assert "needs color jitter (-3.0)" in study.caption(one)


def test_what_matters_most_is_chosen_among_what_matters() -> None:
    changes = {  # jitter is the worse but only grayscale is beyond its interval
        "without-color_jitter": (-12.0, 2.0, -5.0),
        "without-grayscale": (-3.1, -2.9, -3.0),
        "without-horizontal_flip": (7.9, 8.0, 8.1),
    }
    study = LeaveOneOut()
    whole = trained(study, RUN, lambda name, seed: 50.0 + changes.get(name, (0,) * 3)[seed], 3)
    text = study.caption(study.compute(whole))
    assert "task0 needs grayscale (-3.0 ± 0.2) and does better without horizontal flip" in text
    # A run that is not finished hides nothing.
    kept = [trial for trial in whole.trials if trial.name != "without-gaussian_blur"]
    arrays = study.compute(replace(whole, trials=tuple(kept)))
    assert "does better without horizontal flip (+8.0 ± 0.2)" in study.caption(arrays)


def test_what_is_within_the_interval_of_seeds_is_no_need() -> None:
    study = LeaveOneOut()
    arrays = study.compute(
        trained(study, RUN, lambda name, seed: 50.0 + (-1) ** seed * (name != "base"), seeds=2)
    )
    assert study.caption(arrays).startswith("task0 shows no need of any one of them: ")


def test_tasks_of_several_protocols_stay_apart() -> None:
    study = LeaveOneOut()
    both = scores(50.0, 60.0) + scores(40.0, protocol="knn")
    trials = tuple(Trial(name, 0, both) for name in study.plan(RUN))
    arrays = study.compute(replace(RUN, trials=trials))
    assert arrays["tasks"].tolist() == [
        "task0 (linear)",
        "task1 (linear)",
        "task0 (knn)",
    ]
    assert arrays["base"] == pytest.approx([50.0, 60.0, 40.0])


def test_a_seed_that_lost_a_run_counts_where_it_can() -> None:
    study = LeaveOneOut()
    whole = trained(study, RUN, lambda name, seed: 50.0 - (name != "base") * seed, seeds=3)
    kept = [trial for trial in whole.trials if (trial.name, trial.seed) != ("base", 2)]
    arrays = study.compute(replace(whole, trials=tuple(kept)))
    assert arrays["change"][0] == pytest.approx(np.full(5, -0.5))
    assert (arrays["finished"], arrays["planned"]) == (17, 18)
    assert "17 of 18 runs are finished." in study.caption(arrays)


def test_the_base_of_a_seed_that_another_study_has_does_not_count() -> None:
    study = Growth()
    whole = trained(study, RUN, lambda name, seed: 50.0, seeds=2)
    with_base = replace(whole, trials=(*whole.trials, Trial("base", 2, scores(50.0), 100)))
    arrays = study.compute(with_base)
    assert arrays["seeds"].tolist() == [0, 1]
    assert arrays["finished"] == arrays["planned"] == 10


def test_accuracy_grows() -> None:
    study = Growth()
    grown = trained(study, RUN, lambda name, _: 60.0 if name == "base" else 50.0 + int(name[5]))
    arrays = study.compute(grown)
    assert arrays["accuracy"][0, 0] == pytest.approx([51.0, 52.0, 53.0, 54.0, 60.0])
    assert "from 51.0 % with 1 to 60.0 % with 5, best at “5: + color jitter”" in study.caption(
        arrays
    )


def test_sensitivity_to_multiples() -> None:
    def score(name: str, seed: int) -> float:
        return 50.0 + {"masked_weight-x4": -6.0, "masked_weight-x0.5": -1.0}.get(name, 0.0)

    study = Sensitivity()
    arrays = study.compute(trained(study, RUN, score))
    assert arrays["accuracy"].shape == (1, 1, 2, 5)
    assert arrays["accuracy"][0, 0, 0] == pytest.approx([50, 49, 50, 50, 44])
    assert arrays["values"].tolist() == [10.0, -2.0]
    assert arrays["left_out"].tolist() == ["kl_weight"]
    text = study.caption(arrays)
    assert "task0 λ by -1.0 points (-6.0 points from ×0.25 to ×4), λ₁ by nothing" in text
    grid = study.details(study.compute(trained(study, RUN, score, seeds=2))).grid
    assert grid is not None
    assert grid.rows[4] == ("task0", "λ, masked_weight", "×4", 40.0, 44.0, 0.0, -6.0, 0.0)
    assert "Left out, as it is 0 here and has no multiple: λ₂." in text


def test_epochs_beside_vicreg() -> None:
    def score(name: str, seed: int) -> float:
        return 40.0 + 5 * name.startswith("vicreg") * (name.endswith("-25")) + (name == "base")

    study = Epochs()
    arrays = study.compute(trained(study, RUN, score))
    assert arrays["methods"].tolist() == ["mast", "vicreg"]
    assert arrays["accuracy"][:, 0, 0].tolist() == [[40, 40, 41, 40], [45, 40, 40, 40]]
    assert "mast 0.0 points ahead of vicreg after 200 epochs and ahead at 1 of 4 lengths" in (
        study.caption(arrays)
    )
    behind = study.compute(trained(study, RUN, lambda n, s: 40.0 + n.startswith("vicreg") + s, 2))
    assert (
        "mast 1.0 ± 0.0 points behind vicreg after 200 epochs and ahead, beyond the interval, at 0 "
        "of 4 lengths" in study.caption(behind)
    )
    # Cheaper runs: the budgets are those of the base that was trained.
    cheap = trained(study, replace(RUN, epochs=8), score)
    assert study.compute(replace(cheap, epochs=100))["epochs"].tolist() == [2, 4, 8, 16]


def test_mean_and_margin_over_the_seeds_that_are_there() -> None:
    value_SX = np.array([[1.0, 1.0, math.nan], [3.0, math.nan, math.nan]])
    mean_X, margin_X = mean_and_margin(value_SX)
    assert mean_X[:2] == pytest.approx([2.0, 1.0])
    assert margin_X[0] == pytest.approx(12.706, abs=1e-3)  # t of one degree of freedom
    assert np.isnan([mean_X[2], *margin_X[1:]]).all()
