"""Test images that were learned from: exact copies by their pixels, near-copies by their features.

N images to learn from, M test images, D dimensions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mast.measure.frozen import FrozenEncoder
from mast.measure.neighbours import nearest
from mast.measure.sets import EvaluationData

if TYPE_CHECKING:
    from mast.data.canvas import CanvasSet

NEAR = 0.99  # cosine of standardised features; docs/log.md has what it finds and misses
DEAD = 1e-4  # share of the largest deviation, below which a dimension says nothing
NAMED = 5  # pairs
_AT_ONCE = 256  # canvases


def count_copies(data: EvaluationData) -> dict[str, int]:
    """How many test images have an exact copy in each of the other parts.

    Canvases are compared, so that a copy in another file format that lost nothing is found, too.

    Args:
        data: The sets.

    Returns:
        Counts by part, 0 where there are none.
    """
    counts = {}
    for part, canvases in data.named.items():
        if part != "test":
            same_set = canvases.fingerprint == data.test.fingerprint
            counts[part] = len(data.test) if same_set else _shared(data.test, canvases)
    return counts


def _shared(test: CanvasSet, canvases: CanvasSet) -> int:
    test_M, sum_N = test.checksums(), canvases.checksums()
    # Different images may have the same checksum: only what it has in common is read and compared.
    known = set(_digests(canvases, np.isin(sum_N, test_M)))
    return sum(digest in known for digest in _digests(test, np.isin(test_M, sum_N)))


def _digests(canvases: CanvasSet, chosen_N: np.ndarray) -> Iterator[bytes]:
    """Hashes of the pixels of some canvases."""
    index_B = np.flatnonzero(chosen_N)
    for start in range(0, len(index_B), _AT_ONCE):
        for canvas_HWC in canvases.images[index_B[start : start + _AT_ONCE]]:
            yield hashlib.blake2b(canvas_HWC.tobytes(), digest_size=16).digest()


def near_copies(
    encoder: FrozenEncoder, data: EvaluationData, above: float = NEAR
) -> dict[str, Any]:
    """Test images that look to an encoder almost like one that may be learned from.

    Args:
        encoder: Its features are those that the protocols use.
        data: The sets; training and validation images may be learned from.
        above: Least cosine of a test image and the nearest of the others. Each dimension is
            standardised by what may be learned from, as the features of many encoders all point
            into one direction.

    Returns:
        How many test `images` there are, exact copies among them; the cosine `above` which they
        are counted; and the first `pairs`, the most similar first: test image, part and name of
        the other, cosine.
    """
    pool_ND = encoder.pool_features(data.pool, data.size).to(encoder.device)
    test_MD = encoder.features(data.test, data.size).to(encoder.device)
    std_D, mean_D = torch.std_mean(pool_ND, dim=0, correction=0)
    alive_D = std_D > DEAD * std_D.max()
    pool_ND, test_MD = ((x[:, alive_D] - mean_D[alive_D]) / std_D[alive_D]
                        for x in (pool_ND, test_MD))  # fmt: skip
    positions_N = torch.arange(len(pool_ND), device=pool_ND.device)
    cosine_M1, position_M1 = nearest(pool_ND, positions_N, test_MD, 1)
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
