"""The weighted nearest neighbours of an encoder's features.

N images in the bank, M queries, D dimensions, K neighbours kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.accuracy import accuracy
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, Task, tasks
from mast.evaluation.protocols.evaluator import Evaluator, features_of
from mast.search.nearest import nearest, votes


@final
@dataclass(frozen=True, kw_only=True)
class Knn(Evaluator[EvaluationData]):
    """Weighted nearest neighbours; k and τ are chosen on validation.

    Fewer than five neighbours cannot name five classes: there is no top-5 accuracy then. Of more,
    the classes that they have are the guesses.

    Args:
        neighbours: Values of k to choose from, clipped to the images there are.
        temperatures: Values of τ to choose from.
    """

    limits: ClassVar = {"neighbours": "(0, inf)", "temperatures": "(0, inf)"}

    neighbours: tuple[int, ...] = (1, 5, 10, 20, 50, 100, 200)
    temperatures: tuple[float, ...] = (0.02, 0.07, 0.2)

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        pool_ND, test_MD = features_of(encoder, data)
        for task in tasks(data, self.seed):
            classes = len(task.classes)
            labels_N = task.pool_labels_N.to(encoder.device)
            fit_F, choose_V = task.fit_F.to(encoder.device), task.choose_V.to(encoder.device)
            k, temperature, validation = self._choose(
                pool_ND[fit_F], labels_N[fit_F], pool_ND[choose_V], labels_N[choose_V], task
            )
            similarity_MK, position_MK = nearest(pool_ND, test_MD, k)
            scores_MC = votes(similarity_MK, labels_N[position_MK], temperature, classes)
            yield from self.accuracies(task, scores_MC, neighbours=k)
            yield f"{task.target}/chosen/k", k
            yield f"{task.target}/chosen/temperature", temperature
            yield f"{task.target}/chosen/validation", validation

    def _choose(
        self, bank_ND: Tensor, bank_labels_N: Tensor, x_MD: Tensor, labels_M: Tensor, task: Task
    ) -> tuple[int, float, float]:
        """The (k, τ, accuracy) that does best on validation; the first of equals."""
        neighbours = sorted({min(k, len(bank_ND)) for k in self.neighbours})
        similarity_MK, position_MK = nearest(bank_ND, x_MD, neighbours[-1])
        labels_MK = bank_labels_N[position_MK]
        tried = []
        for k in neighbours:
            for temperature in self.temperatures:
                scores_MC = votes(
                    similarity_MK[:, :k], labels_MK[:, :k], temperature, len(task.classes)
                )
                tried.append((k, temperature, accuracy(scores_MC, labels_M, task.metric)))
        return max(tried, key=lambda row: row[2])
