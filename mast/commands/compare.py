"""Compare the evaluations of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mast.commands.common import command
from mast.core.errors import UserError

if TYPE_CHECKING:
    from mast.evaluation.compare import Comparison


@command
def compare(
    runs: str | Path | Sequence[str | Path], *, seed: int = 0, resamples: int = 1000
) -> Comparison:
    """Compare the evaluations of several runs, with a verdict on the first.

    Adds the run's starting weights if `mast evaluate --untrained` measured them, and published
    weights if they were measured on the same images.

    Args:
        runs: Run folders, or names and files as in `mast evaluate`; the verdict is about the first.
        seed: Seed of the bootstrap.
        resamples: Bootstrap resamples of the test set, the same for all runs.

    Returns:
        Rows, notes, and the `verdict`.
    """
    from mast.evaluation.compare import compare as comparison

    if resamples < 1:
        raise UserError(f"expected resamples 1 or more, got {resamples}")
    return comparison(runs, seed, resamples)
