"""Intervals over test images: what other test sets of the same size would have said.

A proportion of units has a score interval, everything else the percentiles of a bootstrap.
N units (images, or episodes), R test sets drawn with replacement.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from mast.measure.proportions import tango, wilson

# `<target>/<measure>` and its value in percent; `<target>/each/<measure>` and what every unit
# contributed; `<target>/draws/<measure>` and the measure on every test set that was drawn;
# `<target>/interval/<measure>` and the method of its interval.
Measured: TypeAlias = tuple[str, float | Tensor | str]

MOST_RESAMPLES = 100_000  # which take minutes for a large test set
WILSON = "Wilson"
TANGO = "Tango"
BOOTSTRAP = "percentile bootstrap"


class Interval(NamedTuple):
    """A 95 % interval.

    Attributes:
        low: Its lower end.
        high: Its upper end.
        method: `WILSON`, `TANGO` or `BOOTSTRAP`.
    """

    low: float
    high: float
    method: str


def mean_interval(credit_N: Tensor, seed: int, resamples: int = 1000) -> Interval:
    """The interval of a mean over units.

    Args:
        credit_N: Credit of each unit.
        seed: Of the bootstrap.
        resamples: R.

    Returns:
        Wilson's where every unit is right or wrong, 1 or 0; that of the bootstrap elsewhere.
    """
    right_N = credit_N == 1
    if bool((right_N | (credit_N == 0)).all()):
        return Interval(*wilson(int(right_N.sum()), len(credit_N)), WILSON)
    return Interval(*percentiles(resampled_means(credit_N, seed, resamples)), BOOTSTRAP)


def difference_interval(gain_N: Tensor, seed: int, resamples: int = 1000) -> Interval:
    """The interval of the mean by which a second credit of the same units is above a first.

    Args:
        gain_N: The second credit of each unit minus the first.
        seed: Of the bootstrap.
        resamples: R.

    Returns:
        Tango's where every unit is right or wrong both times, so that its gain is -1, 0 or 1; that
        of the bootstrap elsewhere.
    """
    gained_N, lost_N = gain_N == 1, gain_N == -1
    if bool((gained_N | lost_N | (gain_N == 0)).all()):
        return Interval(*tango(int(gained_N.sum()), int(lost_N.sum()), len(gain_N)), TANGO)
    return Interval(*percentiles(resampled_means(gain_N, seed, resamples)), BOOTSTRAP)


def resampled_means(credit_N: Tensor, seed: int, resamples: int = 1000) -> Tensor:
    """The mean credit of test sets drawn with replacement.

    The same seed and N draw the same test sets, so the means of two encoders on the same images
    are paired.

    Args:
        credit_N: Credit of each unit.
        seed: Of the resampling.
        resamples: R.

    Returns:
        mean_R, float64.
    """
    credit_N = credit_N.cpu().double()
    parts = draws(len(credit_N), seed, resamples)
    return torch.cat([credit_N[index_RN].mean(dim=1) for index_RN in parts])


def draws(n: int, seed: int, resamples: int) -> Iterator[Tensor]:
    """Test sets drawn with replacement, in parts of bounded memory.

    Args:
        n: N.
        seed: Of the resampling; the same one draws the same test sets.
        resamples: R in all.

    Yields:
        index_RN of some of them.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = max(1, 2**22 // n)  # bounds the drawn indices to 32 MiB
    for at in range(0, resamples, rows):
        yield torch.randint(n, (min(rows, resamples - at), n), generator=generator)


def percentiles(value_R: Tensor, level: float = 0.95) -> tuple[float, float]:
    """The ends of a percentile bootstrap interval.

    Args:
        value_R: A measure on each of the drawn test sets.
        level: Coverage.
    """
    tail = (1 - level) / 2
    low, high = torch.quantile(value_R.double(), torch.tensor([tail, 1 - tail]).double())
    return float(low), float(high)


def measured(
    target: str,
    measure: str,
    credit_N: Tensor,
    seed: int,
    resamples: int,
    paired: bool = True,
    difference: bool = False,
) -> Iterator[Measured]:
    """The mean of what each unit contributes, in percent, with its interval.

    Args:
        target: First part of each name.
        measure: Second part.
        credit_N: What each unit contributes; 1 stands for 100 %.
        seed: Of the bootstrap.
        resamples: R.
        paired: Whether the units are the same for every run, so that runs can be compared by them.
        difference: Whether the credit is a difference of two credits of the unit.

    Yields:
        `<target>/<measure>`, the same with `_low` and `_high` (95 % interval), the interval's
        method as `<target>/interval/<measure>`, and, if paired, the credit itself as
        `<target>/each/<measure>`.
    """
    interval = difference_interval if difference else mean_interval
    low, high, method = interval(credit_N, seed, resamples)
    yield f"{target}/{measure}", 100 * float(credit_N.double().mean())
    yield f"{target}/{measure}_low", 100 * low
    yield f"{target}/{measure}_high", 100 * high
    yield f"{target}/interval/{measure}", method
    if paired:
        yield f"{target}/each/{measure}", credit_N.float()


def resampled(target: str, measure: str, value_R: Tensor) -> Iterator[Measured]:
    """The interval of a measure that is no mean over units, and its draws.

    Args:
        target: First part of each name.
        measure: Second part.
        value_R: The measure on each of the drawn test sets; 1 stands for 100 %.

    Yields:
        `<target>/<measure>_low` and `_high` (95 % interval), the interval's method as
        `<target>/interval/<measure>`, and `<target>/draws/<measure>`.
    """
    low, high = percentiles(value_R)
    yield f"{target}/{measure}_low", 100 * low
    yield f"{target}/{measure}_high", 100 * high
    yield f"{target}/interval/{measure}", BOOTSTRAP
    yield f"{target}/draws/{measure}", value_R
