"""The tables that `python -m paper reproduce` has, and what some of them found."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.candidates import CANDIDATES_ON_VALIDATION
from experiments.does_it_help import mean_of_tasks
from experiments.elsewhere import ELSEWHERE
from experiments.fair import DECIDING, FAIR
from experiments.small import ROWS, TESTED, Small, over_seeds
from mast.analyses import Grid
from paper.seeds import cell, difference
from paper.tables import TABLES, experiment
from paper.tables.printed import as_markdown
from written.result_files import RESULTS, processors, whole

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
            (f"`{name}`", table.title, ", ".join(column.title for column in table.columns),
             str(len(trained)), ", ".join(missing))
        )  # fmt: skip
    columns = ("table", "title", "measures", "rows trained here", "rows only published")
    return as_markdown(Grid(columns, tuple(rows)))


def small() -> str:
    """Which method is best at what, and the tables."""
    measured, whole = results_of(Small.results), finished()
    experiment = Small()
    missing = [ROWS[name].title for name in ROWS if name not in whole]
    measured = {name: result for name, result in measured.items() if result["row"] in whole}
    sentences = winners(whole) if len(whole) > 1 else []
    parts = ["\n".join(f"- {sentence}" for sentence in sentences)]
    if missing:
        parts.append(f"Not finished, and no part of this: {'; '.join(missing)}.")
    grids = experiment.grids(measured)
    parts += _grids("small", grids)
    *_, rates, _ = grids.values()
    edges = sum("edge" in row[-1] for row in rates.rows)
    notes = (
        *experiment.notes(),
        f"{edges} of {len(rates.rows)} methods are best at the edge of the rates tried.",
        f"Trained on {processors(measured.values())}, two runs at a time with a thread each: "
        "minutes depend on other work, TFLOP do not.",
    )
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)])


def candidates() -> str:
    """Objectives on validation images, by groups of tasks."""
    return _by_groups(CANDIDATES_ON_VALIDATION)


def fair() -> str:
    """Methods that predict the same, by groups of tasks and beside VICReg + AugSelf."""
    measured = results_of(FAIR.results)
    tested = [result for name, result in measured.items() if name.startswith("test/")]
    ours, *controls = ([each for each in tested if each["row"] == row] for row in DECIDING)
    (ahead,) = (grid for title, grid in FAIR.grids(measured).items() if title.startswith("ahead"))
    leads = [f"- {title}: {lead}" for title, *_, lead in ahead.rows]
    leads += [
        f"- MAST-C over {FAIR.rows[key].title}: {FAIR.tasks.lead(ours, control)}"
        for key, control in zip(DECIDING[1:-1], controls, strict=False)
        if control
    ]
    beside = "Mean lead over VICReg + AugSelf, on common seeds:"
    return "\n\n".join([_by_groups(FAIR), beside, "\n".join(leads)])


def elsewhere() -> str:
    """The default and its controls under other conditions, by groups of tasks."""
    rows: list[tuple[str, ...]] = []
    leads = []
    for name, table in ELSEWHERE.items():
        measured = results_of(name)
        ours, *controls = (
            table.at_best([each for each in measured.values() if each["row"] == f"{name}_{key}"])
            for key in DECIDING
        )
        if not (ours and all(controls)):
            continue
        grouped = table.grids(measured)["by groups of tasks"]
        rows += ((table.title, *row) for row in grouped.rows)
        over = (
            f"over {FAIR.rows[key].title} {table.tasks.lead(ours, control)}"
            for key, control in zip(DECIDING[1:], controls, strict=True)
        )
        leads.append(f"- {table.title}: MAST-C {', '.join(over)}")
    shown = as_markdown(Grid(("condition", *grouped.columns), tuple(rows)))
    return "\n\n".join([shown, "\n".join(leads)])


def _by_groups(experiment: Small) -> str:
    grids = experiment.grids(results_of(experiment.results))
    shown = as_markdown(grids["by groups of tasks"])
    notes = "\n".join(f"- {note}" for note in experiment.notes())
    return "\n\n".join([shown, *_grids(experiment.results, grids, shown=False), notes])


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
        seeds = [{result["seed"] for result in by_row.get(row, ())} for row in (name, other)]
        if shared := seeds[0] & seeds[1]:
            lead = str(difference(by_row[name], by_row[other], column.title))
            lead += f", {len(shared)} seeds"
            published, beside = rows[name].published[0], rows[other].published[0]
            if published is not None and beside is not None:
                lead += f"; paper {published - beside:+.1f}"
            lines.append(f"- {rows[name].title} minus {rows[other].title}: {lead}")
    start = [result["scores"][column.title] for result in by_row["untrained"]]
    best = max(row.published[0] or 0.0 for row in rows.values())
    lines.append(
        f"- The untrained encoder reaches {cell(start)} with this probe, the paper's best row "
        f"{best} with one that it does not describe: compare differences, not levels."
    )
    parts = ["\n".join(lines), *_grids("table6", table.grids(measured), shown=False)]
    gpus = {result["provenance"]["cuda"] for result in measured.values()}
    where = f"Trained on an {' or '.join(sorted(gpus))}, up to six runs at a time."
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in (*table.notes(), where))])


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


def _in_order(tested: Mapping[str, Sequence[Result]]) -> str:
    """Rows with the mean of four tasks, best first."""
    over = {name: [mean_of_tasks(result) for result in results] for name, results in tested.items()}
    order = sorted(over, key=lambda name: -statistics.fmean(over[name]))
    return "; ".join(f"{ROWS[name].title} {cell(over[name])}" for name in order)


def _grids(name: str, grids: Mapping[str, Grid], shown: bool = True) -> list[str]:
    """The first of several tables, and links to the others."""
    links = [
        f"{of}: {whole(f'{name}-{at}', grid)}" for at, (of, grid) in enumerate(grids.items(), 1)
    ]
    first = [as_markdown(next(iter(grids.values())))] if shown else []
    return [*first, f"All rows: {'; '.join(links)}."]


def winners(tested: Mapping[str, list[Result]]) -> list[str]:
    """For each task the method without labels that is best, and whether the next is behind it."""
    ours = without_labels(tested)
    sentences = []
    for task, title in TESTED.items():
        mean = {
            name: statistics.fmean(result["scores"][task] for result in results)
            for name, results in ours.items()
        }
        first, second, *_ = sorted(mean, key=lambda name: -mean[name])
        lead = difference(ours[first], ours[second], task)
        low, high = _gains_over_seeds(ours[first], ours[second], task)
        sure = lead.low is not None and lead.low > 0 and low > 0
        verb = "is ahead of" if sure else "is not distinguishable from"
        sentences.append(
            f"{title}: {ROWS[first].title} ({mean[first]:.1f}) {verb} {ROWS[second].title} "
            f"({lead}; over seeds {low:+.1f} to {high:+.1f})."
        )
    return [
        *sentences,
        f"The mean of objects, color, flowers and textures: {_in_order(ours)}.",
        "*Ahead*: both intervals exclude zero, over test images and over seeds (Student's t). "
        f"Uncorrected for multiple comparisons ({len(TESTED)} tasks, best of {len(ours)} methods).",
    ]


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
