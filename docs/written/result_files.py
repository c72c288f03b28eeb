"""The files that studies wrote, and tables of them in Markdown and CSV."""

from pathlib import Path

from mast.analyses import Grid
from paper.tables.printed import as_csv

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "experiments" / "results"
TABLES = ROOT / "docs" / "tables"
WHOLE: dict[Path, str] = {}  # every table, as CSV


def link_table(name: str, grid: Grid, text: str = "table") -> str:
    """A link to a table in `docs/tables/`, which is written as CSV."""
    WHOLE[TABLES / f"{name}.csv"] = as_csv(grid)
    return f"[{text}](tables/{name}.csv)"
