"""Classification by the votes of the nearest training images.

N images in the bank, M queries, D dimensions, C classes, K neighbours kept.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.errors import UserError
from mast.measure.accuracy import accuracy

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
