"""Test images of which there is a copy among those to learn from, by pixels or by features.

N images to learn from, M test images or numbers of copies, D dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast.data.canvas import CanvasSet
from mast.evaluation.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.neighbours import nearest

NEAR = 0.99  # cosine of standardised features; docs/log.md has what it finds and misses
DEAD = 1e-4  # share of the median deviation, below which a dimension says nothing
FEWEST = 10  # images that say what is usual; docs/log.md
NAMED = 5  # pairs


def standardised(reference_ND: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Features with every dimension standardised by those of the reference, which come first.

    The features of many encoders all point into one direction; it is gone afterwards, and so are
    the dimensions that hardly vary. By fewer than `FEWEST` images features stay as they are: of two
    copies alone all that is left is how they differ.
    """
    if len(reference_ND) < FEWEST:
        return (reference_ND, *others)
    std_D, mean_D = torch.std_mean(reference_ND, dim=0, correction=0)
    alive_D = std_D > DEAD * std_D[std_D > 0].median()
    return tuple(
        (x_MD[:, alive_D] - mean_D[alive_D]) / std_D[alive_D] for x_MD in (reference_ND, *others)
    )


def count_copies(data: EvaluationData) -> dict[str, int]:
    """How many test images have an exact copy of their canvas in each of the other parts."""
    counts = {}
    for part, canvases in data.named.items():
        if part != "test":
            same_set = canvases.fingerprint == data.test.fingerprint
            counts[part] = len(data.test) if same_set else _shared(data.test, canvases)
    return counts


def _shared(test: CanvasSet, canvases: CanvasSet) -> int:
    test_M, sum_N = test.pixels.checksum_N, canvases.pixels.checksum_N
    # Different images may have the same checksum: only what it has in common is read and compared.
    known = {*canvases.part(np.flatnonzero(np.isin(sum_N, test_M))).pixel_digests}
    asked = test.part(np.flatnonzero(np.isin(test_M, sum_N))).pixel_digests
    return sum(digest in known for digest in asked)


def near_copies(
    encoder: FrozenEncoder, data: EvaluationData, above: float = NEAR
) -> dict[str, Any]:
    """Test images that look to an encoder almost like one that may be learned from.

    Each dimension is standardised by what may be learned from. Returns how many test `images` have
    a cosine `above` it to another, exact copies among them, and the first `pairs`, the most similar
    first: test image, part and name of the other, cosine.
    """
    pool_ND = encoder.pool_features(data.pool, data.size).to(encoder.device)
    test_MD = encoder.features(data.test, data.size).to(encoder.device)
    pool_ND, test_MD = standardised(pool_ND, test_MD)
    cosine_M1, position_M1 = nearest(pool_ND, test_MD, 1)
    cosine_M, position_M = cosine_M1[:, 0].cpu(), position_M1[:, 0].cpu()
    places = [
        (part, name)
        for part, canvases in data.named.items()
        if part != "test"
        for name in canvases.identifiers
    ]
    order = cosine_M.argsort(descending=True, stable=True)[:NAMED].tolist()
    return {
        "images": int((cosine_M > above).sum()),
        "above": above,
        "pairs": [
            [data.test.identifiers[at], *places[int(position_M[at])], round(float(cosine_M[at]), 4)]
            for at in order
            if cosine_M[at] > above
        ],
    }
