"""Paired differences of two results on the same test images.

The interval of a difference is paired, so that what makes an image hard for every encoder cancels:
Tango's where every image is right or wrong and for the mean per class, Student's t over draws of
what was learned from, else of a bootstrap, in which each test set that is drawn is scored for both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mast.evaluation.intervals import (
    BOOTSTRAP,
    Interval,
    difference_interval,
    percentiles,
    student_interval,
)
from mast.evaluation.result import Result, TargetResult

OVER_DRAWS = "fewshot"  # the protocol whose units are draws
NONE = TargetResult()


class Difference(NamedTuple):
    """A value minus another, in percentage points, and the ends of its paired 95 % interval.

    They are infinite where nothing is known of each image or test set that was drawn, and where the
    test images were changed between the two results.
    """

    value: float
    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        ends = f" [{self.low:+.1f}, {self.high:+.1f}]" if math.isfinite(self.low) else ""
        return f"{self.value:+.1f}{ends}"

    @property
    def is_better(self) -> bool | None:
        """Whether it is above zero, or below; None where the interval has room for both."""
        return self.value > 0 if self.low > 0 or self.high < 0 else None


def difference(
    first: Result, other: Result, targets: Sequence[str], measure: str
) -> Difference | None:
    """A second result minus a first one of the same images, by a measure or its mean over targets.

    None where one of the two lacks the measure.
    """
    pairs = [(first.targets.get(of, NONE), other.targets.get(of, NONE)) for of in targets]
    if any(measure not in of.values for pair in pairs for of in pair):
        return None
    value = statistics.fmean(after.values[measure] - of.values[measure] for of, after in pairs)
    weight_N = pairs[0][1].weights.get(measure)
    files_N = pairs[0][1].files.get(measure if weight_N is None else "top1")
    found: Interval | None = None
    if of_changed_images(first, other):
        return Difference(value)
    gain_N = _gain([(of.credit(measure), after.credit(measure)) for of, after in pairs])
    if gain_N is not None:
        if first.protocol == OVER_DRAWS:
            found = student_interval(gain_N, least=-1)
        else:
            weight_N = weight_N if len(pairs) == 1 else None
            found = difference_interval(gain_N, 0, files_N=files_N, weight_N=weight_N)
    elif _drawn_alike(first, other):
        gain_R = _gain([(of.draws.get(measure), after.draws.get(measure)) for of, after in pairs])
        found = None if gain_R is None else Interval(*percentiles(gain_R), BOOTSTRAP)
    if found is None or found.low == found.high:  # equal draws tell nothing about others
        return Difference(value)
    return Difference(value, 100 * found.low, 100 * found.high)


def _gain(pairs: Sequence[tuple[Tensor | None, Tensor | None]]) -> Tensor | None:
    """The second minus the first of each pair, the mean over pairs; None if they do not fit."""
    gains = [
        after - before
        for before, after in pairs
        if before is not None and after is not None and before.shape == after.shape
    ]
    if len(gains) < len(pairs) or len({gain.shape for gain in gains}) > 1:
        return None
    return torch.stack(gains).mean(dim=0)


def _drawn_alike(first: Result, other: Result) -> bool:
    """Whether the same test sets were drawn for both."""
    ours, theirs = (result.settings.get("protocol", {}) for result in (first, other))
    if first.files.get("test") != other.files.get("test"):  # images were drawn, and files
        return False
    return all(name in ours and ours[name] == theirs.get(name) for name in ("seed", "resamples"))


def of_changed_images(first: Result, other: Result) -> bool:
    """Whether images of the same names have other pixels, though their size is the same."""
    sizes = [result.settings.get("extraction", {}).get("size") for result in (first, other)]
    tested = [result.fingerprints.get("test") for result in (first, other)]
    return None not in (*sizes, *tested) and sizes[0] == sizes[1] and tested[0] != tested[1]
