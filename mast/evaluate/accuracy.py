"""Accuracies of class scores, in percent, with their bootstrap intervals.

N images, C classes.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

TOP5_FROM = 10  # classes; below, five guesses say little


def hits(scores_NC: Tensor, labels_N: Tensor, k: int) -> Tensor:
    """For each image the probability that its class is among the k best, ties broken at random.

    Ties are real: a kNN vote leaves most classes without any, and a collapsed encoder scores
    every class alike. Counting the expectation makes such an encoder score chance, whatever the
    order of the classes.

    Args:
        scores_NC: Larger is more likely.
        labels_N: True classes, int64 in 0..C-1.
        k: How many guesses are allowed.

    Returns:
        (N,) float32 in [0, 1]; 0 or 1 where the true class is not tied.
    """
    true_N1 = scores_NC.gather(1, labels_N[:, None])
    above_N = (scores_NC > true_N1).sum(dim=1)
    tied_N = (scores_NC == true_N1).sum(dim=1)
    return ((k - above_N) / tied_N).clamp(0, 1)


def top1(scores_NC: Tensor, labels_N: Tensor) -> float:
    """Top-1 accuracy in percent, the criterion by which every protocol tunes."""
    return 100 * float(hits(scores_NC, labels_N, k=1).double().mean())


def mean_per_class(hits_N: Tensor, labels_N: Tensor) -> float:
    """The mean, over the classes that occur, of each class's accuracy in percent."""
    count_C = torch.bincount(labels_N).double()
    sum_C = torch.bincount(labels_N, weights=hits_N.double())
    return 100 * float((sum_C[count_C > 0] / count_C[count_C > 0]).mean())


def bootstrap_interval(
    hits_N: Tensor, seed: int, resamples: int = 1000, level: float = 0.95
) -> tuple[float, float]:
    """The percentile bootstrap interval of an accuracy over the test images.

    Args:
        hits_N: Credit of each image, in [0, 1].
        seed: Of the resampling.
        resamples: How many test sets are drawn with replacement.
        level: Coverage.

    Returns:
        Lower and upper end, in percent.
    """
    hits_N = hits_N.cpu()
    n = len(hits_N)
    generator = torch.Generator().manual_seed(seed)
    rows = max(1, 2**22 // n)  # bounds the drawn indices to 32 MiB
    means = torch.cat(
        [
            hits_N[torch.randint(n, (min(rows, resamples - start), n), generator=generator)].mean(1)
            for start in range(0, resamples, rows)
        ]
    )
    tail = (1 - level) / 2
    low, high = torch.quantile(means.double(), torch.tensor([tail, 1 - tail]).double())
    return 100 * float(low), 100 * float(high)


def accuracies(
    target: str,
    scores_NC: Tensor,
    labels_N: Tensor,
    seed: int,
    resamples: int,
    copies: int = 1,
) -> Iterator[tuple[str, float]]:
    """What every classification protocol says of its test scores.

    Args:
        target: What was classified, the first part of each name.
        scores_NC: Test scores, larger is more likely.
        labels_N: True classes.
        seed: Of the bootstrap.
        resamples: Of the bootstrap.
        copies: How many times the test images follow one another, in the same order: the
            bootstrap draws images with all their copies.

    Yields:
        `<target>/top1` with `/top1_low` and `/top1_high` (95 % interval), the same for `top5`
        from 10 classes on, and `<target>/mean_per_class`; all in percent.
    """
    scores_NC, labels_N = scores_NC.cpu(), labels_N.cpu()
    for k in (1, 5) if scores_NC.shape[1] >= TOP5_FROM else (1,):
        hits_N = hits(scores_NC, labels_N, k)
        low, high = bootstrap_interval(hits_N.view(copies, -1).mean(dim=0), seed, resamples)
        yield f"{target}/top{k}", 100 * float(hits_N.double().mean())
        yield f"{target}/top{k}_low", low
        yield f"{target}/top{k}_high", high
    yield f"{target}/mean_per_class", mean_per_class(hits(scores_NC, labels_N, 1), labels_N)
