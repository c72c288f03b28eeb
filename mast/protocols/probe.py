"""What the protocols share that fit a logistic regression to frozen features.

N images in the pool, M test images, D dimensions, C classes.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mast.measure.accuracy import accuracies, accuracy
from mast.measure.bootstrap import Measured
from mast.measure.frozen import FrozenEncoder
from mast.measure.logistic import Axes, Learned, fit
from mast.measure.sets import EvaluationData, Task, tasks
from mast.protocols.evaluator import Evaluator


@dataclass(frozen=True, kw_only=True)
class Probe(Evaluator[EvaluationData], ABC):
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

    def measure(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """Accuracies on every target, and what validation chose."""
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
