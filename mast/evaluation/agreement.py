"""How often the nearest images share an image's labels.

Each image of a set queries all others by cosine. Ties are ranked together, so results do not
depend on the order of the set. Pieces of one file do not count as neighbors of each
other.

N images in the set, M = N - 1 others, R queries at once, D dimensions, T targets.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.search.nearest import directions

CHUNK_ELEMENTS = 2**21  # similarities to rank at once: 8 MiB


def precision(same_RM: Tensor, end_RM: Tensor, k_R: Tensor) -> Tensor:
    """Precision at k; a tie across k counts as on average over its orders."""
    end_R = end_RM.gather(1, k_R[:, None] - 1).squeeze(1)
    first_R = (end_RM < end_R[:, None]).sum(dim=1)  # as many places are before these equals
    found_RN = F.pad(same_RM.cumsum(dim=1, dtype=torch.float32), (1, 0))
    before_R, by_end_R = (
        found_RN.gather(1, rank_R[:, None]).squeeze(1).double() for rank_R in (first_R, end_R + 1)
    )
    share_R = (k_R - first_R) / (end_R + 1 - first_R).double()
    # rounding may bring a whole number of them beyond k
    return ((before_R + share_R * (by_end_R - before_R)) / k_R).clamp(max=1)


def retrieve(
    queries_ND: Tensor,
    gallery_ND: Tensor,
    labels_TN: Tensor,
    k: int,
    files_N: Tensor | None = None,
    measure: Callable[[Tensor, Tensor, Tensor], Tensor] = precision,
) -> Tensor:
    """A measure of each image's ranking of all others, (T, N) float64, in bounded memory.

    Queries may be features of the same images after a change. The k nearest count, or all others if
    fewer; images of one file are excluded from each other's rankings. `measure` takes same_RM,
    whether the other image at each rank has the query's label, end_RM, the last rank of its tie,
    and k_R.
    """
    gallery_DN = directions(gallery_ND).T
    positions_N = torch.arange(len(gallery_ND), device=gallery_ND.device)
    file_N = positions_N if files_N is None else files_N.to(gallery_ND.device)
    k_N = (len(gallery_ND) - file_N.bincount()[file_N]).clamp(max=k)
    parts = []
    for own_R in positions_N.split(max(1, CHUNK_ELEMENTS // len(gallery_ND))):
        similarity_RN = directions(queries_ND[own_R]) @ gallery_DN
        similarity_RN[file_N[own_R, None] == file_N] = -torch.inf  # last in its own ranking
        similarity_RN, ranking_RN = similarity_RN.sort(dim=1, descending=True)
        end_RM = _ends(similarity_RN)
        for labels_N in labels_TN:
            same_RM = labels_N[ranking_RN[:, :-1]] == labels_N[own_R, None]
            same_RM &= similarity_RN[:, :-1] > -torch.inf
            parts.append(measure(same_RM, end_RM, k_N[own_R]))
    targets = len(labels_TN)
    return torch.stack([torch.cat(parts[target::targets]) for target in range(targets)])


def chance(labels_N: Tensor, files_N: Tensor | None = None) -> Tensor:
    """Expected precision of a random order, (N,): the share of others with the same label."""
    same_N = labels_N.bincount()[labels_N]
    if files_N is None:
        return (same_N - 1).double() / (len(labels_N) - 1)
    pair_N = files_N * (int(labels_N.max()) + 1) + labels_N
    return (same_N - _counts(pair_N)).double() / (len(labels_N) - _counts(files_N))


def _counts(number_N: Tensor) -> Tensor:
    """How often each number occurs, (N,)."""
    _, of_N, count_U = number_N.unique(return_inverse=True, return_counts=True)
    return count_U[of_N]


def _ends(sorted_RN: Tensor) -> Tensor:
    """For each rank but the last, the last rank of its tie."""
    place_M = torch.arange(sorted_RN.shape[1] - 1, device=sorted_RN.device)
    ends_RM = sorted_RN[:, :-1] != sorted_RN[:, 1:]
    end_RM = torch.where(ends_RM, place_M, len(place_M) - 1)
    return end_RM.flip(1).cummin(dim=1).values.flip(1)
