"""How far images lie from all others.

N images in the bank, M queries, D dimensions.
"""

import numpy as np
from torch import Tensor

from mast.core.errors import UserError
from mast.search.nearest import nearest

NEIGHBOUR = 5  # of the bank, by rank
SAME = 1 - 1e-5  # cosine above which two images are the same one


def distances(bank_ND: Tensor, queries_MD: Tensor, own_M: Tensor | None = None) -> Tensor:
    """One minus the cosine to the fifth nearest bank image, or to the last of a smaller bank, (M,).

    An image that is in the bank itself, or has a copy there, is not its own neighbour. That is at
    `own_M`; if not given, it is found by its cosine. In the bank, copies count once.

    Reference:
        Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.
    """
    k = min(NEIGHBOUR + 1, len(bank_ND))
    similarity_MK, at_MK = nearest(bank_ND, queries_MD, k)
    same_MK = similarity_MK[:, :1] > SAME if own_M is None else at_MK == own_M[:, None]
    inside_M = same_MK[:, :NEIGHBOUR].any(dim=1).long()
    if k == 1 and inside_M.any():
        raise UserError("there is no other image to compare with: name a set of several")
    at_M = (NEIGHBOUR - 1 + inside_M).clamp(max=k - 1)
    return (1 - similarity_MK.gather(1, at_M[:, None]).squeeze(1)).clamp(min=0)


def rescaled(value: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Values on a scale on which the smallest among some is 0 and the largest 1; all 0 if equal."""
    return np.asarray((value - among.min()) / max(float(np.ptp(among)), 1e-12))
