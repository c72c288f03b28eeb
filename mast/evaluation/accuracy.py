"""Accuracies of class scores, in percent, with their intervals.

N images, C classes.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.evaluation.intervals import (
    OF_FILES,
    WILSON_OF_CLASSES,
    Interval,
    Measured,
    effective_images,
    ends,
    measured,
    student_factor,
    wilson,
)

GUESSES = {"top1": 1, "top5": 5}  # of the class of an image
TOP5_FROM = 10  # classes; below, five guesses say little


def correct_within(scores_NC: Tensor, labels_N: Tensor, k: int | Tensor) -> Tensor:
    """For each image the probability (N,) that its class is among the k best, ties broken at
    random.

    A collapsed encoder scores all classes equally: by expectation, it reaches chance level.
    """
    bad_N = ~scores_NC.isfinite().all(dim=1)
    if bad_N.any():
        raise UserError(
            f"the class scores of {int(bad_N.sum())} of {len(bad_N)} images are not finite: what "
            "scores them diverged, or the features are too large or damaged"
        )
    true_N1 = scores_NC.gather(1, labels_N[:, None])
    above_N = (scores_NC > true_N1).sum(dim=1)
    tied_N = (scores_NC == true_N1).sum(dim=1)
    return ((k - above_N) / tied_N).clamp(0, 1)


def class_weights(labels_N: Tensor) -> Tensor:
    """What an image counts in the mean over the classes that occur: (N,), of mean 1."""
    count_C = torch.bincount(labels_N).double()
    return len(labels_N) / (count_C[labels_N] * (count_C > 0).sum())


def accuracy(scores_NC: Tensor, labels_N: Tensor, metric: str) -> float:
    """The accuracy by which a protocol tunes, in percent: "top1", or "mean_per_class" over the
    classes that occur.
    """
    credit_N = correct_within(scores_NC, labels_N, k=1).double()
    if metric == "mean_per_class":
        credit_N = credit_N * class_weights(labels_N)
    return 100 * float(credit_N.mean())


def chance_level(labels_N: Tensor, measure: str) -> float:
    """What an accuracy is without a look at the images, in percent.

    "top1" or "top5" as if the most frequent classes of the test images were guessed for all of
    them; "mean_per_class" is one over the classes that occur.
    """
    count_C = torch.bincount(labels_N)
    if measure == "mean_per_class":
        return 100 / int((count_C > 0).sum())
    guessed = count_C.sort(descending=True).values[: GUESSES[measure]]
    return 100 * int(guessed.sum()) / len(labels_N)


def accuracies(
    target: str,
    scores_NC: Tensor,
    labels_N: Tensor,
    seed: int,
    resamples: int,
    neighbours: int | None = None,
    files_N: Tensor | None = None,
) -> Iterator[Measured]:
    """The measures of test scores that every classification protocol reports of a target.

    Args:
        scores_NC: Test scores, larger is more likely.
        labels_N: True classes.
        seed: Of the bootstrap, which draws `resamples` test sets.
        neighbours: How many voted, if scores are votes: there are no measures of more guesses, and
            a class without a vote is no guess.
        files_N: The files of the test images, where some have several.

    Yields:
        What `measured` yields, for "top1" and from 10 classes on "top5"; "mean_per_class" with
        its interval and the weight of each image's credit for "top1" in it; the chance level of
        each.
    """
    scores_NC, labels_N = scores_NC.cpu(), labels_N.cpu()
    for name, k in GUESSES.items():
        if k > 1 and (scores_NC.shape[1] < TOP5_FROM or k > (neighbours or k)):
            continue
        guesses = k if neighbours is None else (scores_NC > 0).sum(dim=1).clamp(max=k)
        credit_N = correct_within(scores_NC, labels_N, guesses).double()
        yield from measured(target, name, credit_N, seed, resamples, files_N=files_N)
        yield f"{target}/by_chance/{name}", chance_level(labels_N, name)
    credit_N = correct_within(scores_NC, labels_N, k=1).double()
    yield f"{target}/mean_per_class", accuracy(scores_NC, labels_N, "mean_per_class")
    yield from ends(target, "mean_per_class", class_mean_interval(credit_N, labels_N, files_N))
    yield f"{target}/weights/mean_per_class", class_weights(labels_N).float()
    yield f"{target}/by_chance/mean_per_class", chance_level(labels_N, "mean_per_class")


def class_mean_interval(
    credit_N: Tensor, labels_N: Tensor, files_N: Tensor | None = None
) -> Interval:
    """The interval of the mean over the classes that occur, the classes being the same in all sets.

    It is Wilson's of as many images as would give the variance of that mean, which is added up from
    the classes. So that the variance of a class with all or no images right is not 0, one
    right and one wrong image are added to each; for an accuracy of a half the result is unbiased,
    for others it is too large, as it is for a class with a single image. Of pieces of files, each
    class has its `effective_images`, and the variance its degrees of freedom (Satterthwaite).

    Reference:
        Dean and Pagano, Evaluating Confidence Interval Methods for Binomial Proportions in
        Clustered Surveys, Journal of Survey Statistics and Methodology 2015.
    """
    _, labels_N = labels_N.unique(return_inverse=True)  # those that occur
    count_C = labels_N.bincount().double()
    mean_C = (torch.bincount(labels_N, credit_N.double()) / count_C).clamp(max=1)
    if files_N is not None:
        of_class = [labels_N == label for label in range(len(count_C))]
        counted = [effective_images(credit_N[at_N], files_N[at_N]) for at_N in of_class]
        number_C, files_C = torch.tensor(counted, dtype=torch.float64).T
        count_C = (number_C - 1).clamp(min=1)  # as below an image is added for what one file was
    smooth_C = (mean_C * count_C + 1) / (count_C + 2)
    variance_C = smooth_C * (1 - smooth_C) / (1 - count_C / (count_C + 2).square()) / count_C
    middle = float(smooth_C.mean())
    images = middle * (1 - middle) * len(count_C) ** 2 / float(variance_C.sum())
    method = WILSON_OF_CLASSES
    if files_N is not None:
        squares_C = variance_C.square() / (files_C - 1).clamp(min=1)
        freedom = float(variance_C.sum() ** 2 / squares_C.sum())
        images, method = images * student_factor(freedom + 1), method + OF_FILES
    images = max(1.0, images)
    return Interval(*wilson(float(mean_C.mean()) * images, images), method)
