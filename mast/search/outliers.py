"""Distances of images to all others.

N images in the bank, M queries, D dimensions.
"""

import numpy as np
from torch import Tensor

from mast.core.errors import UserError
from mast.search.nearest import nearest

NEIGHBOUR = 5  # rank of the bank image whose distance counts
SAME = 1 - 1e-5  # cosine above which two images are the same one


def distances(bank_ND: Tensor, queries_MD: Tensor, own_M: Tensor | None = None) -> Tensor:
    """One minus the cosine to the fifth nearest bank image (or the farthest of fewer), (M,).

    A query's own copy in the bank is skipped: the one at `own_M` or, by default, the one found by
    its cosine. The bank must not contain copies.

    Reference:
        Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.
    """
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
