"""How often the 95 % intervals cover the truth, by simulation: score intervals and the bootstrap.

    python benchmarks/interval_coverage.py [--single 100000] [--paired 10000] [--classes 500]
        [--files 1000] [--draws 10000] [--resamples 1000]

Single: test sets of n images, each right with probability p. Paired: two encoders on the same
images, whose being right is correlated by phi; the first is right with probability p, the second
is as good, or makes half the errors. The intervals are those of `mast`. Counts say all of
a test set: those with the same counts share their score interval and up to 20 bootstraps, and what
a bootstrap draws has multinomial counts.

Classes: the mean over classes of so many images each, of one encoder and of two; the bootstrap
that was used before draws from all images, and leaves out a class of which it draws none; it has a
fifth of the resamples here. Files: pieces of so many files, whose shares that are right have a beta
distribution, by the interval that takes pieces for images of their own and by that of files; of one
encoder, of the mean over three classes, each file being of one, and of the difference of two
encoders that are independent and as good. Draws:
how often a difference over a few draws of what is learned from is called clear where there is none;
the accuracies of a draw are normal. Six minutes on one core.
"""

import argparse
import math
from collections.abc import Callable

import numpy as np
import torch
from measure import RESULTS
from torch import Tensor

from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.evaluation.accuracy import class_mean_interval, class_weights
from mast.evaluation.intervals import (
    BOOTSTRAP,
    STUDENT,
    TANGO,
    WILSON,
    WILSON_OF_CLASSES,
    difference_interval,
    mean_interval,
    percentiles,
    resampled_means,
    student_interval,
    tango,
    wilson,
)

ACCURACIES = (0.5, 0.9, 0.95, 0.99)  # p
IMAGES = (50, 100, 340, 1000, 10_000)  # n
CORRELATION = 0.5  # phi
BOOTSTRAPS = 20  # of test sets with the same counts, at the most
CLASSES = {  # images of each
    "100 of 1": [1] * 100,
    "50 of 1, 10 of 20": [1] * 50 + [20] * 10,
    "10 of 3": [3] * 10,
    "17 of 20": [20] * 17,
    "40 of 1 to 40": [max(1, 40 // rank) for rank in range(1, 41)],
}
OF_CLASSES = (0.5, 0.9, 0.99)  # p
FILES = {  # files, pieces of each, and whether these are the same for all or log-normal
    "3 of 36": (3, 36, False),
    "12 of 4": (12, 4, False),
    "12 of 36": (12, 36, False),
    "12 of about 36": (12, 36, True),
    "40 of 36": (40, 36, False),
    "150 of about 36": (150, 36, True),
}
ALIKE = (0.0, 0.1, 0.5, 1.0)  # correlation of two pieces of one file
OF_FILES_RIGHT = (0.5, 0.9)  # p
DRAWS = (2, 5, 10, 30)
SECOND_ENCODER: dict[
    str, Callable[[float], float]
] = {  # how often the second encoder is right, of p
    "is as good": lambda p: p,
    "makes half the errors": lambda p: (1 + p) / 2,
}

Covered = dict[str, float]


def counts(n: int, share_X: list[float], draws: int, generator: torch.Generator) -> Tensor:
    """Multinomial counts of n units: (draws, X)."""
    left, rest, columns = torch.full((draws,), float(n), dtype=torch.float64), 1.0, []
    for share in share_X[:-1]:
        chance = torch.full_like(left, min(1.0, share / rest) if rest > 0 else 0.0)
        columns.append(torch.binomial(left, chance, generator=generator))
        left, rest = left - columns[-1], rest - share
    return torch.stack([*columns, left], dim=1)


def shares_that_cover(
    count_SX: Tensor,
    truth: float,
    intervals: dict[str, Callable[[list[int]], tuple[float, float]]],
) -> Covered:
    """For each kind of interval the percentage of S test sets whose interval has the truth in it.

    Args:
        count_SX: Of each simulated test set.
        truth: What is estimated.
        intervals: From the counts of a test set, by name.
    """
    tables, times = count_SX.long().unique(dim=0, return_counts=True)
    covered: Covered = dict.fromkeys(intervals, 0.0)
    for table, often in zip(tables.tolist(), times.tolist(), strict=True):
        repeats = min(often, BOOTSTRAPS)
        for name, interval in intervals.items():
            ends = [interval(table) for _ in range(repeats)]
            # A resampled mean is a ratio, and equals the truth but for rounding.
            hits = sum(low - 1e-9 <= truth <= high + 1e-9 for low, high in ends)
            covered[name] += often * hits / repeats
    return {name: 100 * number / len(count_SX) for name, number in covered.items()}


def single(
    p: float, n: int, simulations: int, resamples: int, generator: torch.Generator
) -> Covered:
    """Intervals of one accuracy."""

    def bootstrap(table: list[int]) -> tuple[float, float]:
        share_X = [count / n for count in table]
        return percentiles(counts(n, share_X, resamples, generator)[:, 0] / n)

    count_S2 = counts(n, [p, 1 - p], simulations, generator)
    intervals = {BOOTSTRAP: bootstrap, WILSON: lambda table: wilson(table[0], n)}
    return shares_that_cover(count_S2, p, intervals)


def paired(
    p: float, second: float, n: int, simulations: int, resamples: int, generator: torch.Generator
) -> Covered:
    """Intervals of the second encoder's accuracy minus the first's."""
    both = p * second + CORRELATION * math.sqrt(p * (1 - p) * second * (1 - second))
    both = min(both, p, second)
    share_3 = [second - both, p - both, 1 - second - p + 2 * both]  # gained, lost, the others

    def bootstrap(table: list[int]) -> tuple[float, float]:
        share_X = [count / n for count in table]
        drawn_R3 = counts(n, share_X, resamples, generator)
        return percentiles((drawn_R3[:, 0] - drawn_R3[:, 1]) / n)

    count_S3 = counts(n, share_3, simulations, generator)
    intervals = {BOOTSTRAP: bootstrap, TANGO: lambda table: tango(table[0], table[1], n)}
    return shares_that_cover(count_S3, second - p, intervals)


def of_classes(p: float, images: list[int], simulations: int, resamples: int, seed: int) -> Covered:
    """Intervals of the mean over classes: from all images as before, and from each class."""
    draw, count_C = np.random.default_rng(seed), np.array(images)
    labels_N = torch.arange(len(images)).repeat_interleave(torch.tensor(images))
    covered: Covered = dict.fromkeys((BOOTSTRAP, WILSON_OF_CLASSES), 0.0)
    for _ in range(simulations):
        credit_N = torch.from_numpy(draw.random(len(labels_N)) < p).double()
        right_C = torch.bincount(labels_N, credit_N).numpy()
        drawn_RC = draw.multinomial(len(labels_N), count_C / len(labels_N), resamples)
        with np.errstate(invalid="ignore"):  # a class that was not drawn says nothing
            share_RC = torch.from_numpy(draw.binomial(drawn_RC, right_C / count_C) / drawn_RC)
        found = {
            BOOTSTRAP: percentiles(share_RC.nanmean(dim=1)),
            WILSON_OF_CLASSES: class_mean_interval(credit_N, labels_N)[:2],
        }
        for name, (low, high) in found.items():
            covered[name] += 100 * (low - 1e-9 <= p <= high + 1e-9) / simulations
    return covered


def of_classes_paired(
    p: float, second: float, images: list[int], simulations: int, resamples: int, seed: int
) -> Covered:
    """Intervals of a difference in the mean over classes: as before, and Tango's."""
    draw, count_C = np.random.default_rng(seed), np.array(images)
    labels_N = torch.arange(len(images)).repeat_interleave(torch.tensor(images))
    weight_N = class_weights(labels_N)
    both = p * second + CORRELATION * math.sqrt(p * (1 - p) * second * (1 - second))
    both = min(both, p, second)
    covered: Covered = dict.fromkeys((BOOTSTRAP, TANGO), 0.0)
    for _ in range(simulations):
        drawn_N = torch.from_numpy(draw.random(len(labels_N)))
        first_N = drawn_N < p
        second_N = (drawn_N < both) | ((drawn_N >= p) & (drawn_N < p + second - both))
        gain_N = second_N.double() - first_N.double()
        gained_C, lost_C = (
            torch.bincount(labels_N, (gain_N == sign).double()).numpy() for sign in (1, -1)
        )
        drawn_RC = draw.multinomial(len(labels_N), count_C / len(labels_N), resamples)
        gained_RC = draw.binomial(drawn_RC, gained_C / count_C)
        lost_RC = draw.binomial(drawn_RC - gained_RC, lost_C / np.maximum(count_C - gained_C, 1))
        with np.errstate(invalid="ignore"):  # a class that was not drawn says nothing
            share_RC = torch.from_numpy((gained_RC - lost_RC) / drawn_RC)
        found = {
            BOOTSTRAP: percentiles(share_RC.nanmean(dim=1)),
            TANGO: difference_interval(gain_N * weight_N, 0, weight_N=weight_N)[:2],
        }
        for name, (low, high) in found.items():
            covered[name] += 100 * (low - 1e-9 <= second - p <= high + 1e-9) / simulations
    return covered


def credit_of(p: float, alike: float, file_N: np.ndarray, draw: np.random.Generator) -> Tensor:
    """Whether pieces are right: each with the share of its file, which has a beta distribution."""
    share_F = np.full(file_N.max() + 1, p)
    if alike == 1:
        share_F = (draw.random(len(share_F)) < p).astype(float)
    elif alike:
        scale = 1 / alike - 1
        share_F = draw.beta(p * scale, (1 - p) * scale, len(share_F))
    return torch.from_numpy(draw.random(len(file_N)) < share_F[file_N]).double()


def of_files(
    p: float, alike: float, files: int, pieces: int, vary: bool, simulations: int
) -> dict[str, Covered]:
    """Intervals over pieces of files, of which each is one image or its files count."""
    draw = np.random.default_rng(0)
    covered = {
        of: {"pieces": 0.0, "files": 0.0}
        for of in ("one accuracy", "mean over classes", "difference")
    }
    for _ in range(simulations):
        sizes_F = np.full(files, pieces)
        if vary:
            sizes_F = np.maximum(1, draw.lognormal(math.log(pieces) - 0.5, 1, files).round())
        file_N = np.arange(files).repeat(sizes_F.astype(int))
        files_N, labels_N = torch.from_numpy(file_N), torch.from_numpy(file_N % 3)
        first_N, second_N = (credit_of(p, alike, file_N, draw) for _ in range(2))
        for which, groups_N in (("pieces", None), ("files", files_N)):
            found = {
                "one accuracy": (p, mean_interval(first_N, 0, 1, groups_N)),
                "mean over classes": (p, class_mean_interval(first_N, labels_N, groups_N)),
                "difference": (0, difference_interval(second_N - first_N, 0, 1, groups_N)),
            }
            for of, (truth, (low, high, _)) in found.items():
                covered[of][which] += 100 * (low - 1e-9 <= truth <= high + 1e-9) / simulations
    return covered


def clear_by_chance(draws: int, simulations: int, resamples: int, seed: int) -> Covered:
    """Percentage of differences over draws that are called clear where there is none."""
    gain_SD = torch.randn(simulations, draws, generator=torch.Generator().manual_seed(seed)) / 100
    clear: Covered = dict.fromkeys((BOOTSTRAP, STUDENT), 0.0)
    for at, gain_D in enumerate(gain_SD):
        found = {
            BOOTSTRAP: percentiles(resampled_means(gain_D, at, resamples)),
            STUDENT: student_interval(gain_D, least=-1),
        }
        for name, interval in found.items():
            assert interval is not None
            clear[name] += 100 * (interval[0] > 0 or interval[1] < 0) / simulations
    return clear


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--single", type=int, default=100_000, help="test sets of one encoder")
    parser.add_argument("--paired", type=int, default=10_000, help="test sets of two encoders")
    parser.add_argument("--classes", type=int, default=500, help="test sets of classes")
    parser.add_argument("--files", type=int, default=1000, help="test sets of pieces of files")
    parser.add_argument("--draws", type=int, default=10_000, help="differences over draws")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap")
    options = parser.parse_args()
    torch.set_num_threads(1)
    drawn = (options.resamples, torch.Generator().manual_seed(0))
    result = {
        "setting": {**vars(options), "correlation": CORRELATION},
        "single": [
            {"p": p, "n": n, "covered": single(p, n, options.single, *drawn)}
            for p in ACCURACIES
            for n in IMAGES
        ],
        "paired": {
            name: [
                {"p": p, "n": n, "covered": paired(p, second(p), n, options.paired, *drawn)}
                for p in ACCURACIES
                for n in IMAGES
            ]
            for name, second in SECOND_ENCODER.items()
        },
        "classes": [
            {
                "classes": name,
                "p": p,
                "covered": of_classes(p, images, options.classes, options.resamples // 5, 0),
                "paired": {
                    second: of_classes_paired(
                        p, of(p), images, options.classes, options.resamples // 5, 0
                    )
                    for second, of in SECOND_ENCODER.items()
                },
            }
            for name, images in CLASSES.items()
            for p in OF_CLASSES
        ],
        "files": [
            {
                "files": name,
                "p": p,
                "alike": alike,
                "covered": of_files(p, alike, *drawn_from, options.files),
            }
            for name, drawn_from in FILES.items()
            for alike in ALIKE
            for p in OF_FILES_RIGHT
        ],
        "draws": [
            {"draws": n, "clear": clear_by_chance(n, options.draws, options.resamples, 0)}
            for n in DRAWS
        ],
        "provenance": provenance(),
    }
    write_json(RESULTS / "interval_coverage.json", result)


if __name__ == "__main__":
    main()
