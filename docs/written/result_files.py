"""The files that studies wrote, and tables of them in Markdown."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "experiments" / "results"


def processors(results: Iterable[dict[str, Any]]) -> str:
    """On what they were measured; runs of one seed differ a little between processors."""
    return " or ".join(sorted({result["provenance"]["processor"] for result in results}))
