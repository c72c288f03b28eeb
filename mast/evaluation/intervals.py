"""Intervals over test images: the variation between test sets of the same size.

A proportion of images has a score interval, and so does the mean of the proportions of classes. A
mean over draws of training images has Student's t interval; everything else has the percentiles of
a bootstrap. Over pieces of files, a proportion has the score interval of an effective number of
images, and all other means and differences have Student's t interval. scipy's Wilson interval takes
only whole counts; here images may count in part.

N units (images, draws or episodes), F files, R test sets drawn with replacement.
"""

import math
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

# `<target>/<measure>` and its value in percent; `<target>/each/<measure>` and what every unit
# contributed; `<target>/draws/<measure>` and the measure on every test set that was drawn;
# `<target>/weights/<measure>` and what every unit weighs in it;
# `<target>/files/<measure>` and the number of the file of every unit, where files have several;
# `<target>/interval/<measure>` and the method of its interval.
Measured: TypeAlias = tuple[str, float | Tensor | str]

WILSON = "Wilson"
WILSON_OF_CLASSES = "Wilson, mean of classes"
TANGO = "Tango"
OF_FILES = " of files"  # behind the name of a method
STUDENT = "Student's t"
BOOTSTRAP = "percentile bootstrap"
Z = NormalDist().inv_cdf(0.975)


class Interval(NamedTuple):
    """A 95 % interval and the method that found it."""

    low: float
    high: float
    method: str


# -------------------------------------------------------------------------------- score intervals


def wilson(right: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a proportion, of `right` of `n` units, which may count in part.

    It has a width even where no unit is wrong, and stays in [0, 1].

    Reference:
        Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 1927;
        Newcombe, Two-sided Confidence Intervals for the Single Proportion, Statistics in Medicine
        1998, method 3.
    """
    assert 0 <= right <= n >= 1
    middle = right + Z**2 / 2
    margin = Z * math.sqrt(right * (n - right) / n + Z**2 / 4)
    low, high = (middle - margin) / (n + Z**2), (middle + margin) / (n + Z**2)
    # Exact in theory; rounding would leave the value outside its interval.
    return 0.0 if right == 0 else low, 1.0 if right == n else high


def tango(gained: float, lost: float, n: float) -> tuple[float, float]:
    """Tango's score interval of the difference of two proportions of the same n units, in [-1, 1].

    `gained` units are right in the second only, `lost` in the first only. It leaves out zero
    exactly where McNemar's test, without a continuity correction, rejects equality.

    Reference:
        Tango, Equivalence test and confidence interval for the difference in proportions for the
        paired-sample design, Statistics in Medicine 1998, section 3.
    """
    assert 0 <= min(gained, lost) <= gained + lost <= n * (1 + 1e-9)  # but for rounding

    def accepted(difference: float) -> bool:
        """Whether the score test accepts a difference."""
        a = 2 * n
        b = (2 * n - gained + lost) * difference - gained - lost
        c = -lost * difference * (1 - difference)
        share_lost = (math.sqrt(max(b**2 - 4 * a * c, 0.0)) - b) / (2 * a)  # maximum likelihood
        variance = n * (2 * share_lost + difference * (1 - difference))
        return abs(gained - lost - n * difference) <= Z * math.sqrt(max(variance, 0.0))

    low, high = (_last_accepted(accepted, (gained - lost) / n, end) for end in (-1.0, 1.0))
    return low, high


def _last_accepted(accepted: Callable[[float], bool], inside: float, outside: float) -> float:
    """The end of an interval between a value inside and the end of the range, by bisection."""
    for _ in range(54):  # halves 2 until it is below the rounding of 1
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if accepted(middle) else (inside, middle)
    return outside


# --------------------------------------------------------------------------- of what was measured


def mean_interval(
    credit_N: Tensor, seed: int, resamples: int = 1000, files_N: Tensor | None = None
) -> Interval:
    """The interval of a mean over units whose credits are in [0, 1].

    It is Wilson's if every unit is right or wrong or if all are equal, where a bootstrap would have
    width 0; otherwise Student's t over files that have several units (files_N), or the bootstrap.
    """
    mean = min(1.0, max(0.0, float(credit_N.double().mean())))
    if _is_binary(credit_N):
        images, method = float(len(credit_N)), WILSON
        if files_N is not None:
            images, files = effective_images(credit_N, files_N)
            images, method = max(1.0, images * student_factor(files)), WILSON + OF_FILES
        return Interval(*wilson(mean * images, images), method)
    if files_N is None:
        return Interval(*percentiles(resampled_means(credit_N, seed, resamples)), BOOTSTRAP)
    if (found := student_interval(credit_N, 0, files_N=files_N)) is not None:
        return found
    files = effective_files(_sums(torch.ones(len(credit_N)), files_N))
    return Interval(*wilson(mean * files, files), WILSON + OF_FILES)


def difference_interval(
    gain_N: Tensor,
    seed: int,
    resamples: int = 1000,
    files_N: Tensor | None = None,
    weight_N: Tensor | None = None,
) -> Interval:
    """The interval of the mean gain from a first credit of the units to a second one.

    It is Student's t over files that have several units; otherwise Tango's if every gain is -1, 0
    or 1, if all are equal or if they are weighted; otherwise the bootstrap's. Tango's interval of
    weighted gains is that of an effective number of images of equal weight, for which the mean has
    the same variance. There are two such numbers, one if all images are equally likely to change
    and one if only those that did change can; the smaller one is used. Files that all gain the same
    count as an effective number of files of equal weight. Weights have a mean of 1, and no gain is
    larger than its weight. The reference is that of `class_mean_interval`.
    """
    if weight_N is None:
        if files_N is None and not _is_binary(gain_N.abs()):
            return Interval(*percentiles(resampled_means(gain_N, seed, resamples)), BOOTSTRAP)
        weight_N = torch.ones(len(gain_N))
    gain_N, weight_N, method = gain_N.double(), weight_N.double(), TANGO
    gained, lost = float(gain_N.clamp(min=0).mean()), float(-gain_N.clamp(max=0).mean())
    if files_N is not None:
        if (found := student_interval(gain_N, -1, weight_N, files_N)) is not None:
            return found
        images, method = effective_files(_sums(weight_N, files_N)), TANGO + OF_FILES
    else:
        images = len(gain_N) / float(weight_N.square().mean())
        if gained + lost > 0:
            images = min(images, len(gain_N) * (gained + lost) / float(gain_N.square().mean()))
    images = max(1.0, images)
    gained = min(1.0, gained)
    lost = min(1 - gained, lost)  # but for rounding it is no more
    return Interval(*tango(images * gained, images * lost, images), method)


def _is_binary(credit_N: Tensor) -> bool:
    """Whether all are 0 or 1, or all are equal."""
    return bool(((credit_N == 1) | (credit_N == 0)).all() or (credit_N == credit_N[0]).all())


def student_interval(
    value_N: Tensor,
    least: float,
    weight_N: Tensor | None = None,
    files_N: Tensor | None = None,
) -> Interval | None:
    """Student's t of a mean over draws, or of a weighted one over pieces of files.

    It is from `least` (0 or -1) to 1. None for one draw or file, or if all are equal. The variance
    is that of a ratio of sums of files (Taylor linearization); the degrees of freedom are those of
    the effective number of files. `value_N` is already multiplied by its weight, and weights have a
    mean of 1.

    Reference:
        Cochran, Sampling Techniques, 3rd edition, sections 6.4 and 9A.
    """
    of = "" if files_N is None else OF_FILES
    files_N = torch.arange(len(value_N)) if files_N is None else files_N
    weight_N = torch.ones(len(value_N)) if weight_N is None else weight_N
    value_N, weight_N = value_N.double(), weight_N.double()
    mean = float(value_N.mean())
    rest_F, weight_F = _sums(value_N - weight_N * mean, files_N), _sums(weight_N, files_N)
    files = len(rest_F)
    variance = float(rest_F.square().sum()) / len(value_N) ** 2 * files / max(1, files - 1)
    if files == 1 or variance < 1e-18:
        return None
    margin = _student_quantile(effective_files(weight_F)) * math.sqrt(variance)
    return Interval(max(least, mean - margin), min(1.0, mean + margin), STUDENT + of)


def effective_images(credit_N: Tensor, files_N: Tensor) -> tuple[float, float]:
    """The numbers of independent images and of files of equal size that pieces of files amount to.

    If tiles of a file have a correlation of 0.5 and are taken as independent, the 95 % interval
    over 40 files with 36 tiles each covers the truth in only 34 % of all draws. Here the variance
    of the mean comes from the sums of files. Two files of mean size are added, one with all images
    right and one with none, so that the variance is not 0 for equal files.

    Reference:
        Dean and Pagano, Evaluating Confidence Interval Methods for Binomial Proportions in
        Clustered Surveys, Journal of Survey Statistics and Methodology 2015, for the effective
        number.
    """
    right_F, size_F = _sums(credit_N, files_N), _sums(torch.ones(len(credit_N)), files_N)
    files = len(size_F)
    added = len(credit_N) / files
    images, count = len(credit_N) + 2 * added, files + 2
    mean = (float(right_F.sum()) + added) / images
    squares = float((right_F - mean * size_F).square().sum())
    squares += added**2 * ((1 - mean) ** 2 + mean**2)
    variance = squares / images**2 * count / (count - 1)
    number = mean * (1 - mean) / variance
    return min(max(number, 1.0), float(len(credit_N))), effective_files(size_F)


def student_factor(files: float) -> float:
    """The factor on the number of images if Student's t of so many files replaces the normal.

    Reference:
        Korn and Graubard, Confidence Intervals for Proportions with Small Expected Number of
        Positive Counts Estimated from Survey Data, Survey Methodology 1998.
    """
    from scipy.special import ndtri

    return (float(ndtri(0.975)) / _student_quantile(files)) ** 2


def effective_files(weight_F: Tensor) -> float:
    """The effective number of files: as many files of equal weight have the same variance."""
    return float(weight_F.sum() ** 2 / weight_F.square().sum())


def _student_quantile(files: float) -> float:
    """The 97.5 % quantile of Student's t with one degree of freedom fewer than files."""
    from scipy.special import stdtrit

    return float(stdtrit(max(1.0, files - 1), 0.975))


def _sums(value_N: Tensor, files_N: Tensor) -> Tensor:
    """Sums over each file, (F,)."""
    _, file_N = files_N.cpu().unique(return_inverse=True)
    return torch.bincount(file_N, value_N.double().cpu())


def resampled_means(credit_N: Tensor, seed: int, resamples: int = 1000) -> Tensor:
    """The mean credit of test sets drawn with replacement, mean_R, float64.

    The same seed and N draw the same test sets, so the means of two encoders are paired.
    """
    credit_N = credit_N.cpu().double()
    parts = draws(len(credit_N), seed, resamples)
    return torch.cat([credit_N[index_RN].mean(dim=1) for index_RN in parts])


def draws(n: int, seed: int, resamples: int) -> Iterator[Tensor]:
    """Test sets of n units drawn with replacement: index_RN of some of them at a time."""
    generator = torch.Generator().manual_seed(seed)
    rows = max(1, 2**22 // n)  # bounds the drawn indices to 32 MiB
    for at in range(0, resamples, rows):
        yield torch.randint(n, (min(rows, resamples - at), n), generator=generator)


def percentiles(value_R: Tensor) -> tuple[float, float]:
    """The ends of a percentile bootstrap interval."""
    low, high = torch.quantile(value_R.double(), torch.tensor([0.025, 0.975]).double())
    return float(low), float(high)


def measured(
    target: str,
    measure: str,
    credit_N: Tensor,
    seed: int,
    resamples: int,
    paired: bool = True,
    difference: bool = False,
    files_N: Tensor | None = None,
) -> Iterator[Measured]:
    """The mean of what each unit contributes (1 is 100 %), with its interval; see `Measured`.

    `paired` units are the same for every run, so that runs can be compared unit by unit. With
    `difference`, credit_N is the difference of two credits. files_N is the file of each unit, if
    files have several.
    """
    interval = difference_interval if difference else mean_interval
    yield f"{target}/{measure}", 100 * float(credit_N.double().mean())
    yield from ends(target, measure, interval(credit_N, seed, resamples, files_N))
    if paired:
        yield f"{target}/each/{measure}", credit_N.float()
        if files_N is not None:
            yield f"{target}/files/{measure}", files_N.clone()  # files share no memory


def end_names(measure: str) -> tuple[str, str]:
    """The names of the ends of an interval: `top1_low`, or `recall_low/cat` for a class."""
    name, slash, label = measure.partition("/")
    return f"{name}_low{slash}{label}", f"{name}_high{slash}{label}"


def ends(target: str, measure: str, interval: Interval) -> Iterator[Measured]:
    """The ends of an interval in percent, and its method."""
    for name, end in zip(end_names(measure), (interval.low, interval.high), strict=True):
        yield f"{target}/{name}", 100 * end
    yield f"{target}/interval/{measure}", interval.method
