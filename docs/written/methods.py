"""The methods that there are."""

import inspect
from pathlib import Path

from mast.analyses import Grid
from mast.methods import METHODS
from mast.recipes import FULL
from written.result_files import markdown


def methods() -> str:
    """One row a method: where it is from, and its recipes."""
    recipes = {name: recipe().method for name, recipe in FULL.items()}
    rows = tuple(
        (
            entry.title,
            _paper(entry.method),
            _lines(entry.method),
            ", ".join(f"`{recipe}`" for recipe, method in recipes.items() if method == name),
        )
        for name, entry in METHODS.items()
    )
    return markdown(Grid(("method", "paper", "lines", "recipes"), rows))


def _lines(method: type) -> int:
    """Of the file that has a method and its configuration."""
    return len(Path(inspect.getfile(method)).read_text().splitlines())


def _paper(method: type) -> str:
    """The first line of a method's docstring, which names its paper."""
    return (inspect.getdoc(method) or "").partition("\n")[0].rstrip(".")
