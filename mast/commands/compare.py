"""Put what was measured of several runs side by side."""

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
    """Put what was measured of several runs side by side, and judge the first by it.

    What the first run started as is put beside it, where `mast evaluate --untrained` measured it,
    and so are published weights of a ResNet-18, if they were measured on the same images.

    Args:
        runs: Run folders with evaluations, or one; gains and verdict are the first's.
        seed: Of the bootstrap.
        resamples: Test sets that the bootstrap draws, the same ones for all runs.

    Returns:
        Rows, notes, and the `verdict`.
    """
    if not 0 <= seed < 2**63 or not 1 <= resamples <= MOST_RESAMPLES:
        raise UserError(
            f"seed must be 0 or more and below 2^63, and resamples 1 to {MOST_RESAMPLES:,}, got "
            f"{seed} and {resamples}"
        )
    return comparison(runs, seed, resamples)
