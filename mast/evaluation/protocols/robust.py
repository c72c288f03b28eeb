"""What each augmentation costs a probe that never saw it: the use of an invariance, by operator.

M test images, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from mast.augment import OPERATORS, operators_for
from mast.core.display import track
from mast.encoders.changes import acting_on, changed_by
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.accuracy import chance_level, correct_within
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, Task, tasks
from mast.evaluation.protocols.evaluator import features_of
from mast.evaluation.protocols.probe import Probe


@final
@dataclass(frozen=True, kw_only=True)
class Robust(Probe):
    """Accuracy under each operator at several magnitudes.

    The linear probe is fitted to unchanged images, its penalty chosen on unchanged validation
    images; then every test image is changed by one operator at a time. Magnitude 1 is the strongest
    that pretraining draws. Operators without a magnitude are measured once. The other settings are
    those of `linear`.

    Args:
        operators: Names; all by default. Those that need colors are left out of images of other
            channels, for which `band_jitter` takes the place of `color_jitter`.
        magnitudes: From 0 to 1.
    """

    limits: ClassVar = {"magnitudes": "[0, 1]"}

    operators: tuple[str, ...] = operators_for(3)
    magnitudes: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`.

        Yields:
            What `linear` yields, of unchanged images; `<operator>@<magnitude>`, top-1 in percent;
            `<operator>`, its mean over magnitudes; `changed`, the mean over operators; the means
            with their intervals over images.
        """
        pool_ND, test_MD = features_of(encoder, data)
        targets = tasks(data, self.seed)
        probes = list(zip(targets, self.learn(pool_ND, targets), strict=True))
        for task, learned in probes:
            yield from self.report(task, learned, learned.classifier.scores(test_MD))
        credit: dict[str, list[Tensor]] = {task.target: [] for task, _ in probes}
        operators = acting_on(self.operators, data.test.reading.layout.channels)
        for name in track(operators, "", len(operators), "operators", even=False):
            credit_of: dict[str, list[Tensor]] = {target: [] for target in credit}
            for magnitude in self.magnitudes if OPERATORS[name].graded else (None,):
                change = changed_by(name, magnitude, data.size, len(data.test), self.seed)
                changed_MD = encoder.extract(data.test, data.size, change)
                for task, learned in probes:
                    scores_MC = learned.classifier.scores(changed_MD).cpu()
                    credit_M = correct_within(scores_MC, task.test_labels_M, k=1)
                    credit_of[task.target].append(credit_M)
                    if magnitude is not None:
                        percent = 100 * float(credit_M.double().mean())
                        yield f"{task.target}/{name}@{magnitude:g}", percent
            for task, _ in probes:
                credit[task.target].append(torch.stack(credit_of[task.target]).mean(dim=0))
                yield from self._mean(task, name, credit[task.target][-1])
        for task, _ in probes:
            yield from self._mean(task, "changed", torch.stack(credit[task.target]).mean(dim=0))

    def _mean(self, task: Task, name: str, credit_M: Tensor) -> Iterator[Measured]:
        yield from self.measured(task, name, credit_M)
        yield f"{task.target}/by_chance/{name}", chance_level(task.test_labels_M, "top1")
