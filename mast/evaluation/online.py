"""Scores to watch a run by, while it trains. N images, D dimensions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from mast.core.compute import Compute
from mast.data.canvas import CanvasSet
from mast.data.groups import groups_of
from mast.data.source import UNLABELLED
from mast.encoders.extract import extract
from mast.evaluation.accuracy import accuracy
from mast.search.nearest import nearest, votes


def online_scores(
    encoder: nn.Module,
    canvases: CanvasSet,
    size: int,
    limit: int = 4096,
    compute: Compute | None = None,
) -> dict[str, float]:
    """Scores to watch a run by; they are measured on its own training images.

    At most `limit` images, evenly spaced, are used; every fifth is a query of the kNN, and of tiles
    and pages those of every fifth file. Each of the processes of `compute` must call this.

    Returns:
        "online/effective_rank", and of five images or more with labels "online/knn" in percent,
        the mean over tasks.
    """
    count = min(limit, len(canvases))
    index_N = np.arange(count) * len(canvases) // max(count, 1)
    # of canvases: views of the whole images would be made of all of the set first
    some = replace(canvases.part(index_N), test_views=None)
    features_NC = extract(encoder, some, size, compute)
    scores = {"online/effective_rank": effective_rank(features_NC)}
    groups_N = groups_of(some.units)
    number_N = np.arange(len(index_N)) if groups_N is None else groups_N
    query_N = torch.from_numpy(number_N) % 5 == 4
    accuracies = []
    for target in canvases.targets.values() if len(index_N) > 4 else ():
        labels_N = torch.from_numpy(target[index_N])
        bank_N, queries_N = (some_N & (labels_N != UNLABELLED) for some_N in (~query_N, query_N))
        if not bank_N.any() or not queries_N.any():
            continue
        bank_BC, bank_B = features_NC[bank_N], labels_N[bank_N]
        cosine_MK, at_MK = nearest(bank_BC, features_NC[queries_N], min(20, len(bank_BC)))
        scores_MC = votes(cosine_MK, bank_B[at_MK], 0.07, 1 + int(labels_N.max()))
        accuracies.append(accuracy(scores_MC, labels_N[queries_N], "top1"))
    if accuracies:
        scores["online/knn"] = float(np.mean(accuracies))
    return scores


def effective_rank(features_ND: Tensor) -> float:
    """The exponential of the entropy of the normalised singular values (RankMe) of features (N, D).

    One dimension collapsed onto gives 1, D equally strong orthogonal dimensions give D; 0 where
    every feature is zero. As in the reference the features are not centred.

    Reference:
        Garrido et al., RankMe: Assessing the Downstream Performance of Pretrained Self-Supervised
        Representations by Their Rank, ICML 2023, eq. 1.
    """
    x_ND = features_ND.double()
    n, d = x_ND.shape
    # The smaller Gram matrix in float64 keeps singular values down to 1e-8 of the largest, more
    # than the float32 features hold, at a fraction of the cost of a decomposition of (N, D).
    gram = x_ND.T @ x_ND if d <= n else x_ND @ x_ND.T
    eigenvalues = torch.linalg.eigvalsh(gram)
    # Below this the square root would turn rounding of the Gram matrix into singular values.
    rounding = eigenvalues[-1] * torch.finfo(torch.float64).eps * max(n, d)
    singular = eigenvalues[eigenvalues > rounding].sqrt()
    if len(singular) == 0:
        return 0.0
    share = singular / singular.sum()
    return float(torch.special.entr(share).sum().exp())
