"""Intervals over test images: what other test sets of the same size would have said.

N units (images, or episodes), R test sets drawn with replacement.
"""

from collections.abc import Iterator
from typing import TypeAlias

import torch
from torch import Tensor

# `<target>/<measure>` and its value in percent; `<target>/each/<measure>` and what every unit
# contributed; `<target>/draws/<measure>` and the measure on every test set that was drawn.
Measured: TypeAlias = tuple[str, float | Tensor]


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
    target: str, measure: str, credit_N: Tensor, seed: int, resamples: int, paired: bool = True
) -> Iterator[Measured]:
    """The mean of what each unit contributes, in percent, with its interval.

    Args:
        target: First part of each name.
        measure: Second part.
        credit_N: What each unit contributes; 1 stands for 100 %.
        seed: Of the bootstrap.
        resamples: R.
        paired: Whether the units are the same for every run, so that runs can be compared by them.

    Yields:
        `<target>/<measure>`, the same with `_low` and `_high` (95 % interval), and, if paired, the
        credit itself as `<target>/each/<measure>`.
    """
    low, high = percentiles(resampled_means(credit_N, seed, resamples))
    yield f"{target}/{measure}", 100 * float(credit_N.double().mean())
    yield f"{target}/{measure}_low", 100 * low
    yield f"{target}/{measure}_high", 100 * high
    if paired:
        yield f"{target}/each/{measure}", credit_N.float()


def resampled(target: str, measure: str, value_R: Tensor) -> Iterator[Measured]:
    """The interval of a measure that is no mean over units, and its draws.

    Args:
        target: First part of each name.
        measure: Second part.
        value_R: The measure on each of the drawn test sets; 1 stands for 100 %.

    Yields:
        `<target>/<measure>_low` and `_high` (95 % interval), and `<target>/draws/<measure>`.
    """
    low, high = percentiles(value_R)
    yield f"{target}/{measure}_low", 100 * low
    yield f"{target}/{measure}_high", 100 * high
    yield f"{target}/draws/{measure}", value_R
