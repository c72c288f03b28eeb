"""The paper's tables, and the table of most methods at one small budget, as experiments."""

import csv
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tiny import ENCODER

import mast
from experiments.small import ROWS, Small
from mast.analyses import Grid
from mast.augment.presets import MAST15
from mast.cli import main
from mast.core.errors import DivergedError
from mast.core.run import flatten, plain
from mast.evaluation.protocols import EVALUATORS
from mast.evaluation.protocols.run import EvaluationSettings
from paper.__main__ import PROGRAM
from paper.experiment import Workplace
from paper.reproduce import Reproduced, reproduce, reproduced
from paper.studies.engine import ALL, FINISHED, WAITING
from paper.tables import SCALES, TABLES, TableExperiment, experiment, paper
from paper.tables.paper import SETS, Scale
from paper.tables.printed import as_csv, as_latex, as_markdown

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("baselines")]

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
QUICK = {"penalties": [0.01], "resamples": 20}
SETTINGS = {
    "linear": QUICK,
    "rotation": QUICK,
    "robust": {**QUICK, "operators": ["grayscale"], "magnitudes": [1.0]},
    "knn": {"resamples": 20},
}
SMALLER = {"size": 32, "batch_size": 8, "encoder": asdict(ENCODER)}


def place(sets: Path, out: Path, pretrain: Any = mast.pretrain) -> Workplace:
    return Workplace(sets, out, pretrain, mast.evaluate, "cpu")


# ------------------------------------------------------------------------------ what tables are


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_whole(name: str) -> None:
    table = TABLES[name]
    titles = [column.title for column in table.columns]
    assert len(set(titles)) == len(titles)  # scores go by them
    assert table.rows[table.baseline].recipe
    for row in table.rows.values():
        assert len(row.published) == len(table.columns)
        assert row.recipe or row.note  # what cannot be trained says why
        assert row.recipe or any(number is not None for number in row.published)
    for column in table.columns:
        assert {column.test, column.train} <= SETS.keys()
        assert column.protocol in EVALUATORS
        assert SETS[column.train].images


def test_tables_share_runs_and_no_two_runs_share_a_folder(tmp_path: Path) -> None:
    folders: dict[str, Any] = {}
    for name in TABLES:
        for scale in SCALES:
            runs = experiment(name, scale).plan(place(tmp_path, tmp_path), [0])
            names = [run.name for run in runs]
            assert len(set(names)) == len(names)
            for run in runs:
                assert folders.setdefault(str(run.folder.path), run.config) == run.config, run.name
                assert run.config.batch_size <= SETS[run.changes["on"]].images
    # What is trained alike is trained once.
    alike: dict[str, str] = {}
    for folder, config in folders.items():
        fields = flatten(plain(config))
        same = json.dumps([value for name, value in fields.items() if name != "out"], default=str)
        assert alike.setdefault(same, folder) == folder
    (mast5,) = {
        str(run.folder.path)
        for table in ("table1", "table2", "table5", "table8", "figure4b")
        for run in experiment(table, "paper").plan(place(tmp_path, tmp_path), [0])
        if run.name in ("imagenet-mast5-0", "imagenet-mast5-1000-0", "imagenet-operators-5-0")
    }
    assert mast5.endswith("-1000-epochs-0")


def test_the_paper_s_scale_is_what_the_paper_says(tmp_path: Path) -> None:
    def config(table: str, run: str, **options: Any) -> Any:
        runs = experiment(table, "paper", **options).plan(place(tmp_path, tmp_path), [0])
        return next(each.config for each in runs if each.name == run)

    mast5 = config("table1", "imagenet-mast5-0")
    assert (mast5.epochs, mast5.batch_size, mast5.optimizer.name) == (1000, 2048, "lars")
    assert mast5.encoder.name == "resnet50"
    assert config("table6", "flowers17-simsiam-0").encoder.name == "resnet18"
    assert config("table6", "cars-vi_simsiam-0").epochs == 100
    assert config("table6", "cars-vi_simsiam-0", epochs=20).epochs == 20
    assert config("table8", "imagenet-vicreg5-200-0").epochs == 200
    assert config("table8", "imagenet-vicreg5-200-0", epochs=100).epochs == 20
    assert config("table3", "imagenet100-ifm-0").epochs == 200
    assert config("table1", "imagenet-supervised-0").objective.classes == 1000
    for count in range(5, 16):
        grown = config("figure4b", f"imagenet-operators-{count}-0")
        assert (grown.operators or grown.preset.operators) == MAST15[:count]
    base = config("figure8", "imagenet-base-0").objective
    for name, by in (("masked_weight", 2.0), ("sparsity_weight", 0.25)):
        scaled = config("figure8", f"imagenet-{name}-{by:g}-0").objective
        assert scaled == replace(base, **{name: by * base.weight(name)})


# ---------------------------------------------------------------------------------- end to end


def test_a_table_is_trained_measured_and_printed(
    sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TABLES["table6"]
    rows = {
        name: table.rows[name]._replace(published=table.rows[name].published[::2])
        for name in ("untrained", "vicreg5", "mast5")
    }
    rows["theirs"] = rows["mast5"]._replace(title="theirs", recipe="", note="Not here.")
    top1 = table.columns[::2]  # the sets have three classes
    table = replace(table, rows=rows, columns=top1)
    monkeypatch.setitem(TABLES, "table6", table)  # type: ignore[index]
    scale = Scale("_small", SMALLER, 1, {"cars": ""}, settings={"linear": QUICK})
    monkeypatch.setitem(paper.SCALES, "small", scale)
    command = ["reproduce", "table6", "--data", str(sets), "--out", str(tmp_path), "--device",
               "cpu"]  # fmt: skip
    planned = reproduce("table6", sets, tmp_path, device="cpu", dry=True, gpu="H200")
    assert not list(tmp_path.iterdir())
    (left,) = planned.grids.values()
    assert [row[0] for row in left.rows] == [
        *(f"{title}, on Flowers-17" for title in ("VICReg", "MAST-5")),
        "resized images", "all",
    ]  # fmt: skip

    done = reproduce("table6", sets, tmp_path, device="cpu", seeds=(0, 1))
    assert {run.state for run in done.runs} == {FINISHED}
    assert len(done.runs) == 6
    scores = done.grids["results"]
    assert scores.columns == (
        "method", "seeds", "Flowers-17 top-1", "paper: Flowers-17 top-1",
    )  # fmt: skip
    by_title = {row[0]: row for row in scores.rows}
    assert by_title["MAST-5"][1] == "2"
    assert by_title["MAST-5"][3] == "28.9"
    assert "±" in str(by_title["MAST-5"][2])
    assert by_title["theirs"][1:] == ("", "", "28.9")
    ahead = done.grids["ahead of VICReg, in points"]
    assert [row[0] for row in ahead.rows] == ["untrained", "MAST-5"]
    assert all("[" in str(cell) for row in ahead.rows for cell in row[1:])  # paired intervals
    budgets = [(row[2], row[5], row[-1]) for row in done.grids["budgets"].rows]
    # 36 images by 8, an epoch; trials
    assert budgets == [("", 0, 0), ("mast5", "32", 1), ("mast5", "32", 1)]
    assert any("197" in note for note in done.notes)
    assert "theirs: Not here." in done.notes
    assert "Left out at the small scale: Cars top-1." in done.notes
    markdown, table_csv, latex = done.files
    assert as_markdown(scores) in markdown.read_text()
    assert list(csv.reader(table_csv.read_text().splitlines()))[1][0] == "untrained"
    assert r"\toprule" in latex.read_text()

    # Again: nothing is trained or measured.
    monkeypatch.setattr("paper.reproduce.pretrain", None)
    again = reproduce("table6", sets, tmp_path, device="cpu", seeds=(0, 1))
    assert again == done
    # Of one seed alone, what is written has all that was measured.
    assert reproduce("table6", sets, tmp_path, device="cpu", only="*mast5-0").grids == done.grids
    nothing = reproduce("table6", sets, tmp_path, device="cpu", dry=True, gpu="H200")
    assert not next(iter(nothing.grids.values())).rows
    assert main([*command, "--seeds", "0", "--only", "flowers17-mast5-*"], PROGRAM) == 0
    # What was measured of another configuration is to do again.
    monkeypatch.setitem(paper.SCALES, "small", replace(scale, epochs=2))
    other = reproduce("table6", sets, tmp_path, device="cpu", dry=True, gpu="H200")
    assert {run.state for run in other.runs} == {"to do"}
    assert experiment("table6").everything(place(sets, tmp_path)) == {}


def test_a_set_that_is_missing_is_named_before_a_training(tmp_path: Path) -> None:
    (tmp_path / "imagenet100").mkdir()
    done = reproduce("table4", tmp_path, tmp_path / "out", "paper", only="*-mast5-0")
    (problem,) = done.problems
    assert re.search(r"has no folder (cub200|flowers102), the set", problem)
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------- the table of most methods


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
        "experiments.small.Tasks.score",
        lambda tasks, result: {0.005: 70.0, 0.0017: 60.0}.get(round(result["rate"] or 0, 4), 50.0),
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
    ahead = done.grids["ahead of VICReg, in points"]
    assert [row[0] for row in ahead.rows] == ["SimSiam", "untrained"]
    assert done.grids["results"].rows[0][:2] == ("SimSiam", "1")
    again = reproduced(small, workplace, [1], (), ALL, False, None)
    assert again == done
    # A test at a rate that is no longer the best is done again.
    monkeypatch.setattr(
        "experiments.small.Tasks.score", lambda tasks, result: -(result["rate"] or 0)
    )
    states = planned(small, sets, tmp_path)
    assert (states["test/simsiam-1"], states["test/vicreg-1"]) == ("to do", FINISHED)


@pytest.mark.parametrize("table", [Small(), experiment("table6", "paper", 100)])
def test_results_that_are_kept_are_of_today_s_recipes(table: TableExperiment) -> None:
    """Otherwise they would be measured again, and the document be of old ones."""
    runs = [run for run in table.plan(place(RESULTS, RESULTS), (0, 1, 2)) if not run.waits]
    kept = table.measured(runs, RESULTS)
    assert kept
    assert all(
        kept[run.name]["fingerprint"] == table.fingerprint(run) for run in runs if run.name in kept
    )


# -------------------------------------------------------------------------------------- files


def test_cells_are_escaped() -> None:
    grid = Grid(("a|b", "50 %"), (("x_1 & y", 1.5),))
    assert as_markdown(grid).splitlines()[0] == r"| a\|b | 50 % |"
    assert list(csv.reader(as_csv(grid).splitlines())) == [["a|b", "50 %"], ["x_1 & y", "1.5"]]
    latex = as_latex("a title", {"b": grid}, ("c % d",))
    assert r"x\_1 \& y & 1.5 \\" in latex
    assert "% c % d" in latex
    assert r"a|b & 50 \% \\" in latex
