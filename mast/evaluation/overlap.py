"""Test images with an exact copy among training images.

N images to learn from, M test images.
"""

import numpy as np

from mast.data.canvas import CanvasSet
from mast.evaluation.labelled_sets import EvaluationData


def count_copies(data: EvaluationData) -> dict[str, int]:
    """Number of test images whose canvas has an exact copy in each of the other parts."""
    return {part: _shared(data.test, of) for part, of in data.pool_by_part.items()}


def _shared(test: CanvasSet, canvases: CanvasSet) -> int:
    test_M, sum_N = test.pixels.checksum_N, canvases.pixels.checksum_N
    # Different images may have the same checksum: only what it has in common is read and compared.
    known = {*canvases.part(np.flatnonzero(np.isin(sum_N, test_M))).pixel_digests}
    candidates = test.part(np.flatnonzero(np.isin(test_M, sum_N))).pixel_digests
    return sum(digest in known for digest in candidates)
