"""The files that studies wrote, and tables of them in Markdown."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mast.analyses import Grid

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "experiments" / "results"


def markdown(grid: Grid) -> str:
    """A table in Markdown."""
    rows = [grid.columns, ("---",) * len(grid.columns), *grid.rows]
    return "\n".join(
        f"|{'|'.join(row)}|" if at == 1 else f"| {' | '.join(map(str, row))} |"
        for at, row in enumerate(rows)
    )


def processors(results: Iterable[dict[str, Any]]) -> str:
    """On what they were measured; runs of one seed differ a little between processors."""
    return " or ".join(sorted({result["provenance"]["processor"] for result in results}))
