"""Compare the evaluations of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mast.commands.common import command

if TYPE_CHECKING:
    from mast.evaluation.compare import Comparison


@command
def compare(runs: str | Path | Sequence[str | Path]) -> Comparison:
    """Compare the evaluations of several runs, with a verdict on the first.

    Adds the run's starting weights if `mast evaluate --untrained` measured them, and published
    weights if they were measured on the same images.

    Args:
        runs: Folders that `mast evaluate` wrote to; the verdict is about the first.

    Returns:
        Rows, notes, and the `verdict`.
    """
    from mast.evaluation.compare import compare as comparison

    return comparison(runs)
