"""Classification by the votes of the nearest training images.

N images in the bank, M queries, D dimensions, C classes, K neighbours kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.errors import UserError
from mast.evaluate.accuracy import accuracies, accuracy
from mast.evaluate.bootstrap import Measured
from mast.evaluate.data import EvaluationData, Task, tasks
from mast.evaluate.frozen import FrozenEncoder
from mast.evaluate.protocol import Evaluator

CHUNK_ELEMENTS = 2**24  # similarities held at once: 64 MiB


def nearest(
    bank_ND: Tensor, bank_labels_N: Tensor, queries_MD: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k nearest bank images of each query by cosine, nearest first, in bounded memory.

    Args:
        bank_ND: Features to search.
        bank_labels_N: Their classes.
        queries_MD: Features to search for.
        k: How many to keep, at most N.

    Returns:
        similarity_MK in [-1, 1], labels_MK.

    Raises:
        UserError: If k exceeds the bank.
    """
    if not 1 <= k <= len(bank_ND):
        raise UserError(
            f"expected k between 1 and the {len(bank_ND)} training images, got {k}. Ask for "
            "fewer neighbours or give more images."
        )
    bank_DN = F.normalize(bank_ND, dim=1).T
    similarities, labels = [], []
    for chunk_RD in queries_MD.split(max(1, CHUNK_ELEMENTS // len(bank_ND))):
        similarity_RK, index_RK = (F.normalize(chunk_RD, dim=1) @ bank_DN).topk(k, dim=1)
        similarities.append(similarity_RK)
        labels.append(bank_labels_N[index_RK])
    return torch.cat(similarities), torch.cat(labels)


def votes(similarity_MK: Tensor, labels_MK: Tensor, temperature: float, classes: int) -> Tensor:
    """Sum each neighbour's weight exp(similarity / temperature) into its class.

    Args:
        similarity_MK: Cosine of each neighbour, nearest first.
        labels_MK: Class of each neighbour.
        temperature: τ; smaller trusts the nearest more.
        classes: C.

    Returns:
        scores_MC: in units of the nearest neighbour's weight, so that no τ overflows.

    Reference:
        Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination,
        CVPR 2018, section 3.4.
    """
    weight_MK = ((similarity_MK - similarity_MK[:, :1]) / temperature).exp()
    scores_MC = weight_MK.new_zeros(len(weight_MK), classes)
    return scores_MC.scatter_add_(1, labels_MK, weight_MK)


def knn_accuracy(
    train_features_ND: Tensor,
    train_labels_N: Tensor,
    test_features_MD: Tensor,
    test_labels_M: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
) -> float:
    """Top-1 accuracy of a weighted kNN, light enough to follow a pretraining run with.

    Args:
        train_features_ND: Features of the bank.
        train_labels_N: Classes of the bank, int64 from 0.
        test_features_MD: Features of the queries.
        test_labels_M: True classes of the queries.
        k: Neighbours that vote, at most N.
        temperature: τ of their weights.

    Returns:
        Accuracy in percent.

    Raises:
        UserError: If k exceeds N.
    """
    similarity_MK, labels_MK = nearest(train_features_ND, train_labels_N, test_features_MD, k)
    classes = 1 + int(max(train_labels_N.max(), test_labels_M.max()))
    scores_MC = votes(similarity_MK, labels_MK, temperature, classes)
    return accuracy(scores_MC, test_labels_M, "top1")


@dataclass(frozen=True, kw_only=True)
class Knn(Evaluator[EvaluationData]):
    """Weighted nearest neighbours; k and τ are chosen on validation.

    Args:
        neighbours: Values of k to choose from, clipped to the images there are.
        temperatures: Values of τ to choose from.
    """

    at_least: ClassVar[Mapping[str, float]] = {"neighbours": 1}
    above: ClassVar[Mapping[str, float]] = {"temperatures": 0}

    neighbours: tuple[int, ...] = (1, 5, 10, 20, 50, 100, 200)
    temperatures: tuple[float, ...] = (0.02, 0.07, 0.2)

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`."""
        pool_ND = encoder.pool_features(data.pool, data.size).to(encoder.device)
        test_MD = encoder.features(data.test, data.size).to(encoder.device)
        for task in tasks(data, self.seed):
            classes = len(task.classes)
            labels_N = task.pool_labels_N.to(encoder.device)
            fit_F, choose_V = task.fit_F.to(encoder.device), task.choose_V.to(encoder.device)
            k, temperature, validation = self._choose(
                pool_ND[fit_F], labels_N[fit_F], pool_ND[choose_V], labels_N[choose_V], task
            )
            similarity_MK, labels_MK = nearest(pool_ND, labels_N, test_MD, k)
            scores_MC = votes(similarity_MK, labels_MK, temperature, classes)
            yield from accuracies(
                task.target, scores_MC, task.test_labels_M, self.seed, self.resamples
            )
            yield f"{task.target}/chosen/k", k
            yield f"{task.target}/chosen/temperature", temperature
            yield f"{task.target}/chosen/validation", validation

    def _choose(
        self, bank_ND: Tensor, bank_labels_N: Tensor, x_MD: Tensor, labels_M: Tensor, task: Task
    ) -> tuple[int, float, float]:
        """The (k, τ, accuracy) that does best on validation; the first of equals."""
        neighbours = sorted({min(k, len(bank_ND)) for k in self.neighbours})
        similarity_MK, labels_MK = nearest(bank_ND, bank_labels_N, x_MD, neighbours[-1])
        tried = []
        for k in neighbours:
            for temperature in self.temperatures:
                scores_MC = votes(
                    similarity_MK[:, :k], labels_MK[:, :k], temperature, len(task.classes)
                )
                tried.append((k, temperature, accuracy(scores_MC, labels_M, task.metric)))
        return max(tried, key=lambda row: row[2])
