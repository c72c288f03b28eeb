"""What the study `starts` found."""

import json
from collections import defaultdict
from typing import Any

from experiments.starts import COLUMNS, SOURCE, STARTS, Starts
from mast.analyses import Grid
from paper.seeds import cell, difference
from written.result_files import RESULTS, link_table

Result = dict[str, Any]
Groups = dict[tuple[str, str], list[Result]]  # by what was trained on, and the start

OWN = {"flowers17": "flowers17/class/linear", "textures": "textures/class/linear"}
METHODS = {"mast": "MAST-C over VICReg's distance", "vicreg": "VICReg"}


def starts() -> str:
    """A table of all starts."""
    test = read("test")
    source = json.loads((RESULTS / Starts.results / "test" / f"{SOURCE}.json").read_text())
    rows = [("", "the source alone", "1",
             *(f"{source['scores'][task]:.1f}" for task in COLUMNS), "")]  # fmt: skip
    untrained = test["none", "random"]
    rows.append(("", "no training", str(len(untrained)), *cells(untrained), ""))
    for (set_name, start), results in test.items():
        if start in STARTS:
            scratch = test.get((set_name, f"{start.partition('-')[0]}-random"), [])
            ahead = "" if start.endswith("-random") else ahead_of(results, scratch, OWN[set_name])
            rows.append((set_name, title(start), str(len(results)), *cells(results), ahead))
    columns = ("trained on", "start", "seeds", *COLUMNS.values(), "minus from scratch, on its set")
    return f"{link_table('starts', Grid(columns, tuple(rows)), 'All starts')}."


def ahead_of(results: list[Result], others: list[Result], task: str) -> str:
    """A difference, where some seed has both."""
    seeds = {result["seed"] for result in results} & {result["seed"] for result in others}
    return str(difference(results, others, task)) if seeds else ""


def cells(results: list[Result]) -> tuple[str, ...]:
    """The scores of a start, by task."""
    return tuple(cell([result["scores"][task] for result in results]) for task in COLUMNS)


def title(start: str) -> str:
    """What readers call a start."""
    method = METHODS[start.partition("-")[0]]
    return f"{method}, " + (
        "random" if start.endswith("random") else f"weights, {STARTS[start].rate:g}"
    )


def read(score: str) -> Groups:
    """Results by set and start, in the order of the study."""
    groups: Groups = defaultdict(list)
    files = sorted((RESULTS / Starts.results / score).glob("*.json"))
    for result in (json.loads(file.read_text()) for file in files if file.stem != SOURCE):
        groups[result["set"], result["start"]].append(result)
    order = ["random", *STARTS]
    return dict(sorted(groups.items(), key=lambda item: (item[0][0], order.index(item[0][1]))))
