"""How unlike a set of images each image is, by its distance from the set's own neighbours.

N images in the bank, M images that are asked about, D dimensions.
"""

from __future__ import annotations

from torch import Tensor

from mast.core.errors import UserError
from mast.measure.neighbours import nearest

NEIGHBOUR = 5  # of the bank, by rank
SAME = 1 - 1e-5  # cosine above which two images are the same one


def distances(bank_ND: Tensor, queries_MD: Tensor) -> Tensor:
    """One minus the cosine to the fifth nearest bank image, or to the last of a smaller bank.

    An image that is in the bank itself, or has a copy there, is not its own neighbour.

    Args:
        bank_ND: Features of the images that are known.
        queries_MD: Features of those that are asked about.

    Returns:
        distance_M in [0, 2].

    Raises:
        UserError: The bank has no image beside the query.

    Reference:
        Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.
    """
    k = min(NEIGHBOUR + 1, len(bank_ND))
    similarity_MK, _ = nearest(bank_ND, queries_MD, k)
    inside_M = (similarity_MK[:, 0] > SAME).long()
    if k == 1 and inside_M.any():
        raise UserError("there is no other image to compare with: name a set of several")
    at_M = (NEIGHBOUR - 1 + inside_M).clamp(max=k - 1)
    return (1 - similarity_MK.gather(1, at_M[:, None]).squeeze(1)).clamp(min=0)
