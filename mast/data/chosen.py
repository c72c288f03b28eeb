"""Some canvases of a set, read when they are asked for.

Legend: N images chosen, B batch, S side of the canvas, H = W = S, C channels.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np

from mast.data.decoded import Decoded
from mast.data.stored import Stored


@final
class Chosen:
    """An array (N, S, S, 3) of uint8 that reads what it is indexed with from another one.

    Args:
        images: All canvases of the set.
        index_N: Which of them.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, images: Stored | Decoded | Chosen, index_N: np.ndarray) -> None:
        self.shape: tuple[int, ...] = (len(index_N), *images.shape[1:])
        self.nbytes = math.prod(self.shape)
        self.checksum_N: np.ndarray = images.checksum_N[index_N]
        self._images = images
        self._index_N = index_N

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """One canvas (S, S, 3) or several (B, S, S, 3)."""
        return self._images[self._index_N[index]]
