"""The table of most methods at one small budget."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tiny import ENCODER

import mast
from experiments.small import ROWS, TESTED, Small
from mast.commands.reproduce import Reproduced, reproduced
from mast.core.errors import DivergedError, UserError
from mast.protocols.run import EvaluationSettings
from mast.studies.engine import ALL, FINISHED, WAITING, Shard
from mast.studies.experiment import Workplace
from mast.studies.tables import TableExperiment, experiment

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
QUICK = {"penalties": [0.01], "resamples": 20}
SETTINGS = {
    "linear": QUICK,
    "rotation": QUICK,
    "robust": {**QUICK, "operators": ["grayscale"], "magnitudes": [1.0]},
    "knn": {"resamples": 20},
}


def place(sets: Path, out: Path, pretrain: Any = mast.pretrain) -> Workplace:
    return Workplace(sets, out, pretrain, mast.evaluate, "cpu")


def planned(small: Small, sets: Path, out: Path) -> dict[str, str]:
    return ran(reproduced(small, place(sets, out), [1], (), ALL, True, "H200"))


@pytest.fixture
def small() -> Small:
    """The table of most methods with two rows at two rates."""
    rows = {name: ROWS[name]._replace(rates=ROWS[name].rates[:2])
            for name in ("untrained", "vicreg", "simsiam")}  # fmt: skip
    return Small(rows, 24, 1, 8, asdict(ENCODER), EvaluationSettings(protocols=SETTINGS))


def ran(done: Reproduced) -> dict[str, str]:
    return {run.name: run.state for run in done.runs}


def test_rates_are_chosen_on_validation_and_then_tested(
    small: Small, sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = planned(small, sets, tmp_path)
    assert before["test/simsiam-1"] == WAITING
    assert before["test/untrained-1"] == "to do"
    trained: list[str] = []

    def pretrain(config: Any) -> Any:
        trained.append(Path(config.out).name)
        if trained[-1] == "vicreg-0.005-0":
            raise DivergedError("the loss is not finite at step 1")
        return mast.pretrain(config)

    workplace = place(sets, tmp_path, pretrain)
    monkeypatch.setattr(
        "experiments.small.mean_of_tasks",
        lambda result: {0.005: 70.0, 0.0017: 60.0}.get(round(result["rate"] or 0, 4), 50.0),
    )
    done = reproduced(small, workplace, [1], (), ALL, False, None)
    assert ran(done).keys() == before.keys()
    assert {run.state for run in done.runs} == {FINISHED}
    # Of one the better rate, of the other that which did not diverge, which is not tried again.
    assert trained.count("vicreg-0.005-0") == 1
    assert "simsiam-0.005-1" in trained
    assert "vicreg-0.0017-1" in trained
    rates = {row[0]: row[1:] for row in done.grids[
        "rates, by the mean of four tasks on validation images"].rows}  # fmt: skip
    assert rates["SimSiam"] == ("60.0", "70.0", "0.005 (at the edge)")
    assert rates["VICReg"] == ("60.0", "diverged", "0.0017 (at the edge)")
    result = json.loads((tmp_path / "small" / "test" / "simsiam-1.json").read_text())
    assert result["images_seen"] == 24
    assert result["flops"] > 0
    assert {"cifar10/class/robust/changed", "cifar10/rotation/rotation"} <= result["scores"].keys()
    assert [row[0] for row in done.grids["ahead of VICReg, in points"].rows] == [
        "SimSiam", "untrained",
    ]  # fmt: skip
    again = reproduced(small, workplace, [1], (), ALL, False, None)
    assert again == done
    # A test at a rate that is no longer the best is done again.
    monkeypatch.setattr("experiments.small.mean_of_tasks", lambda result: -(result["rate"] or 0))
    states = planned(small, sets, tmp_path)
    assert (states["test/simsiam-1"], states["test/vicreg-1"]) == ("to do", FINISHED)


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"seed": 0, "sha256": "0"}', "[" * 9999])
def test_a_result_that_is_none_is_named(
    small: Small, sets: Path, tmp_path: Path, text: str
) -> None:
    (run, *_) = small.plan(place(sets, tmp_path), (0,))
    file = small.file(run, tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(
        UserError, match=rf"{file.name} is not a valid result .*: delete it to have"
    ):
        planned(small, sets, tmp_path)


def test_a_page_of_others_is_not_written_over(small: Small, sets: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small.md").write_text("# my notes\n")
    with pytest.raises(UserError, match=r"small\.md is there and is not what this command writes"):
        planned(small, sets, tmp_path)


def test_a_process_has_all_runs_of_a_row(small: Small, sets: Path, tmp_path: Path) -> None:
    runs = small.plan(place(sets, tmp_path), (0, 1))
    shards = [Shard(first, 2).selects(runs) for first in range(2)]
    assert all(sum(chosen) == 1 for chosen in zip(*shards, strict=True))
    for own in shards:
        rows = {run.changes["row"] for run, is_own in zip(runs, own, strict=True) if is_own}
        others = {run.changes["row"] for run, is_own in zip(runs, own, strict=True) if not is_own}
        assert not rows & others


def test_what_was_measured_names_what_a_table_has(small: Small) -> None:
    def result(row: str, seed: int, rate: float | None, score: float) -> dict[str, Any]:
        budget = {"minutes": 1.0, "images_seen": 24, "flops": 2e12}
        scores = dict.fromkeys(TESTED, score)
        return {"row": row, "seed": seed, "rate": rate, "scores": scores, "each": {}, **budget}

    measured = {
        "test/simsiam-0": result("simsiam", 0, 0.005, 41.0),
        "test/vicreg-0": result("vicreg", 0, 0.005, 40.0),
        "test/vicreg-1": result("vicreg", 1, 0.005, 44.0),
        "validation/simsiam-0.005-0": result("simsiam", 0, 0.005, 30.0),
    }
    grids = small.grids(measured)
    assert [row[:2] for row in grids["results"].rows] == [("VICReg", "2"), ("SimSiam", "1")]
    assert grids["results"].rows[0][-1] == "42.0 ± 2.8"
    (lead,) = grids["ahead of VICReg, in points"].rows
    assert lead[2] == "+1.0"  # of the seed that both have
    assert grids["budgets"].rows[0][:3] == ("VICReg", "24", "2")


@pytest.mark.parametrize("table", [Small(), experiment("table6", "paper", 20)])
def test_results_that_are_kept_are_of_today_s_recipes(table: TableExperiment) -> None:
    """Otherwise they would be measured again, and the document be of old ones."""
    runs = [run for run in table.plan(place(RESULTS, RESULTS), (0, 1, 2)) if not run.waits]
    kept = table.measured(runs, RESULTS)
    assert kept
    assert all(
        kept[run.name]["fingerprint"] == table.fingerprint(run) for run in runs if run.name in kept
    )
