"""The files that studies wrote, and tables of them in Markdown and CSV."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mast.analyses import Grid
from mast.core.errors import counted
from paper.tables.printed import as_csv, as_markdown

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "experiments" / "results"
TABLES = ROOT / "docs" / "tables"
WHOLE: dict[Path, str] = {}  # every table that a page shows the top of, as CSV


def whole(name: str, grid: Grid) -> str:
    """A link to a table in `docs/tables/`, which is written as CSV."""
    WHOLE[TABLES / f"{name}.csv"] = as_csv(grid)
    return f"[{counted(len(grid.rows), 'row')}](tables/{name}.csv)"


def top(name: str, grid: Grid, shown: Callable[[tuple[Any, ...]], bool]) -> str:
    """The rows of a table that matter, with a link to all of it."""
    rows = tuple(filter(shown, grid.rows))
    link = whole(name, grid).replace("[", "[All ", 1)
    return f"{as_markdown(Grid(grid.columns, rows))}\n\n{link}"


def processors(results: Iterable[dict[str, Any]]) -> str:
    """On what they were measured; runs of one seed differ a little between processors."""
    return " or ".join(sorted({result["provenance"]["processor"] for result in results}))
