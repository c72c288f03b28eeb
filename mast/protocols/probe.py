"""What the protocols share that fit a logistic regression to frozen features.

N images in the pool, M test images, D dimensions, C classes.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mast.measure.accuracy import accuracies
from mast.measure.bootstrap import Measured
from mast.measure.frozen import FrozenEncoder
from mast.measure.logistic import PENALTIES, Classifier, Split, choose_penalty
from mast.measure.sets import EvaluationData, Task, tasks
from mast.protocols.evaluator import Evaluator


class Learned(NamedTuple):
    """A classifier of the whole pool, and what validation chose for it."""

    classifier: Classifier
    penalty: float
    validation: float

    def scores(self, features_MD: Tensor) -> Tensor:
        """Class scores_MC of features, on the device of the pool's."""
        return self.classifier.scores(features_MD)


@dataclass(frozen=True, kw_only=True)
class Probe(Evaluator[EvaluationData], ABC):
    """The L-BFGS probe: no augmentation, the penalty chosen on validation, test scored once.

    Without a validation set, a tenth of the training images chooses, and of fewer than 5,000 each
    in its turn, by five-fold cross-validation.

    See `mast.measure.logistic.choose_penalty` for the choice; with these penalties a patience of
    eight spans two decades. Features are used as they come, without standardisation.

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

    penalties: tuple[float, ...] = PENALTIES
    patience: int = 8
    max_iterations: int = 500

    def probe(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """Accuracies on every target, and what validation chose."""
        pool_ND = encoder.pool_features(data.pool, data.size).to(encoder.device)
        test_MD = encoder.features(data.test, data.size)
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
        penalty, validation = self.choose(pool_ND, task, task.splits)
        classifier = self.fit(pool_ND, task.pool_labels_N, penalty, task)
        return Learned(classifier, penalty, validation)

    def choose(
        self, pool_ND: Tensor, task: Task, splits: Sequence[tuple[Tensor, Tensor]]
    ) -> tuple[float, float]:
        """The penalty that does best on validation, and its accuracy there.

        Args:
            pool_ND: Features of the pool.
            task: Its labels.
            splits: Positions in the pool to fit on and to choose by.
        """
        labels_N = task.pool_labels_N.to(pool_ND.device)
        on_device = [[part.to(pool_ND.device) for part in split] for split in splits]
        return choose_penalty(
            [
                Split(pool_ND[fit_F], labels_N[fit_F], pool_ND[choose_V], labels_N[choose_V])
                for fit_F, choose_V in on_device
            ],
            len(task.classes),
            self.penalties,
            metric=task.metric,
            patience=self.patience,
            max_iterations=self.max_iterations,
        )

    def held_out(self, pool_ND: Tensor, task: Task, penalty: float) -> Tensor:
        """Scores (V, C) of the images that choose, each by a classifier that has not seen it.

        Args:
            pool_ND: Features of the pool.
            task: Its `held_out_V` says which images these are, in their order.
            penalty: λ.
        """
        parts = []
        for fit_F, choose_V in task.splits:
            fitted = self.fit(pool_ND[fit_F], task.pool_labels_N[fit_F], penalty, task)
            parts.append(fitted.scores(pool_ND[choose_V]))
        return torch.cat(parts)

    def fit(self, x_ND: Tensor, labels_N: Tensor, penalty: float, task: Task) -> Classifier:
        """A classifier of a task, fitted to features (N, D) and their labels at one penalty."""
        return Classifier.fitted(
            x_ND, labels_N.to(x_ND.device), len(task.classes), penalty, self.max_iterations
        )
