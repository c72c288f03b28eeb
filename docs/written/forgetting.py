"""The study `forgetting`."""

import json

from experiments.forgetting import SHARE, WEIGHT, Forgetting
from experiments.searches import led, searches
from mast.analyses import Grid
from written.result_files import RESULTS, link_table

NAMES = (
    ("augself", "VICReg that predicts the operators from its representation"),
    ("exempt", "MAST-C over VICReg's distance that predicts from its block of "
     f"{100 * SHARE:g} % of the dimensions"),
    ("both", "the same that predicts from block and representation"),
    ("silent", "the same without prediction"),
    ("representation", "the same that predicts from the representation alone"),
    ("budgeted", "the same that learns which dimensions are exempt"),
    ("guarded", "MAST, no uncertainty"),
    ("_double", f"predictions weigh {2 * WEIGHT:g}, not {WEIGHT:g}"),
)  # fmt: skip


def forgetting() -> str:
    """Linear accuracy, what a search finds, and what the methods are called."""
    folder = RESULTS / Forgetting.results
    measured = {
        f"{file.parent.name}/{file.stem}": json.loads(file.read_text())
        for file in sorted(folder.glob("*/*.json"))
    }
    tables = {"linear accuracy": ("forgetting", Forgetting().table(measured)),
              "ten nearest": ("forgetting-searches", searches(measured)),
              "gain of a block": ("forgetting-leads", led(measured)),
              "names": ("forgetting-names", Grid(("name", "method"), NAMES))}  # fmt: skip
    links = (link_table(name, grid, text) for text, (name, grid) in tables.items())
    return f"All rows: {', '.join(links)}."
