"""How far two results are apart on the same test images.

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
from mast.evaluation.result import Result

OVER_DRAWS = "fewshot"  # the protocol whose units are draws


class Difference(NamedTuple):
    """A value minus another, in percentage points, and the ends of its paired 95 % interval.

    They are infinite where nothing is known of each image or test set that was drawn, and where the
    test images were changed between the two results.
    """

    value: float
    low: float = -math.inf
    high: float = math.inf

    @property
    def is_better(self) -> bool | None:
        """Whether it is above zero, or below; None where the interval has room for both."""
        return self.value > 0 if self.low > 0 or self.high < 0 else None


def difference(
    first: Result, other: Result, targets: Sequence[str], measure: str, seed: int, resamples: int
) -> Difference | None:
    """A second result minus a first one of the same images, by a measure or its mean over targets.

    None where one of the two lacks the measure.
    """
    pairs = [(first.targets.get(target), other.targets.get(target)) for target in targets]
    values, each, weights, draws, files = [], [], [], [], []
    for of_first, of_other in pairs:
        if of_first is None or of_other is None:
            return None
        if measure not in of_first.values or measure not in of_other.values:
            return None
        values.append(of_other.values[measure] - of_first.values[measure])
        each.append((of_first.credit(measure), of_other.credit(measure)))
        weights.append(of_other.weights.get(measure))
        draws.append((of_first.draws.get(measure), of_other.draws.get(measure)))
        name = "top1" if measure in of_other.weights else measure
        files.append(of_other.files.get(name, of_first.files.get(name)))
    value = statistics.fmean(values)
    found: Interval | None = None
    if (gain_N := _gain(each)) is not None:
        if first.protocol == OVER_DRAWS:
            found = student_interval(gain_N, least=-1)
        else:
            weight_N = weights[0] if len(weights) == 1 else None
            found = difference_interval(gain_N, seed, resamples, files[0], weight_N)
    elif (gain_R := _gain(draws)) is not None and _drawn_alike(first, other):
        found = Interval(*percentiles(gain_R), BOOTSTRAP)
    if found is None or of_changed_images(first, other):
        return Difference(value)
    if found.low == found.high:  # of alike draws: nothing is known of others
        return Difference(value)
    return Difference(value, 100 * found.low, 100 * found.high)


def _gain(pairs: Sequence[tuple[Tensor | None, Tensor | None]]) -> Tensor | None:
    """The second minus the first of each pair, the mean over pairs; None if they do not fit."""
    gains = []
    for before, after in pairs:
        if before is None or after is None or before.shape != after.shape:
            return None
        gains.append(after - before)
    if len({gain.shape for gain in gains}) > 1:
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
