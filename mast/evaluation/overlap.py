"""Test images of which there is a copy among those to learn from, by pixels or by features.

N images to learn from, M test images or numbers of copies, D dimensions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast.core.canvases import Canvases
from mast.data.canvas import CanvasSet
from mast.evaluation.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.neighbours import nearest

NEAR = 0.99  # cosine of standardised features; docs/log.md has what it finds and misses
DEAD = 1e-4  # share of the median deviation, below which a dimension says nothing
FEWEST = 10  # images that say what is usual; docs/log.md
NAMED = 5  # pairs
_AT_ONCE = 256  # canvases


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
    known = set(pixel_digests(canvases, np.isin(sum_N, test_M)))
    return sum(digest in known for digest in pixel_digests(test, np.isin(test_M, sum_N)))


def pixel_digests(canvases: CanvasSet, chosen_N: np.ndarray) -> Iterator[bytes]:
    """Hashes of the pixels of some canvases; of all frames, where a canvas is the first of them."""
    position_M = np.flatnonzero(chosen_N)
    for (batch, at), position in zip(
        one_by_one(canvases, position_M), position_M.tolist(), strict=True
    ):
        if frames := canvases.stacks.get(canvases.identifiers[position]):
            yield frames()
            continue
        sheets_SHWC = batch.sheets(at).numpy()
        shape = repr(sheets_SHWC.shape).encode()
        yield hashlib.blake2b(shape + sheets_SHWC.tobytes(), digest_size=16).digest()


def one_by_one(canvases: CanvasSet, position_M: np.ndarray) -> Iterator[tuple[Canvases, int]]:
    """Batches with some canvases, and where each is in its batch."""
    for start in range(0, len(position_M), _AT_ONCE):
        batch = canvases.batch(position_M[start : start + _AT_ONCE])
        yield from ((batch, at) for at in range(len(batch)))


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
