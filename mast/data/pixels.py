"""Images of different sizes, by index: in memory, in a mapped file, or decoded on demand.

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
        images: From indices (B,) to as many images, each its sheets (S, H, W, 3) or their bytes.
        size_N2: int64, height and width of each in pixels.
        layout: Of all of them.
        checksum_N: uint32, CRC-32 of each, where they are known.
        on_demand: Whether an image is decoded whenever it is read.
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
        """Arrays in memory, the sheets (S, H, W, 3) of each, or one (H, W, 3)."""
        arrays = list(images)
        sizes = [image_SHWC.shape[-3:-1] for image_SHWC in arrays]
        return cls.packed(_joined(arrays), np.array(sizes, np.int64).reshape(-1, 2), layout)

    @classmethod
    def packed(cls, values_T: np.ndarray, size_N2: np.ndarray, layout: Layout = RGB) -> "Pixels":
        """Images one after the other in an array of uint8, which may be a mapped file."""
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
        """Some images, one after the other, each its sheets: (T,) uint8, in memory of its own."""
        return _joined(self.images(index_B))

    def part(self, index_N: np.ndarray) -> "Pixels":
        """Some of the images, of which none is read yet."""
        return Pixels(
            lambda index_B: self.images(index_N[index_B]),
            self.size_N2[index_N],
            self.layout,
            None if self._checksum_N is None else self._checksum_N[index_N],
            self.on_demand,
        )

    def in_memory(self) -> "Pixels":
        """All images, read at once."""
        return Pixels.packed(self.read(np.arange(len(self))), self.size_N2, self.layout)


def decoded_on_demand(
    source_index_N: np.ndarray,
    decode: Callable[[int], np.ndarray],
    workers: int,
    size_N2: np.ndarray,
    layout: Layout = RGB,
    checksum_N: np.ndarray | None = None,
) -> Pixels:
    """Images that are decoded whenever they are read.

    Args:
        source_index_N: Their indices in a source; all were whole when the set was opened.
        decode: From such an index to an array of uint8, sheets (S, H, W, 3) or (H, W, 3).
        workers: Number of threads.
        size_N2: Height and width of each when the set was opened.
        layout: Of all of them.
        checksum_N: CRC-32 of each, if taken then.
    """

    def images(index_B: np.ndarray) -> Iterator[np.ndarray]:
        for outcome in decode_in_order(decode, source_index_N[index_B].tolist(), workers):
            if isinstance(outcome, BrokenImageError):
                raise UserError(
                    f"{outcome.name}: {outcome.reason}. It was whole when the set was opened: "
                    "restore it, or start again to have the folder read again."
                )
            yield outcome

    return Pixels(images, size_N2, layout, checksum_N, on_demand=True)


def decode_in_order(
    decode: Callable[[int], _T], indices: Sequence[int], workers: int
) -> Iterator[_T | BrokenImageError]:
    """Decodes with threads, in the order of the indices; yields the error in place of a broken one.

    Threads suffice: Pillow releases the interpreter's lock while it decodes and resizes.
    """

    def tried(index: int) -> _T | BrokenImageError:
        try:
            return decode(index)
        except BrokenImageError as error:
            return error

    window = 32 * workers  # bounds what waits in memory
    with Threads(workers) as pool:
        for start in range(0, len(indices), window):
            yield from pool.map(tried, indices[start : start + window])


def lengths(size_N2: np.ndarray, layout: Layout) -> np.ndarray:
    """How many bytes images of these sizes take."""
    return np.asarray(3 * layout.sheets * size_N2.prod(-1))


def checksum(image: np.ndarray) -> int:
    """CRC-32 of an image."""
    return crc32(np.ascontiguousarray(image).data)


def as_sheets(planes_PVV: np.ndarray) -> np.ndarray:
    """The bytes of planes as so many of sheets (S, V, V, 3)."""
    return planes_PVV.reshape(-1, *planes_PVV.shape[1:], 3)


def _joined(images: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.uint8), *(image.ravel() for image in images)])
