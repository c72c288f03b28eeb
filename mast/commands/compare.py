"""Compare the evaluations of several runs."""

from collections.abc import Sequence
from pathlib import Path

from mast.commands.common import command
from mast.core.errors import UserError
from mast.evaluation.compare import Comparison
from mast.evaluation.compare import compare as comparison
from mast.evaluation.intervals import MOST_RESAMPLES


@command
def compare(
    runs: str | Path | Sequence[str | Path], *, seed: int = 0, resamples: int = 1000
) -> Comparison:
    """Compare the evaluations of several runs, with a verdict on the first.

    Adds the run's starting weights if `mast evaluate --untrained` measured them, and published
    weights of a ResNet-18 if they were measured on the same images.

    Args:
        runs: One or more run folders with evaluations; verdict and gains are about the first.
        seed: Seed of the bootstrap.
        resamples: Bootstrap resamples of the test set, the same for all runs.

    Returns:
        Rows, notes, and the `verdict`.
    """
    if not 0 <= seed < 2**63 or not 1 <= resamples <= MOST_RESAMPLES:
        raise UserError(
            f"seed must be 0 or more and below 2^63, and resamples 1 to {MOST_RESAMPLES:,}, got "
            f"{seed} and {resamples}"
        )
    return comparison(runs, seed, resamples)
