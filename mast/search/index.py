"""Nearest neighbors by a faiss index, for too many images to compare all pairs.

N images, D dimensions, K neighbors, Q images of a sample, T orientations, B bits of a hash.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast.core.display import doing, say, track
from mast.search.nearest import directions, nearest

ROWS = 2**14  # queries at a time
SAMPLE = 256  # sample to measure recall with an exact search
RECALL, MOST_CELLS = 0.95, 32  # recall up to which more cells are read; docs/log.md
TRAINED = 40  # images per cell


def nearest_of_all(x_ND: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest images of each by cosine, itself included, by an inverted file index.

    Reads as many cells as needed to find 95 % of the neighbors of a sample, at most 32, and prints
    the recall.

    Returns:
        cosine_NK and position_NK; -1 if fewer were found.
    """
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    count, dim = x_ND.shape
    cells = min(4 * math.isqrt(count), count // TRAINED)
    index: Any = faiss.index_factory(dim, f"IVF{cells},SQfp16", faiss.METRIC_INNER_PRODUCT)
    draw = np.random.default_rng(0)
    with doing("building an index of all images"):
        trained = draw.choice(count, min(count, TRAINED * cells), replace=False)
        index.train(_unit(x_ND[torch.from_numpy(np.sort(trained))]))
    for part_RD in track(x_ND.split(ROWS), "filling the index", -(-count // ROWS)):
        index.add(_unit(part_RD))
    at_Q = torch.from_numpy(np.sort(draw.choice(count, min(count, SAMPLE), replace=False)))
    exact_QK = nearest(x_ND, x_ND[at_Q], k)[1].cpu().numpy()
    index.nprobe, found = 4, 0.0
    while found < RECALL and index.nprobe < min(MOST_CELLS, cells):
        index.nprobe *= 2
        near_QK = index.search(_unit(x_ND[at_Q]), k)[1]
        found = float(np.mean([np.isin(of_K, to_K).mean()
                               for of_K, to_K in zip(exact_QK, near_QK, strict=True)]))  # fmt: skip
    parts = [index.search(_unit(part_RD), k)
             for part_RD in track(x_ND.split(ROWS), "searching", -(-count // ROWS))]  # fmt: skip
    say(f"index of {count:,} images to propose copies: finds {100 * found:.1f} % of the "
        f"{k} nearest of {len(at_Q)}")  # fmt: skip
    cosine_NK, position_NK = (np.concatenate(each) for each in zip(*parts, strict=True))
    return cosine_NK, position_NK


def alike_hashes(hash_TNB: Tensor, most: int) -> np.ndarray:
    """Pairs (P, 2) of images for which the first hash of one and any hash of the other differ in
    at most `most` of 64 bits. One of their four quarters then differs in at most one bit.
    """
    import faiss

    said_TN = hash_TNB.abs().amax(dim=2).cpu().numpy() > 0  # unclear hashes are skipped
    known_N = np.flatnonzero(said_TN[0])
    packed_TNb = np.packbits((hash_TNB > 0).cpu().numpy(), axis=2)
    bits, found = hash_TNB.shape[2], list[np.ndarray]()
    index: Any = faiss.IndexBinaryMultiHash(bits, 4, bits // 4)
    index.nflip = most // 4
    index.add(packed_TNb[0, known_N])
    for of_Nb, said_N in zip(packed_TNb, said_TN, strict=True):
        asked_M = np.flatnonzero(said_N)
        limits, _, near = index.range_search(of_Nb[asked_M], most + 1)
        counts_M = np.diff(limits.astype(np.int64))
        found.append(np.stack([np.repeat(asked_M, counts_M), known_N[near]], axis=1))
    return np.concatenate(found)


def _unit(x_RD: Tensor) -> np.ndarray:
    return directions(x_RD).cpu().numpy().astype(np.float32, copy=False)
