"""Labels that are likely wrong, by confident learning: from labels and the probabilities of a
classifier that did not see the image (`out_of_fold`).

N images, C classes, D dimensions.

Reference:
    Northcutt, Jiang and Chuang, Confident Learning: Estimating Uncertainty in Dataset Labels,
    JAIR 70, 2021.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mast.core.display import track
from mast.evaluation.labelled_sets import FEW, cross_validation, hold_out
from mast.evaluation.logistic import PENALTIES, Target, Whitened, choose, fit

NO_CLASS = -1
_log = logging.getLogger("mast")


def confident_classes(label_N: np.ndarray, probability_NC: np.ndarray) -> np.ndarray:
    """The class that each image confidently belongs to, or `NO_CLASS` (equations 1 and 2).

    It is the most probable of the classes that are at least as probable as on average for images
    with that label.
    """
    classes, own_N = probability_NC.shape[1], self_confidence(label_N, probability_NC)
    with np.errstate(invalid="ignore"):  # NaN for a class that is no image's label
        least_C = np.bincount(label_N, own_N, classes) / np.bincount(label_N, minlength=classes)
    reached_NC = probability_NC >= least_C
    class_N = np.where(reached_NC, probability_NC, -np.inf).argmax(axis=1)
    return np.where(reached_NC.any(axis=1), class_N, NO_CLASS)


def likely_errors(label_N: np.ndarray, probability_NC: np.ndarray) -> np.ndarray:
    """Which labels (N,) are likely wrong: of each class those with the smallest probability.

    Their number is the share of its confident images that belong to another class (section 3.2,
    "prune by class"). It finds 28 to 57 % more human errors than the images off the diagonal of the
    confident joint, at a precision at most 2 points lower (`benchmarks/label_errors.py`).
    """
    class_N = confident_classes(label_N, probability_NC)
    quality_N = self_confidence(label_N, probability_NC)
    wrong_N = np.zeros(len(label_N), bool)
    for label in np.unique(label_N):
        at_K = np.flatnonzero(label_N == label)
        confident_K = class_N[at_K][class_N[at_K] != NO_CLASS]
        if len(confident_K):
            count = int(len(at_K) * float((confident_K != label).mean()))
            wrong_N[at_K[quality_N[at_K].argsort(kind="stable")[:count]]] = True
    return wrong_N


def self_confidence(label_N: np.ndarray, probability_NC: np.ndarray) -> np.ndarray:
    """The probability of each image's own label: the smaller, the likelier the label is wrong.

    Among the first, it finds as many errors as the margin to the best other class
    (`benchmarks/label_errors.py`).
    """
    return np.asarray(probability_NC[np.arange(len(label_N)), label_N], np.float64)


def out_of_fold(
    features_ND: Tensor,
    label_N: np.ndarray,
    classes: int,
    seed: int,
    groups_N: np.ndarray | None = None,
) -> np.ndarray:
    """Probabilities (N, C), float64, by the probe on the other folds of a cross-validation.

    The penalty is chosen as in `linear`, by labels that occur twice or more.
    """
    device = features_ND.device

    def placed(split: tuple[np.ndarray, np.ndarray]) -> tuple[Tensor, Tensor]:
        fit_F, held_V = (torch.from_numpy(part).to(device) for part in split)
        return fit_F, held_V

    folds = [placed(split) for split in cross_validation(label_N, seed, groups_N=groups_N)]
    splits = folds if len(label_N) < FEW else [placed(hold_out(label_N, seed, groups_N=groups_N))]
    target = Target(torch.from_numpy(label_N).to(device), classes, tuple(splits))
    choice = choose(Whitened.of(features_ND), target, PENALTIES)
    probability_NC = np.full((len(label_N), classes), np.nan)
    for fit_F, held_V in track(folds, "checking labels", len(folds), "folds"):
        learned = Target(target.labels_N[fit_F], classes)
        classifier = fit(Whitened.of(features_ND[fit_F]), learned, choice.penalty)
        probability_VC = classifier.scores(features_ND[held_V]).softmax(dim=1)
        probability_NC[held_V.cpu()] = probability_VC.cpu().numpy()
    return probability_NC


class Checked(NamedTuple):
    """Labels compared with out-of-fold predictions."""

    columns: dict[str, list[Any]]  # of each image `label`, `suggested` if suspect, and `quality`
    suspects: list[int]  # images whose label may be wrong, the least probable first
    heading: str


def checked_labels(
    units: Sequence[str],
    label_N: np.ndarray,
    classes: Sequence[str],
    features_ND: Tensor,
    first_N: np.ndarray,
    seed: int,
) -> Checked | None:
    """Compare labels with out-of-fold predictions of probes.

    Those are the labels that images of other units have, too. No probe sees an image of the same
    unit, nor a copy: `first_N` are the first copies.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, first_U, unit_N = np.unique(units, return_index=True, return_inverse=True)
    links = np.concatenate([first_N, first_U[unit_N]])
    at, ones = np.tile(np.arange(len(label_N)), 2), np.ones(len(links))
    graph = coo_array((ones, (at, links)), shape=(len(label_N),) * 2)
    group_N = connected_components(graph, directed=False)[1]
    label_P, _ = np.unique(np.stack([label_N, group_N]), axis=1)
    of_groups, counts = np.unique(label_P, return_counts=True)
    several = of_groups[(of_groups > NO_CLASS) & (counts > 1)]
    if len(several) < 2:
        _log.warning("labels are not checked: fewer than two classes have several images")
        return None
    judged_J = np.flatnonzero(np.isin(label_N, several))
    label_J = label_N[judged_J]
    probability_JC = out_of_fold(
        features_ND[judged_J], label_J, len(classes), seed, group_N[judged_J]
    )
    suggested_N, quality_N = np.full(len(label_N), NO_CLASS), np.full(len(label_N), np.nan)
    quality_N[judged_J] = self_confidence(label_J, probability_JC)
    others_JC = probability_JC.copy()
    others_JC[np.arange(len(label_J)), label_J] = -1
    wrong_J = likely_errors(label_J, probability_JC)
    suggested_N[judged_J] = np.where(wrong_J, others_JC.argmax(axis=1), NO_CLASS)
    agreed = 100 * float((probability_JC.argmax(axis=1) == label_J).mean())
    found = np.flatnonzero(suggested_N != NO_CLASS)
    suspects: list[int] = found[quality_N[found].argsort(kind="stable")].tolist()
    first = ", the least probable first" if len(suspects) > 1 else ""
    heading = (
        f"{len(suspects):,} of the labels may be wrong{first}; the probes agree with "
        f"{agreed:.0f} % of all"
    )
    names = [*classes, ""]  # the last is that of NO_CLASS
    columns = {
        "label": [names[label] for label in label_N],
        "suggested": [names[label] for label in suggested_N],
        "quality": quality_N.tolist(),
    }
    return Checked(columns, suspects, heading)
