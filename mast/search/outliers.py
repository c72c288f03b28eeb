"""Distances of images to all others.

N images in the bank, M queries, D dimensions.
"""

import numpy as np
import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.search.nearest import nearest

NEIGHBOUR = 5  # rank of the bank image whose distance counts
SAME = 1 - 1e-5  # cosine above which two images are the same one


def distances(bank_ND: Tensor, first_N: np.ndarray, queries_MD: Tensor | None = None) -> Tensor:
    """One minus the cosine to the fifth nearest bank image (or the farthest of fewer), (M,).

    Copies, which have the same `first_N`, count once. A query's own copy in the bank is skipped;
    by default, the bank's images are the queries.

    Reference:
        Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.
    """
    once_N, of_N = map(torch.from_numpy, np.unique(first_N, return_inverse=True))
    own_M = of_N.to(bank_ND.device) if queries_MD is None else None
    queries_MD, bank_ND = bank_ND if queries_MD is None else queries_MD, bank_ND[once_N]
    k = min(NEIGHBOUR + 1, len(bank_ND))
    similarity_MK, at_MK = nearest(bank_ND, queries_MD, k)
    same_MK = similarity_MK[:, :1] > SAME if own_M is None else at_MK == own_M[:, None]
    inside_M = same_MK[:, :NEIGHBOUR].any(dim=1).long()
    if k == 1 and inside_M.any():
        raise UserError("data: expected two or more different images, got one")
    at_M = (NEIGHBOUR - 1 + inside_M).clamp(max=k - 1)
    return (1 - similarity_MK.gather(1, at_M[:, None]).squeeze(1)).clamp(min=0)


def rescaled(value: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Values scaled so that the smallest of `among` becomes 0, the largest 1; all 0 if equal."""
    return np.asarray((value - among.min()) / max(float(np.ptp(among)), 1e-12))
