"""The linear probe, and what the protocols share that fit one.

N images in the pool, M test images, D dimensions, C classes.
"""

from __future__ import annotations

import logging
from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn

from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, Task, tasks
from mast.evaluation.logistic import (
    PENALTIES,
    Choice,
    LinearClassifier,
    Target,
    Whitened,
    choose,
    fit,
)
from mast.evaluation.protocols.evaluator import Evaluator, Learned, features_of

_log = logging.getLogger("mast")


class FittedProbe(NamedTuple):
    """A classifier of the whole pool, and what validation chose for it."""

    classifier: LinearClassifier
    penalty: float
    validation: float


@dataclass(frozen=True, kw_only=True)
class Probe(Evaluator[EvaluationData], ABC):
    """The linear probe: no augmentation, the penalty chosen on validation, test scored once.

    Without a validation set, a tenth of the training images chooses, and of fewer than 5,000 each
    in its turn, by five-fold cross-validation. The walk over penalties ends after eight worse
    ones in a row, which span two decades. Features are used as they come, without standardisation.

    Args:
        penalties: Values of λ, strongest first.

    Reference:
        Lee et al., Improving Transferability of Representations via Augmentation-Aware
        Self-Supervision (AugSelf), NeurIPS 2021; Kornblith et al., Do Better ImageNet Models
        Transfer Better?, CVPR 2019, section A.
    """

    limits: ClassVar = {"penalties": "(0, inf)"}

    penalties: tuple[float, ...] = PENALTIES

    def probe(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """Accuracies on every target, and what validation chose."""
        pool_ND, test_MD = features_of(encoder, data)
        targets = tasks(data, self.seed)
        for task, learned in zip(targets, self.learn(pool_ND, targets), strict=True):
            yield from self.report(task, learned, learned.classifier.scores(test_MD))

    def report(self, task: Task, learned: FittedProbe, scores_MC: Tensor) -> Iterator[Measured]:
        """Accuracies of the test set, and what validation chose."""
        yield from self.accuracies(task, scores_MC)
        yield from self.chosen(task, learned)

    def chosen(self, task: Task, learned: FittedProbe) -> Iterator[Measured]:
        """What validation chose."""
        yield f"{task.target}/chosen/penalty", learned.penalty
        yield f"{task.target}/chosen/validation", learned.validation

    def learn(self, pool_ND: Tensor, tasks: Sequence[Task]) -> list[FittedProbe]:
        """For each task choose the penalty on validation, and fit the whole pool (N, D) with it."""
        whitened = Whitened.of(pool_ND)
        choices = [self.choose(whitened, task, task.splits) for task in tasks]
        return [
            FittedProbe(self.fit(whitened, task.pool_labels_N, choice.penalty, task), *choice)
            for task, choice in zip(tasks, choices, strict=True)
        ]

    def held_out(self, pool_ND: Tensor, task: Task, penalty: float) -> Tensor:
        """Scores (V, C) of `task.held_out_V`, each by a classifier that has not seen the image."""
        parts = []
        for fit_F, choose_V in task.splits:
            whitened = Whitened.of(pool_ND[fit_F])
            fitted = self.fit(whitened, task.pool_labels_N[fit_F], penalty, task)
            parts.append(fitted.scores(pool_ND[choose_V]))
        return torch.cat(parts)

    def fit(
        self, whitened: Whitened, labels_N: Tensor, penalty: float, task: Task
    ) -> LinearClassifier:
        """A classifier of a task, fitted to features and their labels at one penalty."""
        target = Target(labels_N.to(whitened.x_NP.device), len(task.classes))
        return fit(whitened, target, penalty)

    def choose(
        self, whitened: Whitened, task: Task, splits: Sequence[tuple[Tensor, Tensor]]
    ) -> Choice:
        """The penalty that does best on validation, by splits of positions in the pool."""
        device, classes = whitened.x_NP.device, len(task.classes)
        pairs = tuple((fit_F.to(device), choose_V.to(device)) for fit_F, choose_V in splits)
        target = Target(task.pool_labels_N.to(device), classes, pairs, task.metric)
        choice = choose(whitened, target, self.penalties)
        weakest = min(self.penalties)
        outweighed = 0 < whitened.curvature(classes) <= weakest
        if len(self.penalties) > 1 and (outweighed or choice.penalty == weakest):
            _log.warning(
                "%s: the weakest of the penalties, %g, may be too strong for features that vary "
                "so little: give smaller ones, as in linear.penalties=1e-9, or multiply features",
                task.target, weakest,
            )  # fmt: skip
        return choice


@final
@dataclass(frozen=True, kw_only=True)
class Linear(Probe):
    """The linear probe on the representation of unchanged images; see `Probe`."""

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        yield from self.probe(encoder, data)

    def classifier(self, encoder: FrozenEncoder, data: EvaluationData, task: Task) -> Learned:
        """A classifier of the whole pool, to be stored."""
        pool_ND = encoder.pool_features(data.pool, data.size).to(encoder.device)
        (learned,) = self.learn(pool_ND, [task])
        weight_CD, bias_C = learned.classifier
        head = nn.Linear(weight_CD.shape[1], weight_CD.shape[0], device=weight_CD.device)
        head.load_state_dict({"weight": weight_CD, "bias": bias_C - bias_C.mean()})  # for float32
        scores_VC = self.held_out(pool_ND, task, learned.penalty).cpu()
        labels_V, chosen = task.pool_labels_N[task.held_out_V], {"penalty": learned.penalty}
        return Learned(encoder.module, head, scores_VC, labels_V, chosen)
