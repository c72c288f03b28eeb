"""What a task keeps where an operator acts: whether it can afford to be invariant to it.

N images in the pool, M test images, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mast.augment import operators_for
from mast.core.display import track
from mast.encoders.changes import acting_on, changed_by
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.accuracy import chance_level, correct_within
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, tasks
from mast.evaluation.logistic import Whitened
from mast.evaluation.protocols.evaluator import features_of
from mast.evaluation.protocols.probe import Probe

SHARE = 0.5  # of the images that an operator changes


@final
@dataclass(frozen=True, kw_only=True)
class Retained(Probe):
    """The linear probe where one operator at a time acts on images to learn from and to test on.

    What an invariance to the operator would make the encoder forget, the operator hides from the
    probe: turned hues leave little of a color, flipped images no left and right. A task that loses
    accuracy needs what the operator destroys; one that loses none can afford the invariance.
    The operator acts on half of the images, with the parameters that pretraining draws, so that
    the probe cannot learn to undo it. The penalty is the one that validation chose for unchanged
    images; the other settings are those of `linear`.

    Args:
        operators: Names; all by default. Those that need colors are left out of images of other
            channels, for which `band_jitter` takes the place of `color_jitter`.
    """

    operators: tuple[str, ...] = operators_for(3)

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`.

        Yields:
            What `linear` yields, of unchanged images; `chance`, the share of the most frequent
            class of the test set; `with_<operator>`, the accuracy where it acts, and
            `change_<operator>`, how far that is from the accuracy on unchanged images, both with
            intervals over images.
        """
        pool_ND, test_MD = features_of(encoder, data)
        penalties, before = [], []
        targets = tasks(data, self.seed)
        for task, learned in zip(targets, self.learn(pool_ND, targets), strict=True):
            scores_MC = learned.classifier.scores(test_MD)
            yield from self.report(task, learned, scores_MC)
            yield f"{task.target}/chance", chance_level(task.test_labels_M, "top1")
            penalties.append(learned.penalty)
            before.append(correct_within(scores_MC.cpu(), task.test_labels_M, k=1))
        operators = acting_on(self.operators, data.test.reading.layout.channels)
        for name in track(operators, "", len(operators), "operators"):
            pool_ND, test_MD = self._changed(name, encoder, data)
            whitened = Whitened.of(pool_ND)
            for task, before_M, penalty in zip(targets, before, penalties, strict=True):
                classifier = self.fit(whitened, task.pool_labels_N, penalty, task)
                after_M = correct_within(classifier.scores(test_MD).cpu(), task.test_labels_M, k=1)
                yield from self.measured(task, f"with_{name}", after_M)
                by_chance = chance_level(task.test_labels_M, "top1")
                yield f"{task.target}/by_chance/with_{name}", by_chance
                yield from self.measured(
                    task, f"change_{name}", after_M - before_M, difference=True
                )

    def _changed(
        self, name: str, encoder: FrozenEncoder, data: EvaluationData
    ) -> tuple[Tensor, Tensor]:
        """Features of the pool and of the test set, half of them changed."""
        *pool, test_MD = (
            encoder.extract(part, data.size, changed_by(
                name, None, data.size, len(part), self.seed * 1000 + at, SHARE
            ))
            for at, part in enumerate((*data.pool, data.test))
        )  # fmt: skip
        return torch.cat(pool).to(encoder.device), test_MD.to(encoder.device)
