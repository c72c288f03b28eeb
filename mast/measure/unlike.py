"""How unlike a set of images each image is, by its distance from the set's own neighbours.

N images in the bank, M images that are asked about, D dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mast.measure.neighbours import nearest

NEIGHBOUR = 5  # of the bank, by rank


def distances(bank_ND: Tensor, queries_MD: Tensor, inside_M: np.ndarray) -> Tensor:
    """One less the cosine to the fifth nearest bank image, or to the last of a smaller bank.

    Args:
        bank_ND: Features of the images that are known.
        queries_MD: Features of those that are asked about.
        inside_M: Which of them are in the bank themselves: they are not their own neighbours.

    Returns:
        distance_M in [0, 2].

    Raises:
        UserError: The bank has no image beside the query.

    Reference:
        Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.
    """
    selves = int(inside_M.any())
    k = max(1, min(NEIGHBOUR, len(bank_ND) - selves))
    labels_N = torch.zeros(len(bank_ND), dtype=torch.long)
    similarity_MK, _ = nearest(bank_ND, labels_N, queries_MD, k + selves)
    at_M = k - 1 + torch.from_numpy(inside_M).long()
    return 1 - similarity_MK.gather(1, at_M[:, None]).squeeze(1)
