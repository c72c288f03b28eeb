"""Calibration of a classifier's probabilities by a temperature.

Scores are divided by a temperature before the softmax, which changes no prediction. It is fitted to
held-out images, as classifiers are overconfident on their training images.

V held-out images, C classes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.evaluation.accuracy import correct_within

BINS = 15
FOLDS = 5


class Calibration(NamedTuple):
    """A temperature, and its effect on held-out images."""

    temperature: float  # fitted to all of them
    error_before: float  # `calibration_error` of the unscaled scores, in percent
    error_after: float  # the same with a temperature, cross-validated over fifths
    images: int  # V


def calibrate(scores_VC: Tensor, labels_V: Tensor, seed: int) -> Calibration:
    """Fit a temperature, and measure calibration by cross-validation.

    Needs scores of two or more held-out images; the seed draws the fifths.
    """
    images = len(labels_V)
    assert images >= 2
    scores_VC = scores_VC.double()
    generator = torch.Generator().manual_seed(seed)
    fold_V = torch.randperm(images, generator=generator) % FOLDS
    probabilities_VC = torch.empty_like(scores_VC)
    for fold in range(min(FOLDS, images)):
        held_V = fold_V == fold
        temperature = fit_temperature(scores_VC[~held_V], labels_V[~held_V])
        probabilities_VC[held_V] = (scores_VC[held_V] / temperature).softmax(dim=1)
    return Calibration(
        fit_temperature(scores_VC, labels_V),
        calibration_error(scores_VC.softmax(dim=1), labels_V),
        calibration_error(probabilities_VC, labels_V),
        images,
    )


def fit_temperature(scores_VC: Tensor, labels_V: Tensor) -> float:
    """The temperature that minimizes the mean negative log-likelihood of held-out images.

    If every image is right, the likelihood grows without bound as the temperature falls, although a
    few images cannot prove that errors never occur. Each image then counts as (V + 1) / (V + C) of
    its class, with the rest spread over the other classes, as in Platt's targets for two. It is 1
    if all scores of each image are equal.

    Reference:
        Guo et al., On Calibration of Modern Neural Networks, ICML 2017, section 4.2; Platt,
        Probabilistic Outputs for Support Vector Machines, 1999, section 2.2, for the targets.
    """
    from scipy.optimize import minimize_scalar

    scores_VC = scores_VC.double() - scores_VC.double().amax(dim=1, keepdim=True)
    spread = -float(scores_VC.min())
    if spread == 0:
        return 1.0
    images, classes = scores_VC.shape
    right = bool((correct_within(scores_VC, labels_V, k=1) == 1).all())
    smoothing = classes / (images + classes) if right else 0.0

    def loss(log: float) -> float:
        scaled_VC = scores_VC / (spread * math.exp(log))
        return float(F.cross_entropy(scaled_VC, labels_V, label_smoothing=smoothing))

    # Beyond these bounds, probabilities are uniform, or 0 and 1.
    ends = math.log(1e-4), math.log(1e4)
    found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-9})
    return spread * math.exp(float(found.x))


def calibration_error(probabilities_VC: Tensor, labels_V: Tensor) -> float:
    """The expected calibration error in percent, over 15 bins of equal width.

    With few images per bin, even a perfectly calibrated classifier has an error above 0.


    Reference:
        Guo et al., On Calibration of Modern Neural Networks, ICML 2017, equation 3.
    """
    confidence_V = probabilities_VC.double().amax(dim=1)
    right_V = correct_within(probabilities_VC, labels_V, k=1).double()
    bin_V = (confidence_V * BINS).ceil().long().clamp(1, BINS) - 1  # (0, 1/15], (1/15, 2/15], …
    gap_B = torch.bincount(bin_V, right_V - confidence_V, minlength=BINS)
    return 100 * float(gap_B.abs().sum()) / len(labels_V)
