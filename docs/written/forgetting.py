"""The study `forgetting`."""

import json

from experiments.forgetting import SHARE, WEIGHT, Forgetting
from experiments.searches import led, searches
from mast.analyses import Grid
from written.result_files import RESULTS, whole

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
    tables = {"linear accuracy": whole("forgetting", Forgetting().table(measured)),
              "share of the ten nearest": whole("forgetting-searches", searches(measured)),
              "leads of a block": whole("forgetting-leads", led(measured)),
              "names": whole("forgetting-names", Grid(("name", "method"), NAMES))}  # fmt: skip
    return f"All rows: {'; '.join(f'{of}: {link}' for of, link in tables.items())}."
