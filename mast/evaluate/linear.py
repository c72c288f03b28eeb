"""Multinomial logistic regression on frozen features, to its optimum.

The objective is the mean cross-entropy plus λ/2 ‖W‖² with a free bias (scikit-learn's with
C = 1 / (N λ)). It is minimised in other coordinates than the features', which changes the path but
not the optimum: features are centred (the bias absorbs it), rotated to their principal axes (the
penalty does not see a rotation) and each axis is scaled by its expected curvature, after which
L-BFGS needs tens of steps at any penalty where raw features need thousands.

N images, D dimensions, R principal axes with variance, then the constant axis of the bias
(P = R + 1), C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.evaluate.accuracy import accuracies, accuracy
from mast.evaluate.bootstrap import Measured
from mast.evaluate.data import EvaluationData, Task, tasks
from mast.evaluate.frozen import FrozenEncoder
from mast.evaluate.protocol import Evaluator

SPREAD = 1e-10  # variance, relative to the first axis, below which an axis is rounding
CHUNK = 16384  # rows in float64 at once


@dataclass(frozen=True)
class Axes:
    """Principal axes of a training set, and what its coordinates look like."""

    mean_D: Tensor
    rotation_DR: Tensor
    variance_P: Tensor

    @classmethod
    def of(cls, features_ND: Tensor) -> Axes:
        """The axes along which the features vary; weights along the others are 0 anyway."""
        mean_D = features_ND.mean(dim=0, dtype=torch.float64)
        covariance_DD = mean_D.new_zeros(len(mean_D), len(mean_D))
        for chunk_RD in features_ND.split(CHUNK):
            centred_RD = chunk_RD - mean_D
            covariance_DD += centred_RD.T @ centred_RD / len(features_ND)
        variance_D, axes_DD = torch.linalg.eigh(covariance_DD)
        kept_D = variance_D > SPREAD * variance_D[-1].clamp(min=torch.finfo(torch.float32).tiny)
        return cls(
            mean_D=mean_D.to(features_ND),
            rotation_DR=axes_DD[:, kept_D].to(features_ND),
            variance_P=F.pad(variance_D[kept_D], (0, 1), value=1.0).to(features_ND),
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


class Learned(NamedTuple):
    """A fitted probe, and what validation chose."""

    axes: Axes
    weight_CP: Tensor
    penalty: float
    validation: float

    def scores(self, features_MD: Tensor) -> Tensor:
        """Class scores_MC of features, on the device that the probe was fitted on."""
        return self.axes.coordinates(features_MD.to(self.weight_CP.device)) @ self.weight_CP.T


@dataclass(frozen=True, kw_only=True)
class Linear(Evaluator[EvaluationData]):
    """The L-BFGS probe: no augmentation, the penalty chosen on validation, test scored once.

    The penalties are walked from the strongest to the weakest, each started at the solution of the
    one before. The walk ends early once `patience` penalties in a row did worse on validation than
    the best one so far: with 45 penalties, eight of them span two decades. Penalties so strong that
    they outweigh the data along every axis do not count, since accuracy still wanders there. Of
    equals the strongest is chosen. Features are used as they come, without standardisation.

    Args:
        penalties: Values of λ, strongest first.
        patience: Worse penalties in a row that end the walk.
        max_iterations: Of L-BFGS for one penalty.

    Reference:
        Lee et al., Improving Transferability of Representations via Augmentation-Aware
        Self-Supervision (AugSelf), NeurIPS 2021; Kornblith et al., Do Better ImageNet Models
        Transfer Better?, CVPR 2019, section A.
    """

    at_least: ClassVar[Mapping[str, float]] = {"patience": 1, "max_iterations": 1}
    above: ClassVar[Mapping[str, float]] = {"penalties": 0}

    penalties: tuple[float, ...] = tuple(torch.logspace(5, -6, 45, dtype=torch.float64).tolist())
    patience: int = 8
    max_iterations: int = 500

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`."""
        pool_ND = encoder.pool_features(data.pool, data.size).to(encoder.device)
        test_MD = encoder.features(data.test, data.size).to(encoder.device)
        for task in tasks(data, self.seed):
            learned = self.learn(pool_ND, task)
            yield from self.report(task, learned, learned.scores(test_MD))

    def report(
        self, task: Task, learned: Learned, scores_MC: Tensor, copies: int = 1
    ) -> Iterator[Measured]:
        """Accuracies of the test set (see `accuracies`), and what validation chose."""
        labels_M = task.test_labels_M
        yield from accuracies(task.target, scores_MC, labels_M, self.seed, self.resamples, copies)
        yield f"{task.target}/chosen/penalty", learned.penalty
        yield f"{task.target}/chosen/validation", learned.validation

    def learn(self, pool_ND: Tensor, task: Task) -> Learned:
        """Choose the penalty on validation and fit the whole pool with it.

        Args:
            pool_ND: Features of the pool.
            task: Its labels, and which positions tuning may use.
        """
        device, classes = pool_ND.device, len(task.classes)
        labels_N = task.pool_labels_N.to(device)
        fit_F, choose_V = task.fit_F.to(device), task.choose_V.to(device)
        penalty, validation = self._choose(
            (pool_ND[fit_F], labels_N[fit_F]),
            (pool_ND[choose_V], labels_N[choose_V]),
            classes,
            task.metric,
        )
        axes, weight_CP = self.fitted(pool_ND, labels_N, penalty, classes)
        return Learned(axes, weight_CP, penalty, validation)

    def fitted(
        self, x_ND: Tensor, labels_N: Tensor, penalty: float, classes: int
    ) -> tuple[Axes, Tensor]:
        """Fit features (N, D) at one penalty: their axes, and weight_CP."""
        axes = Axes.of(x_ND)
        return axes, self._fit(axes, axes.coordinates(x_ND), labels_N, penalty, classes=classes)

    def _choose(
        self,
        learned_from: tuple[Tensor, Tensor],
        chosen_by: tuple[Tensor, Tensor],
        classes: int,
        metric: str = "top1",
    ) -> tuple[float, float]:
        """The penalty that does best on validation, and how well; from features and labels."""
        (x_ND, labels_N), (val_MD, val_labels_M) = learned_from, chosen_by
        axes = Axes.of(x_ND)
        x_NP, val_MP = axes.coordinates(x_ND), axes.coordinates(val_MD)
        best, best_accuracy, worse, weight_CP = self.penalties[0], -1.0, 0, None
        for penalty in self.penalties:
            weight_CP = self._fit(
                axes, x_NP, labels_N, penalty, classes=classes, start_CP=weight_CP
            )
            reached = accuracy(val_MP @ weight_CP.T, val_labels_M, metric)
            counts = penalty < axes.curvature(classes) and reached < best_accuracy
            worse = worse + 1 if counts else 0
            if reached > best_accuracy:
                best, best_accuracy = penalty, reached
            if worse == self.patience:
                break
        return best, best_accuracy

    def _fit(
        self,
        axes: Axes,
        x_NP: Tensor,
        labels_N: Tensor,
        penalty: float,
        *,
        classes: int,
        start_CP: Tensor | None = None,
    ) -> Tensor:
        if start_CP is None:
            start_CP = x_NP.new_zeros(classes, x_NP.shape[1])
        return fit(
            x_NP, labels_N, axes.variance_P, penalty, start_CP, max_iterations=self.max_iterations
        )
