"""How well the images nearest to an image share its labels.

Each image of a set queries all others by cosine. Images of equal similarity enter a ranking
together, so that nothing depends on the order of the set.

N images in the set, M = N - 1 others of each, R of them queries at once, D dimensions, T targets.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

CHUNK_ELEMENTS = 2**21  # similarities ranked at once: 16 MiB for each count that is kept of them


class Retrieved(NamedTuple):
    """What each image's ranking of the others is worth, each (T, N) float64 in [0, 1].

    Attributes:
        precision: Share of the k nearest that have its label.
        average_precision: Mean, over the images with its label, of the precision at their rank;
            NaN where there is none.
    """

    precision: Tensor
    average_precision: Tensor


def retrieve(queries_ND: Tensor, gallery_ND: Tensor, labels_TN: Tensor, k: int) -> Retrieved:
    """Rank all other images for each image, in bounded memory.

    Args:
        queries_ND: Features of the images as queries, such as after a change.
        gallery_ND: Features of the same images, in the same order, among which to search.
        labels_TN: Their classes, a row a target.
        k: Nearest images that count, at least 1; clipped to the others that there are.

    Returns:
        Both measures, on the device of the features.
    """
    gallery_DN = F.normalize(gallery_ND, dim=1).T
    positions_N = torch.arange(len(gallery_ND), device=gallery_ND.device)
    k = min(k, len(gallery_ND) - 1)
    parts = []
    for own_R in positions_N.split(max(1, CHUNK_ELEMENTS // len(gallery_ND))):
        similarity_RN = F.normalize(queries_ND[own_R], dim=1) @ gallery_DN
        similarity_RN.scatter_(1, own_R[:, None], -torch.inf)  # last in its own ranking
        similarity_RN, ranking_RN = similarity_RN.sort(dim=1, descending=True)
        last_RM = similarity_RN[:, :-1] != similarity_RN[:, 1:]  # of those equally similar
        for labels_N in labels_TN:
            same_RM = labels_N[ranking_RN[:, :-1]] == labels_N[own_R, None]
            found_RM = same_RM.cumsum(dim=1, dtype=torch.float64)
            parts.append((_precision(found_RM, last_RM, k), _average(found_RM, last_RM)))
    targets = len(labels_TN)
    return Retrieved(
        *(
            torch.stack([torch.cat(rows[target::targets]) for target in range(targets)])
            for rows in map(list, zip(*parts, strict=True))
        )
    )


def chance(labels_N: Tensor) -> Tensor:
    """The expected precision of a random order, (N,): the share of the others with its label."""
    return (labels_N.bincount()[labels_N] - 1).double() / (len(labels_N) - 1)


def _precision(found_RM: Tensor, last_RM: Tensor, k: int) -> Tensor:
    """The precision at k; of equals of which some are beyond k, as many as would be on average."""
    rank_M = torch.arange(1, found_RM.shape[1] + 1, device=found_RM.device)
    # What stands before the equals to which the k-th belongs, and where these end.
    before_R = (rank_M[:k] * last_RM[:, :k]).amax(dim=1)
    end_R = k + last_RM[:, k - 1 :].byte().argmax(dim=1)
    padded_RN = F.pad(found_RM, (1, 0))
    found_R, by_end_R = (
        padded_RN.gather(1, rank_R[:, None]).squeeze(1) for rank_R in (before_R, end_R)
    )
    share_R = (k - before_R) / (end_R - before_R).clamp(min=1)
    return (found_R + share_R * (by_end_R - found_R)) / k


def _average(found_RM: Tensor, last_RM: Tensor) -> Tensor:
    """The average precision; equals count with the precision where they end."""
    rank_M = torch.arange(1, found_RM.shape[1] + 1, device=found_RM.device)
    counted_RM = (found_RM * last_RM).cummax(dim=1).values
    gained_RM = counted_RM.diff(dim=1, prepend=torch.zeros_like(counted_RM[:, :1]))
    return (gained_RM * found_RM / rank_M).sum(dim=1) / found_RM[:, -1]
