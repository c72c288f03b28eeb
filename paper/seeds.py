"""Several seeds of a method: their mean and spread, and how far it is ahead of another.

N test images.
"""

import base64
import statistics
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.evaluation.intervals import difference_interval
from paper.experiment import Measured


def spread(values: Sequence[float]) -> float:
    """Standard deviation over seeds; 0 for a single one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def cell(values: Sequence[float | None]) -> str:
    """Mean of known values, and the standard deviation over seeds if there are several."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    mean = statistics.fmean(known)
    return f"{mean:.1f}" if len(known) == 1 else f"{mean:.1f} ± {spread(known):.1f}"


def pack(credit_N: Tensor) -> str:
    """Credits in [0, 1] as compressed text, rounded to half a percent."""
    if not bool(((credit_N >= 0) & (credit_N <= 1)).all()):
        raise ValueError("credits are in [0, 1]")
    percent_N = (200 * credit_N.double()).round().to(torch.uint8).numpy()
    return base64.b64encode(zlib.compress(percent_N.tobytes(), 9)).decode()


def unpack(text: str) -> Tensor:
    """The credits that `pack` packed, float64."""
    percent_N = bytearray(zlib.decompress(base64.b64decode(text)))
    return torch.frombuffer(percent_N, dtype=torch.uint8).double() / 200


class SeedDifference(NamedTuple):
    """By how many points one method is ahead of another.

    The interval (95 %) is of the mean over test sets of this size, with these seeds; None where
    credits of images are not known.
    """

    mean: float  # over seeds
    spread: float | None  # standard deviation over seeds
    low: float | None
    high: float | None

    def __str__(self) -> str:
        text = f"{self.mean:+.1f}"
        if self.spread is not None:
            text += f" ± {self.spread:.1f}"
        return text if self.low is None else f"{text} [{self.low:+.1f}, {self.high:+.1f}]"


def difference(
    results: Sequence[Measured], others: Sequence[Measured], key: str, other_key: str | None = None
) -> SeedDifference:
    """How far the scores `key` of one method are above those of another, over common seeds.

    Args:
        results: Of one method, a seed each.
        others: Of the other, tested on the same images.
        key: Of the score.
        other_key: Of the other's score, if it is another.
    """
    other_key = other_key or key
    by_seed = {result["seed"]: result for result in others}
    pairs = [(result, by_seed[result["seed"]]) for result in results if result["seed"] in by_seed]
    if not pairs:
        raise ValueError(f"no seed has both results of {key}")
    gains = [result["scores"][key] - other["scores"][other_key] for result, other in pairs]
    credits = [
        (unpack(result["each"][key]), unpack(other["each"][other_key]))
        for result, other in pairs
        if key in result.get("each", {}) and other_key in other.get("each", {})
    ]
    low = high = None
    if len(counts := {len(credit_N) for pair in credits for credit_N in pair}) > 1:
        numbers = " and ".join(map(str, sorted(counts)))
        raise UserError(f"{key} was tested on {numbers} images: delete the results of one of them")
    if len(credits) == len(pairs):
        gain_SN = torch.stack([credit_N - other_N for credit_N, other_N in credits])
        interval = difference_interval(gain_SN.mean(dim=0), seed=0)
        low, high = 100 * interval.low, 100 * interval.high
    over_seeds = spread(gains) if len(gains) > 1 else None
    return SeedDifference(statistics.fmean(gains), over_seeds, low, high)
