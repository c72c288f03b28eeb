"""The tables that `python -m paper reproduce` has, and what some of them found."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.candidates import CANDIDATES_ON_VALIDATION
from experiments.elsewhere import ELSEWHERE
from experiments.fair import DECIDING, FAIR
from experiments.label_free import Trial, correlations
from experiments.small import ROWS, TESTED, Small, over_seeds
from mast.analyses import Grid
from paper.seeds import difference
from paper.tables import TABLES, experiment
from written.result_files import RESULTS, link_table

Result = dict[str, Any]
SEEDS = 3  # of a row that is finished
TABLE6_EPOCHS = 100
TABLE6_PAIRS = (("vi_simsiam", "simsiam"), ("mast5", "uncertainty"), ("uncertainty", "vicreg5"),
                ("mast5", "vicreg5_staged"), ("vicreg5_staged", "vicreg5"), ("mast15", "mast5"),
                ("default", "vicreg5"),
                ("vicreg5", "untrained"))  # fmt: skip


def tables() -> str:
    """One row a table of the paper."""
    rows = []
    for name, table in TABLES.items():
        trained = [row for row in table.rows.values() if row.recipe and row.trained]
        missing = [row.title for row in table.rows.values() if not row.recipe]
        rows.append(
            (name, table.title, ", ".join(column.title for column in table.columns),
             str(len(trained)), ", ".join(missing))
        )  # fmt: skip
    columns = ("table", "title", "measures", "rows trained here", "rows only published")
    return f"{link_table('paper', Grid(columns, tuple(rows)), 'All tables')}."


def small() -> str:
    """Which method is best at what, and the tables."""
    tested, measured = finished(), results_of(Small.results)
    measured = {name: result for name, result in measured.items() if result["row"] in tested}
    return _links("small", Small().grids(measured) | {"the best by task": winners(tested)})


def candidates() -> str:
    """Objectives on validation images."""
    experiment = CANDIDATES_ON_VALIDATION
    return _links("candidates", experiment.grids(results_of(experiment.results)))


def label_free() -> str:
    """How far numbers that need no labels follow the mean of probes."""
    trials = dict[tuple[str, float, int, float], Trial]()  # `candidates` and `fair` share some
    for table in (Small(), CANDIDATES_ON_VALIDATION, FAIR):
        for name, result in results_of(table.results).items():
            metrics, seed = result.get("last_metrics", {}), result.get("seed", 0)
            if name.startswith("validation/") and "loss" in metrics and result["scores"]:
                numbers = {"loss": metrics["loss"], **result.get("label_free", {})}
                row, rate, score = result["row"], result["rate"], table.tasks.score(result)
                method = f"{row} on {', '.join(table.tasks.columns)}"
                trials[row, rate, seed, score] = Trial(method, rate, seed, numbers, score)
    grid = correlations([*trials.values()])
    by_rate, by_seed = (row[-1] for row in grid.rows[:2])
    (rankme, runs), (lidar, _) = (
        (row[-1], row[2]) for row in grid.rows if row[0] in ("rankme", "lidar")
    )
    link = link_table("label_free", grid)
    return (
        f"Rank correlation of a method's final loss with its probes: {by_rate} over learning "
        f"rates, {by_seed} over seeds. RankMe's is {rankme}, LiDAR's {lidar}, over the {runs} runs "
        f"that have them ({link})."
    )


def fair() -> str:
    """By how much MAST-C leads its controls, and all methods that predict the same."""
    measured = results_of(FAIR.results)
    tested = [result for name, result in measured.items() if name.startswith("test/")]
    ours, *controls = ([each for each in tested if each["row"] == row] for row in DECIDING)
    leads = [
        f"- MAST-C minus {FAIR.rows[key].title}: {FAIR.tasks.lead(ours, control)}"
        for key, control in zip(DECIDING[1:], controls, strict=True)
    ]
    return "\n".join([*leads, "", _links("fair", FAIR.grids(measured))])


def elsewhere() -> str:
    """MAST-C and its controls under other conditions."""
    rows: list[tuple[str, ...]] = []
    leads = []
    for name, table in ELSEWHERE.items():
        measured = results_of(name)
        ours, *controls = (
            table.at_best([each for each in measured.values() if each["row"] == f"{name}_{key}"])
            for key in DECIDING
        )
        grouped = table.grids(measured)["by groups of tasks"]
        rows += ((table.title, *row) for row in grouped.rows)
        leads.append((table.title, *(table.tasks.lead(ours, control) for control in controls)))
    heads = ("condition", *(f"MAST-C minus {FAIR.rows[key].title}" for key in DECIDING[1:]))
    return _links("elsewhere", {
        "by groups of tasks": Grid(("condition", *grouped.columns), tuple(rows)),
        "leads": Grid(heads, tuple(leads)),
    })  # fmt: skip


def table6() -> str:
    """Table 6 on Flowers-17, and what becomes of the paper's conclusions."""
    table = experiment("table6", "paper", TABLE6_EPOCHS)
    measured = results_of(table.results)
    by_row: dict[str, list[Result]] = {}
    for result in measured.values():
        by_row.setdefault(result["row"], []).append(result)
    rows, (column, *_) = TABLES["table6"].rows, TABLES["table6"].columns
    lines = []
    for name, other in TABLE6_PAIRS:
        published, beside = rows[name].published[0], rows[other].published[0]
        paper = "" if published is None or beside is None else f"{published - beside:+.1f}"
        lead = str(difference(by_row[name], by_row[other], column.title))
        lines.append((f"{rows[name].title} minus {rows[other].title}", lead, paper))
    differences = Grid(("difference", "here", "paper"), tuple(lines))
    return _links("table6", table.grids(measured) | {"compared with the paper": differences})


def results_of(results: str) -> dict[str, Result]:
    """All results of a table by name."""
    folder = RESULTS / results
    files = sorted(folder.rglob("*.json"))
    return {
        file.relative_to(folder).with_suffix("").as_posix(): json.loads(file.read_text())
        for file in files
    }


def finished() -> dict[str, list[Result]]:
    """The test results of the rows of `small` that have all seeds."""
    tested: dict[str, list[Result]] = {name: [] for name in ROWS}
    for name, result in results_of(Small.results).items():
        if name.startswith("test/") and result["scores"]:
            tested[result["row"]].append(result)
    return {name: results for name, results in tested.items() if len(results) >= SEEDS}


def without_labels(tested: Mapping[str, list[Result]]) -> dict[str, list[Result]]:
    """The rows of methods that pretrain without labels, and of no training."""
    return {name: results for name, results in tested.items() if not ROWS[name].labels}


def _links(name: str, grids: Mapping[str, Grid]) -> str:
    """Links to tables."""
    links = (
        link_table(f"{name}-{at}", grid, title.partition(",")[0])
        for at, (title, grid) in enumerate(grids.items(), 1)
    )
    return f"All rows: {', '.join(links)}."


def winners(tested: Mapping[str, list[Result]]) -> Grid:
    """For each task the method without labels that is best, and whether the next is behind it:
    both intervals exclude zero, over test images and over seeds.
    """
    ours = without_labels(tested)
    rows = []
    for task, title in TESTED.items():
        mean = {
            name: statistics.fmean(result["scores"][task] for result in results)
            for name, results in ours.items()
        }
        first, second, *_ = sorted(mean, key=lambda name: -mean[name])
        lead = difference(ours[first], ours[second], task)
        low, high = _gains_over_seeds(ours[first], ours[second], task)
        sure = lead.low is not None and lead.low > 0 and low > 0
        verdict = "ahead" if sure else "not distinguishable"
        rows.append((title, ROWS[first].title, f"{mean[first]:.1f}", ROWS[second].title, str(lead),
                     f"{low:+.1f} to {high:+.1f}", verdict))  # fmt: skip
    columns = ("task", "best", "%", "next", "difference", "over seeds", "verdict")
    return Grid(columns, tuple(rows))


def _gains_over_seeds(
    results: Sequence[Result], others: Sequence[Result], task: str
) -> tuple[float, float]:
    """The 95 % interval of Student's t of the mean difference, over the seeds of both."""
    by_seed = {result["seed"]: result["scores"][task] for result in others}
    return over_seeds(
        [
            result["scores"][task] - by_seed[result["seed"]]
            for result in results
            if result["seed"] in by_seed
        ]
    )
