"""The methods and sets that there are, and how far losses are from lightly's."""

import inspect
import json

from mast.analyses import Grid
from mast.data.libraries import CATALOGUE
from mast.methods import METHODS
from mast.recipes import FULL
from paper.methods import BASELINES
from paper.methods.recipes import FULL as OF_BASELINES
from written.result_files import ROOT, link_table


def methods() -> str:
    """One row per method: where it is from, its recipes, and the program that has them."""
    kinds = {name: type(recipe().objective) for name, recipe in (FULL | OF_BASELINES).items()}
    rows = tuple(
        (
            entry.title,
            _paper(entry.method),
            ", ".join(recipe for recipe, kind in kinds.items() if kind is entry.config),
            "python -m paper" if name in BASELINES else "mast",
        )
        for name, entry in (METHODS | BASELINES).items()
    )
    grid = Grid(("method", "paper", "recipes", "program"), rows)
    return f"{link_table('methods', grid, 'Methods, papers and recipes')}."


def splits() -> str:
    """The usual splits of torchvision's sets, and their metrics."""
    rows = tuple(
        (name, usual.train, usual.val or "", usual.test, usual.metric)
        for name, usual in sorted(CATALOGUE.items(), key=lambda row: row[0].lower())
    )
    grid = Grid(("set", "train", "val", "test", "metric"), rows)
    return f"{link_table('splits', grid, 'Splits of torchvision sets')}."


def oracles() -> str:
    """Deviations from lightly, as `benchmarks/oracles.py` wrote them."""
    result = json.loads((ROOT / "benchmarks" / "results" / "oracles.json").read_text())
    rows = tuple(
        (name, *(f"{of[precision][what]:.0e}" for precision in of for what in of[precision]))
        for name, of in result["deviations"].items()
    )
    first = next(iter(result["deviations"].values()))
    columns = (f"{what}, {precision}" for precision in first for what in first[precision])
    table = link_table("oracles", Grid(("loss", *columns), rows))
    return f"Losses and gradients agree with lightly {result['lightly']} ({table})."


def _paper(method: type) -> str:
    """The first line of a method's docstring, which names its paper."""
    return (inspect.getdoc(method) or "").partition("\n")[0].rstrip(".")
