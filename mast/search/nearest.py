"""Nearest images by cosine, and kNN classification.

N images in the bank, M queries, D dimensions, K neighbours kept, C classes; R rows and C columns of
a block of cosines.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mast.core.errors import UserError

CHUNK_ELEMENTS = 2**24  # cosines, or numbers of the bank, held at once: 64 MiB
SHORT = 1e-15  # length of vectors whose squares overflow float32
LEAST = torch.finfo(torch.float32).tiny  # smallest length to divide by, so that zeros have a cosine
NEAR = 0.99  # cosine of standardized features of copies; docs/log.md
DEAD = 1e-4  # share of the median deviation below which a dimension is dropped
FEWEST = 10  # fewest images to standardize with; docs/log.md
ROWS = 1024  # queries at a time: enough that reading the bank costs little


def nearest(bank_ND: Tensor, queries_MD: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest bank images of each query by cosine, nearest first, in bounded memory.

    Returns similarity_MK in [-1, 1] and position_MK in the bank.
    """
    if not 1 <= k <= len(bank_ND):
        raise UserError(
            f"k: expected 1 to {len(bank_ND)}, the number of images to search, got {k}. Ask for "
            "fewer neighbors or add images."
        )
    similarity_MK = queries_MD.new_empty(len(queries_MD), k)
    position_MK = torch.empty(len(queries_MD), k, dtype=torch.long, device=queries_MD.device)
    for top, left, cosine_RC in cosines(bank_ND, queries_MD):
        rows = slice(top, top + len(cosine_RC))
        best_RK, at_RK = cosine_RC.topk(min(k, cosine_RC.shape[1]), dim=1)
        at_RK += left
        if left:
            before = min(k, left)  # best of the columns before this block
            best_RK = torch.cat([similarity_MK[rows, :before], best_RK], dim=1)
            at_RK = torch.cat([position_MK[rows, :before], at_RK], dim=1)
            best_RK, order_RK = best_RK.topk(min(k, best_RK.shape[1]), dim=1)
            at_RK = at_RK.gather(1, order_RK)
        similarity_MK[rows, : best_RK.shape[1]] = best_RK
        position_MK[rows, : at_RK.shape[1]] = at_RK
    return similarity_MK, position_MK


def cosines(
    bank_ND: Tensor, queries_MD: Tensor, *, above_diagonal: bool = False
) -> Iterator[tuple[int, int, Tensor]]:
    """All cosines, a block at a time: its first row and column, and cosine_RC in [-1, 1].

    `above_diagonal` leaves out the blocks that lie below the diagonal.
    """
    rows, columns = block_shape(bank_ND, queries_MD)
    # Unit vectors of the bank would be a copy of it, which takes longer than a few queries.
    length_N = lengths(bank_ND)
    for top in range(0, len(queries_MD), rows):
        unit_RD = directions(queries_MD[top : top + rows])
        for left in range(0, len(bank_ND), columns):
            if not above_diagonal or left + columns > top:
                cosine_RC = unit_RD @ bank_ND[left : left + columns].T
                cosine_RC /= length_N[left : left + columns]
                yield top, left, cosine_RC.clamp_(-1, 1)  # rounding may lead beyond


def lengths(x_ND: Tensor) -> Tensor:
    """Length of each vector, without underflow and above 0 even for zeros: (N,)."""
    length_N = torch.linalg.vector_norm(x_ND, dim=1)
    short_N = length_N < SHORT
    if bool(short_N.any()):
        length_N[short_N] = torch.linalg.vector_norm(x_ND[short_N].double(), dim=1).to(length_N)
    return length_N.clamp_(min=LEAST)


def directions(x_ND: Tensor) -> Tensor:
    """Vectors scaled to length 1; zeros stay zeros."""
    return x_ND / lengths(x_ND)[:, None]


def block_shape(bank_ND: Tensor, queries_MD: Tensor) -> tuple[int, int]:
    """Largest number of rows and columns of a block of cosines."""
    rows = max(1, min(len(queries_MD), max(ROWS, CHUNK_ELEMENTS // max(1, len(bank_ND)))))
    return rows, max(1, CHUNK_ELEMENTS // max(rows, bank_ND.shape[1]))


def votes(similarity_MK: Tensor, labels_MK: Tensor, temperature: float, classes: int) -> Tensor:
    """Sum each neighbour's weight exp(similarity / τ) into its class, nearest neighbours first.

    Returns scores_MC in units of the nearest neighbour's weight, so that no τ overflows; a class
    without a vote has 0.

    Reference:
        Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination,
        CVPR 2018, section 3.4.
    """
    weight_MK = ((similarity_MK - similarity_MK[:, :1]) / temperature).exp().clamp(min=LEAST)
    scores_MC = weight_MK.new_zeros(len(weight_MK), classes)
    return scores_MC.scatter_add_(1, labels_MK, weight_MK)


def standardised(reference_ND: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Standardize each dimension by the reference features, which come first.

    This removes the common direction of an encoder's features and dimensions that hardly vary.
    Below `FEWEST` images features are unchanged: for two copies, standardizing would leave nothing
    but their difference.
    """
    if len(reference_ND) < FEWEST:
        return (reference_ND, *others)
    std_D, mean_D = torch.std_mean(reference_ND, dim=0, correction=0)
    alive_D = std_D > DEAD * std_D[std_D > 0].median()
    return tuple(
        (x_MD[:, alive_D] - mean_D[alive_D]) / std_D[alive_D] for x_MD in (reference_ND, *others)
    )
