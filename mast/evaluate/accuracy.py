"""Accuracies of class scores, in percent, with their bootstrap intervals.

N images, C classes.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from mast.evaluate.bootstrap import Measured, measured

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


def shares(labels_N: Tensor) -> Tensor:
    """What an image counts in the mean over the classes that occur: (N,), of mean 1."""
    count_C = torch.bincount(labels_N).double()
    return len(labels_N) / (count_C[labels_N] * (count_C > 0).sum())


def accuracy(scores_NC: Tensor, labels_N: Tensor, metric: str) -> float:
    """The accuracy by which a protocol tunes, in percent.

    Args:
        scores_NC: Larger is more likely.
        labels_N: True classes.
        metric: "top1", or "mean_per_class": the mean, over the classes that occur, of each class's
            accuracy.
    """
    hits_N = hits(scores_NC, labels_N, k=1).double()
    if metric == "mean_per_class":
        hits_N = hits_N * shares(labels_N)
    return 100 * float(hits_N.mean())


def accuracies(
    target: str,
    scores_NC: Tensor,
    labels_N: Tensor,
    seed: int,
    resamples: int,
    copies: int = 1,
) -> Iterator[Measured]:
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
        What `measured` yields, for "top1", from 10 classes on "top5", and "mean_per_class".
    """
    scores_NC, labels_N = scores_NC.cpu(), labels_N.cpu()

    def each(k: int, weight_N: Tensor | None = None) -> Tensor:
        hits_N = hits(scores_NC, labels_N, k).double()
        if weight_N is not None:
            hits_N = hits_N * weight_N
        return hits_N.view(copies, -1).mean(dim=0)

    top5 = scores_NC.shape[1] >= TOP5_FROM
    for name, credit_N in {
        "top1": each(1),
        **({"top5": each(5)} if top5 else {}),
        "mean_per_class": each(1, shares(labels_N)),
    }.items():
        yield from measured(target, name, credit_N, seed, resamples)
