"""Access to images of different sizes: in memory, in a mapped file, or decoded on demand.

Legend: N images, B batch, T numbers of all images of a batch, H and W height and width of a canvas.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar, final
from zlib import crc32

import numpy as np

from mast.core.errors import UserError
from mast.core.reading import RGB, Layout
from mast.core.threads import Threads
from mast.data.decode import BrokenImageError

_T = TypeVar("_T")


@final
class Pixels:
    """Images of different sizes.

    Args:
        images: Maps indices (B,) to images, each as sheets (S, H, W, 3) or their bytes.
        size_N2: int64, height and width of each in pixels.
        layout: Pixel layout.
        checksum_N: uint32, CRC-32 of each image, if known.
        on_demand: Whether images are decoded whenever they are read.
    """

    def __init__(
        self,
        images: Callable[[np.ndarray], Iterable[np.ndarray]],
        size_N2: np.ndarray,
        layout: Layout = RGB,
        checksum_N: np.ndarray | None = None,
        on_demand: bool = False,
    ) -> None:
        self.images, self.size_N2, self.layout = images, size_N2, layout
        self.on_demand, self._checksum_N = on_demand, checksum_N

    @classmethod
    def of(cls, images: Iterable[np.ndarray], layout: Layout = RGB) -> "Pixels":
        """From arrays in memory: sheets (S, H, W, 3) each, or one (H, W, 3)."""
        arrays = list(images)
        sizes = [image_SHWC.shape[-3:-1] for image_SHWC in arrays]
        return cls.packed(_joined(arrays), np.array(sizes, np.int64).reshape(-1, 2), layout)

    @classmethod
    def packed(cls, values_T: np.ndarray, size_N2: np.ndarray, layout: Layout = RGB) -> "Pixels":
        """From consecutive images in an array of uint8, perhaps a mapped file."""
        length_N = lengths(size_N2, layout)
        end_N = length_N.cumsum()

        def images(index_B: np.ndarray) -> list[np.ndarray]:
            ends = end_N[index_B]
            starts = ends - length_N[index_B]
            places = zip(starts.tolist(), ends.tolist(), strict=True)
            return [values_T[start:end] for start, end in places]

        return cls(images, size_N2, layout)

    def __len__(self) -> int:
        return len(self.size_N2)

    @property
    def nbytes(self) -> int:
        """Of all images."""
        return int(lengths(self.size_N2, self.layout).sum())

    @cached_property
    def checksum_N(self) -> np.ndarray:
        """CRC-32 of each image, uint32."""
        if self._checksum_N is not None:
            return self._checksum_N
        return np.array([*map(checksum, self.images(np.arange(len(self))))], np.uint32)

    def read(self, index_B: np.ndarray) -> np.ndarray:
        """Copy some images, concatenated: (T,) uint8."""
        return _joined(self.images(index_B))

    def part(self, index_N: np.ndarray) -> "Pixels":
        """A subset of the images, not read yet."""
        return Pixels(
            lambda index_B: self.images(index_N[index_B]),
            self.size_N2[index_N],
            self.layout,
            None if self._checksum_N is None else self._checksum_N[index_N],
            self.on_demand,
        )

    def in_memory(self) -> "Pixels":
        """All images, read into memory."""
        return Pixels.packed(self.read(np.arange(len(self))), self.size_N2, self.layout)


def decoded_on_demand(
    source_index_N: np.ndarray,
    decode: Callable[[int], np.ndarray],
    workers: int,
    size_N2: np.ndarray,
    layout: Layout = RGB,
    checksum_N: np.ndarray | None = None,
) -> Pixels:
    """Images decoded whenever they are read.

    Args:
        source_index_N: Indices in a source; all could be decoded when the set was opened.
        decode: Maps such an index to an array of uint8, sheets (S, H, W, 3) or (H, W, 3).
        workers: Number of threads.
        size_N2: Height and width of each image when the set was opened.
        layout: Pixel layout.
        checksum_N: CRC-32 of each image at that time, if computed.
    """

    def images(index_B: np.ndarray) -> Iterator[np.ndarray]:
        for outcome in decode_in_order(decode, source_index_N[index_B].tolist(), workers):
            if isinstance(outcome, BrokenImageError):
                raise UserError(
                    f"{outcome.name}: {outcome.reason}. It was damaged since the set was opened; "
                    "restore it, or run the command again to rescan the folder."
                )
            yield outcome

    return Pixels(images, size_N2, layout, checksum_N, on_demand=True)


def decode_in_order(
    decode: Callable[[int], _T], indices: Sequence[int], workers: int
) -> Iterator[_T | BrokenImageError]:
    """Decode with threads, in the order of the indices; yields an error for a broken image.

    Threads suffice, as Pillow releases the GIL while decoding and resizing.
    """

    def tried(index: int) -> _T | BrokenImageError:
        try:
            return decode(index)
        except BrokenImageError as error:
            return error

    window = 32 * workers  # bounds memory
    with Threads(workers) as pool:
        for start in range(0, len(indices), window):
            yield from pool.map(tried, indices[start : start + window])


def lengths(size_N2: np.ndarray, layout: Layout) -> np.ndarray:
    """Bytes of images of these sizes."""
    return np.asarray(3 * layout.sheets * size_N2.prod(-1))


def checksum(image: np.ndarray) -> int:
    """CRC-32 of an image."""
    return crc32(np.ascontiguousarray(image).data)


def as_sheets(planes_PVV: np.ndarray) -> np.ndarray:
    """Planes rearranged as sheets (S, V, V, 3)."""
    return planes_PVV.reshape(-1, *planes_PVV.shape[1:], 3)


def _joined(images: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.uint8), *(image.ravel() for image in images)])
