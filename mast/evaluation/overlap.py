"""Test images of which there is a copy among those to learn from, by pixels or by features.

N images to learn from, M test images or numbers of copies, D dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mast.data.canvas import CanvasSet
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.search.nearest import NEAR, nearest, standardised

NAMED = 5  # pairs


def count_copies(data: EvaluationData) -> dict[str, int]:
    """How many test images have an exact copy of their canvas in each of the other parts."""
    return {part: _shared(data.test, of) for part, of in data.pool_by_part.items()}


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
    features = encoder.pool_features(data.pool, data.size), encoder.features(data.test, data.size)
    pool_ND, test_MD = standardised(*(x_ND.to(encoder.device) for x_ND in features))
    cosine_M1, position_M1 = nearest(pool_ND, test_MD, 1)
    cosine_M, position_M = cosine_M1[:, 0].tolist(), position_M1[:, 0].tolist()
    places = [(part, name) for part, of in data.pool_by_part.items() for name in of.identifiers]
    found = [at for at, cosine in enumerate(cosine_M) if cosine > above]
    pairs = [
        [data.test.identifiers[at], *places[position_M[at]], round(cosine_M[at], 4)]
        for at in sorted(found, key=lambda at: -cosine_M[at])[:NAMED]
    ]
    return {"images": len(found), "above": above, "pairs": pairs}
