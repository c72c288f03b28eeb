"""The methods and sets that there are, and how far losses are from lightly's."""

import inspect
import json

from mast.analyses import Grid
from mast.data.libraries import CATALOGUE
from mast.methods import METHODS
from mast.recipes import FULL
from paper.tables.printed import as_markdown
from written.result_files import ROOT


def methods() -> str:
    """One row per method: where it is from, and its recipes."""
    recipes = {name: recipe().method for name, recipe in FULL.items()}
    rows = tuple(
        (
            entry.title,
            _paper(entry.method),
            ", ".join(f"`{recipe}`" for recipe, method in recipes.items() if method == name),
        )
        for name, entry in METHODS.items()
    )
    return as_markdown(Grid(("method", "paper", "recipes"), rows))


def splits() -> str:
    """The usual parts of torchvision's sets, and what is reported on them."""
    rows = tuple(
        (name, usual.train, usual.val or "", usual.test, f"`{usual.metric}`")
        for name, usual in CATALOGUE.items()
    )
    return as_markdown(Grid(("torchvision", "train", "val", "test", "metric"), rows))


def oracles() -> str:
    """Deviations from lightly, as `benchmarks/oracles.py` wrote them."""
    result = json.loads((ROOT / "benchmarks" / "results" / "oracles.json").read_text())
    rows = tuple(
        (name, *(f"{of[precision][what]:.0e}" for precision in of for what in of[precision]))
        for name, of in result["deviations"].items()
    )
    first = next(iter(result["deviations"].values()))
    columns = (f"{what}, {precision}" for precision in first for what in first[precision])
    return (
        f"{as_markdown(Grid(('loss', *columns), rows))}\n\n"
        f"Largest deviation from lightly {result['lightly']}, relative to "
        f"its largest value, on {result['batch']} embeddings of {result['dim']} dimensions."
    )


def _paper(method: type) -> str:
    """The first line of a method's docstring, which names its paper."""
    return (inspect.getdoc(method) or "").partition("\n")[0].rstrip(".")
