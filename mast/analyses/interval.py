"""Means with their 95 % intervals, over seeds or over images."""

from __future__ import annotations

import numpy as np

QUANTILE = 0.975  # of Student's t, at either end


def mean_and_margin(value_NX: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over what is there along the first axis, and half of its 95 % interval (Student's t).

    Args:
        value_NX: (N, ...) with NaN for what is missing.

    Returns:
        Both (...); the mean is NaN where all is missing, the margin with fewer than two values.
    """
    from scipy.special import stdtrit

    there_NX = np.isfinite(value_NX)
    count_X = there_NX.sum(axis=0)
    filled_NX = np.where(there_NX, value_NX, 0)
    mean_X = np.where(count_X > 0, filled_NX.sum(axis=0) / np.maximum(count_X, 1), np.nan)
    squared_X = (np.where(there_NX, filled_NX - mean_X, 0) ** 2).sum(axis=0)
    freedom_X = np.maximum(count_X - 1, 1)
    error_X = np.sqrt(squared_X / freedom_X / np.maximum(count_X, 1))
    return mean_X, np.where(count_X > 1, stdtrit(freedom_X, QUANTILE) * error_X, np.nan)


def with_margin(mean: float, margin: float, sign: str = "", places: int = 1) -> str:
    """A mean with its margin, where it has one: "+1.2 ± 0.4"."""
    text = f"{mean:{sign}.{places}f}"
    return f"{text} ± {margin:.{places}f}" if np.isfinite(margin) else text
