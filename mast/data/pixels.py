"""The canvases of a set, wherever they are: in memory, or read when they are asked for.

Legend: N images, B batch, T numbers of all images of a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import final
from zlib import crc32

import numpy as np

from mast.core.reading import RGB, Layout


class Pixels(ABC):
    """Images of different sizes, by index.

    Attributes:
        size_N2: int64, height and width of each in pixels.
        checksum_N: uint32, CRC-32 of each.
        layout: Of all of them.
    """

    size_N2: np.ndarray
    checksum_N: np.ndarray
    layout: Layout = RGB

    def __len__(self) -> int:
        return len(self.size_N2)

    @property
    def nbytes(self) -> int:
        """Of all images."""
        return int(lengths(self.size_N2, self.layout).sum())

    @abstractmethod
    def read(self, index_B: np.ndarray) -> np.ndarray:
        """Some images, one after the other, each its sheets.

        Returns:
            (T,) uint8, in memory of its own.
        """


@final
class InMemory(Pixels):
    """Images one after the other in an array.

    Args:
        values_T: uint8.
        size_N2: Height and width of each.
        layout: Of all.
    """

    def __init__(self, values_T: np.ndarray, size_N2: np.ndarray, layout: Layout = RGB) -> None:
        self.size_N2 = size_N2
        self.layout = layout
        self._values_T = values_T
        self._start_N = starts(size_N2, layout)

    @classmethod
    def of(cls, images: Iterable[np.ndarray], layout: Layout = RGB) -> "InMemory":
        """Of arrays, the sheets (S, H, W, 3) of each, or one (H, W, 3)."""
        arrays = list(images)
        flat = [image_SHWC.ravel() for image_SHWC in arrays] or [np.empty(0, np.uint8)]
        sizes = [image_SHWC.shape[-3:-1] for image_SHWC in arrays]
        return cls(np.concatenate(flat), np.array(sizes, np.int64).reshape(-1, 2), layout)

    def read(self, index_B: np.ndarray) -> np.ndarray:
        parts = [self._image(index) for index in index_B.tolist()]
        return np.concatenate([*parts, np.empty(0, np.uint8)])

    @cached_property
    def checksum_N(self) -> np.ndarray:  # type: ignore[override]  # here it is computed
        return np.array([crc32(self._image(index).data) for index in range(len(self))], np.uint32)

    def _image(self, index: int) -> np.ndarray:
        start = self._start_N[index]
        return self._values_T[start : start + lengths(self.size_N2[index], self.layout)]


@final
class Chosen(Pixels):
    """Some images of a set.

    Args:
        pixels: Of the whole set.
        index_N: Which of them.
    """

    def __init__(self, pixels: Pixels, index_N: np.ndarray) -> None:
        self.size_N2 = pixels.size_N2[index_N]
        self.layout = pixels.layout
        self._pixels = pixels
        self._index_N = index_N

    @property
    def checksum_N(self) -> np.ndarray:  # type: ignore[override]  # those of a set in memory wait
        return self._pixels.checksum_N[self._index_N]

    def read(self, index_B: np.ndarray) -> np.ndarray:
        return self._pixels.read(self._index_N[index_B])


def lengths(size_N2: np.ndarray, layout: Layout) -> np.ndarray:
    """How many bytes images of these sizes take."""
    return np.asarray(3 * layout.sheets * size_N2.prod(-1))


def starts(size_N2: np.ndarray, layout: Layout) -> np.ndarray:
    """Where each image begins, if they lie one after the other."""
    length_N = lengths(size_N2, layout)
    return np.cumsum(length_N) - length_N
