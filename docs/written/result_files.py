"""The files that studies wrote, and tables of them in Markdown and CSV."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mast.analyses import Grid
from mast.studies.tables.printed import as_csv, as_markdown

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "experiments" / "results"
TABLES = ROOT / "docs" / "tables"
WHOLE: dict[Path, str] = {}  # every table that a page shows the top of, as CSV


def top(name: str, grid: Grid, rows: int | Callable[[tuple[Any, ...]], bool] = 5) -> str:
    """The rows of a table that matter, with a link to all of it.

    Args:
        name: Of its file in `docs/tables/`.
        grid: The whole table.
        rows: How many from the top, or which.
    """
    WHOLE[TABLES / f"{name}.csv"] = as_csv(grid)
    shown = grid.rows[:rows] if isinstance(rows, int) else tuple(filter(rows, grid.rows))
    link = f"[All {len(grid.rows)} rows](tables/{name}.csv)"
    return f"{as_markdown(Grid(grid.columns, shown))}\n\n{link}" if shown else link


def processors(results: Iterable[dict[str, Any]]) -> str:
    """On what they were measured; runs of one seed differ a little between processors."""
    return " or ".join(sorted({result["provenance"]["processor"] for result in results}))
