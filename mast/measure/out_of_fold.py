"""Class probabilities of every image of a set, by probes that did not see its label.

N images, D dimensions, C classes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mast.core.display import track
from mast.measure.logistic import PENALTIES, Classifier, Split, choose_penalty
from mast.measure.sets import FEW, cross_validation, hold_out


def out_of_fold(features_ND: Tensor, label_N: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Probabilities by the L-BFGS probe on the other folds of a cross-validation.

    The penalty is chosen as `linear` does, by the given labels: by cross-validation of fewer than
    5,000 images, on a tenth of more.

    Args:
        features_ND: Features, on the device on which the probe is fitted.
        label_N: The given labels, integers below C; each that occurs does so twice or more.
        classes: C.
        seed: Of the folds.

    Returns:
        probability_NC in float64.
    """
    labels_N = torch.from_numpy(label_N).to(features_ND.device)
    folds = cross_validation(label_N, seed)
    splits = folds if len(label_N) < FEW else [hold_out(label_N, seed)]
    penalty, _ = choose_penalty(
        [
            Split(features_ND[fit], labels_N[fit], features_ND[choose], labels_N[choose])
            for fit, choose in (map(torch.from_numpy, split) for split in splits)
        ],
        classes,
        PENALTIES,
    )
    probability_NC = np.full((len(label_N), classes), np.nan)
    for fit, held in track(folds, "checking labels", len(folds)):
        classifier = Classifier.fitted(features_ND[fit], labels_N[fit], classes, penalty)
        scores_VC = classifier.scores(features_ND[held]).double()
        probability_NC[held] = scores_VC.softmax(dim=1).cpu().numpy()
    return probability_NC
