"""Which labels are likely wrong: confident learning, from labels and probabilities alone.

The probabilities are those of a classifier that did not see the image: `out_of_fold`.

N images, C classes.

Reference:
    Northcutt, Jiang and Chuang, Confident Learning: Estimating Uncertainty in Dataset Labels,
    JAIR 70, 2021.
"""

from __future__ import annotations

import numpy as np

NO_CLASS = -1


def thresholds(label_N: np.ndarray, probability_NC: np.ndarray) -> np.ndarray:
    """How probable a class must be to be counted: as much as it is, on average, where it is given.

    Args:
        label_N: The given labels, integers below C.
        probability_NC: Of each class, rows that sum to 1.

    Returns:
        threshold_C: infinite for a class that is no image's label.

    Reference:
        Equation 2.
    """
    classes = probability_NC.shape[1]
    count_C = np.bincount(label_N, minlength=classes)
    sum_C = np.bincount(
        label_N, weights=self_confidence(label_N, probability_NC), minlength=classes
    )
    return np.divide(sum_C, count_C, out=np.full(classes, np.inf), where=count_C > 0)


def confident_classes(label_N: np.ndarray, probability_NC: np.ndarray) -> np.ndarray:
    """The class that each image confidently belongs to: the most probable above its threshold.

    Args:
        label_N: As `thresholds`.
        probability_NC: As `thresholds`.

    Returns:
        class_N: `NO_CLASS` where no class reaches its threshold. Where it is another than the
        label, the image is counted off the diagonal of the confident joint, as a likely error.

    Reference:
        Equation 1.
    """
    reached_NC = probability_NC >= thresholds(label_N, probability_NC)
    class_N = np.where(reached_NC, probability_NC, -np.inf).argmax(axis=1)
    return np.where(reached_NC.any(axis=1), class_N, NO_CLASS)


def confident_joint(label_N: np.ndarray, probability_NC: np.ndarray) -> np.ndarray:
    """Counts of images by given label and by the class that they confidently belong to.

    Args:
        label_N: As `thresholds`.
        probability_NC: As `thresholds`.

    Returns:
        count_CC: rows are given labels. Images that belong to no class are not in it.

    Reference:
        Equation 1.
    """
    class_N = confident_classes(label_N, probability_NC)
    count_CC = np.zeros(2 * (probability_NC.shape[1],), np.int64)
    counted_N = class_N != NO_CLASS
    np.add.at(count_CC, (label_N[counted_N], class_N[counted_N]), 1)
    return count_CC


def self_confidence(label_N: np.ndarray, probability_NC: np.ndarray) -> np.ndarray:
    """The probability of each image's own label: the smaller, the likelier the label is wrong.

    Of likely errors it finds more among the first than the margin to the best other class does
    (`benchmarks/label_errors.py`).

    Args:
        label_N: As `thresholds`.
        probability_NC: As `thresholds`.

    Returns:
        confidence_N in [0, 1].
    """
    return np.asarray(probability_NC[np.arange(len(label_N)), label_N], np.float64)
