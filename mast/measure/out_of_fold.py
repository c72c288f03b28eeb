"""Class probabilities of every image of a set, by probes that did not see its label.

N images, D dimensions, C classes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mast.core.display import track
from mast.measure.logistic import Classifier, Located, Target
from mast.measure.penalty import PENALTIES, choose
from mast.measure.sets import FEW, cross_validation, hold_out


def out_of_fold(
    features_ND: Tensor,
    label_N: np.ndarray,
    classes: int,
    seed: int,
    groups_N: np.ndarray | None = None,
) -> np.ndarray:
    """Probabilities by the L-BFGS probe on the other folds of a cross-validation.

    The penalty is chosen as `linear` does, by the given labels: by cross-validation of fewer than
    5,000 images, on a tenth of more.

    Args:
        features_ND: Features, on the device on which the probe is fitted.
        label_N: The given labels, integers below C; each that occurs does so twice or more.
        classes: C.
        seed: Of the folds.
        groups_N: As of `hold_out`.

    Returns:
        probability_NC in float64.
    """
    device = features_ND.device

    def placed(split: tuple[np.ndarray, np.ndarray]) -> tuple[Tensor, Tensor]:
        fit_F, held_V = (torch.from_numpy(part).to(device) for part in split)
        return fit_F, held_V

    folds = [placed(split) for split in cross_validation(label_N, seed, groups_N=groups_N)]
    splits = folds if len(label_N) < FEW else [placed(hold_out(label_N, seed, groups_N=groups_N))]
    target = Target(torch.from_numpy(label_N).to(device), classes, tuple(splits))
    (choice,) = choose(Located.of(features_ND), [target], PENALTIES)
    probability_NC = np.full((len(label_N), classes), np.nan)
    for fit, held in track(folds, "checking labels", len(folds), "folds"):
        classifier = Classifier.fitted(
            features_ND[fit], target.labels_N[fit], classes, choice.penalty
        )
        probability_VC = classifier.scores(features_ND[held]).softmax(dim=1)
        probability_NC[held.cpu()] = probability_VC.cpu().numpy()
    return probability_NC
