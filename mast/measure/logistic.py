"""Multinomial logistic regression on frozen features, to its optimum.

The objective is the mean cross-entropy plus λ/2 ‖W‖² with a free bias (scikit-learn's with
C = 1 / (N λ)). It is minimised in other coordinates than the features', which changes the path but
not the optimum: features are centred (the bias absorbs it), rotated to their principal axes (the
penalty does not see a rotation) and each axis is scaled by its expected curvature, after which
L-BFGS needs tens of steps at any penalty where raw features need thousands.

N images, D dimensions, R principal axes with variance, then the constant axis of the bias
(P = R + 1), V validation images, M test images, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.display import track
from mast.measure.accuracy import accuracy

SPREAD = 1e-10  # variance, relative to the first axis, below which an axis is rounding
CHUNK = 16384  # rows in float64 at once
PENALTIES: tuple[float, ...] = tuple(torch.logspace(5, -6, 45, dtype=torch.float64).tolist())  # λ


@dataclass(frozen=True)
class Axes:
    """Principal axes of a training set, and what its coordinates look like."""

    mean_D: Tensor
    rotation_DR: Tensor
    variance_P: Tensor

    @classmethod
    def fitted(cls, features_ND: Tensor) -> Axes:
        """The axes along which the features vary; weights along the others are 0 anyway."""
        mean_D = features_ND.mean(dim=0, dtype=torch.float64)
        covariance_DD = mean_D.new_zeros(len(mean_D), len(mean_D))
        for chunk_RD in features_ND.split(CHUNK):
            centred_RD = chunk_RD - mean_D
            covariance_DD += centred_RD.T @ centred_RD / len(features_ND)
        variance_D, axes_DD = torch.linalg.eigh(covariance_DD)
        varies_D = variance_D > SPREAD * variance_D[-1].clamp(min=torch.finfo(torch.float32).tiny)
        return cls(
            mean_D=mean_D.to(features_ND),
            rotation_DR=axes_DD[:, varies_D].to(features_ND),
            variance_P=F.pad(variance_D[varies_D], (0, 1), value=1.0).to(features_ND),
        )

    def curvature(self, classes: int) -> float:
        """The cross-entropy's curvature along the strongest axis, at zero weights; 0 without one.

        There every class has probability 1 / C, hence the variance over C.
        """
        return float(self.variance_P[:-1].amax()) / classes if len(self.variance_P) > 1 else 0.0

    def coordinates(self, features_ND: Tensor) -> Tensor:
        """Features along the axes, and a last column of ones for the bias: x_NP."""
        return F.pad((features_ND - self.mean_D) @ self.rotation_DR, (0, 1), value=1.0)


def fit(
    x_NP: Tensor,
    labels_N: Tensor,
    variance_P: Tensor,
    penalty: float,
    start_CP: Tensor,
    *,
    max_iterations: int = 500,
) -> Tensor:
    """Minimise the penalised cross-entropy by full-batch L-BFGS with strong Wolfe steps.

    Args:
        x_NP: Coordinates, the last column the bias's ones.
        labels_N: Classes, int64.
        variance_P: Variance of each coordinate, the last one 1.
        penalty: λ.
        start_CP: Weights to start from.
        max_iterations: Of L-BFGS; convergence usually comes long before.

    Returns:
        weight_CP, detached.
    """
    classes = len(start_CP)
    penalty_P = torch.full_like(variance_P, penalty)
    penalty_P[-1] = 0
    # 1 / C is the curvature of the softmax where all classes are equally likely.
    scale_P = (variance_P / classes + penalty_P).rsqrt()
    scaled_CP = (start_CP / scale_P).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [scaled_CP],
        max_iter=max_iterations,
        max_eval=2 * max_iterations,
        tolerance_grad=1e-6,
        tolerance_change=1e-11,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        weight_CP = scaled_CP * scale_P
        loss = F.cross_entropy(x_NP @ weight_CP.T, labels_N)
        loss = loss + 0.5 * (penalty_P * weight_CP.square()).sum()
        loss.backward()
        return loss.detach()

    optimizer.step(closure)
    return (scaled_CP * scale_P).detach()


@dataclass(frozen=True)
class Classifier:
    """A fitted regression."""

    axes: Axes
    weight_CP: Tensor

    @classmethod
    def fitted(
        cls,
        features_ND: Tensor,
        labels_N: Tensor,
        classes: int,
        penalty: float,
        max_iterations: int = 500,
    ) -> Classifier:
        """Fit features at one penalty.

        Args:
            features_ND: Features as they come.
            labels_N: Classes, int64, on the same device.
            classes: C.
            penalty: λ.
            max_iterations: Of L-BFGS.
        """
        axes = Axes.fitted(features_ND)
        x_NP = axes.coordinates(features_ND)
        start_CP = x_NP.new_zeros(classes, x_NP.shape[1])
        weight_CP = fit(
            x_NP, labels_N, axes.variance_P, penalty, start_CP, max_iterations=max_iterations
        )
        return cls(axes, weight_CP)

    def scores(self, features_MD: Tensor) -> Tensor:
        """Class scores_MC of features, on the device that it was fitted on."""
        return self.axes.coordinates(features_MD.to(self.weight_CP.device)) @ self.weight_CP.T

    def linear(self) -> tuple[Tensor, Tensor]:
        """The same as one linear layer on the features: weight_CD and bias_C."""
        weight_CP = self.weight_CP.double()
        weight_CD = weight_CP[:, :-1] @ self.axes.rotation_DR.double().T
        bias_C = weight_CP[:, -1] - weight_CD @ self.axes.mean_D.double()
        return weight_CD.to(self.weight_CP), bias_C.to(self.weight_CP)


class Split(NamedTuple):
    """Features and labels to fit, and those by which a penalty is chosen; on one device."""

    fit_FD: Tensor
    fit_labels_F: Tensor
    choose_VD: Tensor
    choose_labels_V: Tensor


def choose_penalty(
    splits: Sequence[Split],
    classes: int,
    penalties: Sequence[float],
    *,
    metric: str = "top1",
    patience: int = 8,
    max_iterations: int = 500,
) -> tuple[float, float]:
    """The penalty that does best on validation, the mean over the images of all splits.

    The penalties are walked from the strongest to the weakest, each started at the solution of the
    one before. The walk ends early once `patience` penalties in a row did worse than the best one
    so far. Penalties so strong that they outweigh the data along every axis do not count, since
    accuracy still wanders there. Of equals the strongest is chosen.

    Args:
        splits: One, or those of a cross-validation.
        classes: C.
        penalties: Values of λ, strongest first.
        metric: See `accuracy`.
        patience: Worse penalties in a row that end the walk.
        max_iterations: Of L-BFGS for one penalty.

    Returns:
        The penalty, and the accuracy that it reaches on validation in percent.
    """
    axes = [Axes.fitted(split.fit_FD) for split in splits]
    fit_on = [of.coordinates(split.fit_FD) for of, split in zip(axes, splits, strict=True)]
    choose_by = [of.coordinates(split.choose_VD) for of, split in zip(axes, splits, strict=True)]
    weights = [x_FP.new_zeros(classes, x_FP.shape[1]) for x_FP in fit_on]
    curvature = max(of.curvature(classes) for of in axes)
    total = sum(len(split.choose_VD) for split in splits)
    best, best_accuracy, worse = penalties[0], -1.0, 0
    for penalty in track(penalties, "fitting", len(penalties), "penalties", even=False):
        reached = 0.0
        for at, split in enumerate(splits):
            weights[at] = fit(
                fit_on[at], split.fit_labels_F, axes[at].variance_P, penalty, weights[at],
                max_iterations=max_iterations,
            )  # fmt: skip
            right = accuracy(choose_by[at] @ weights[at].T, split.choose_labels_V, metric)
            reached += right * len(split.choose_VD) / total
        worse = worse + 1 if penalty < curvature and reached < best_accuracy else 0
        if reached > best_accuracy:
            best, best_accuracy = penalty, reached
        if worse == patience:
            break
    return best, best_accuracy
