"""The canvases of a set, wherever they are: in memory, decoded on demand, or in a file.

Canvases in a file are verified whenever they are read. The views by which encoders are tested are
cut from whole images, not from canvases.

Legend: N images, B batch, T numbers of all images of a batch, V pixels of a view along an axis.
"""

import errno
import logging
import os
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NoReturn, TypeVar, final
from zlib import crc32

import numpy as np

from mast.core.errors import UserError
from mast.core.reading import RGB, Layout
from mast.core.threads import Threads
from mast.data.decode import BrokenImageError
from mast.data.source import Source


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


Canvas = tuple[np.ndarray, float]
_T = TypeVar("_T")


def decode_in_order(
    decode: Callable[[int], _T], indices: Sequence[int], workers: int
) -> Iterator[_T | BrokenImageError]:
    """Decodes with threads and yields in the order of the indices.

    Threads suffice: Pillow releases the interpreter's lock while it decodes and resizes.

    Args:
        decode: Makes something of one image, such as `Source.canvas`.
        indices: Which images.
        workers: Number of threads.

    Yields:
        What was made, or why there is none.
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


@final
class Decoded(Pixels):
    """Images that are decoded when they are asked for.

    Args:
        source: The images.
        source_index_N: Their indices in the source; all were found whole when the set was opened.
        decode: Makes of one image in the source an array of uint8.
        workers: Number of threads.
        size_N2: Height and width of each, as all were decoded then.
        checksum_N: CRC-32 of each, taken then.
        layout: Of all.
    """

    def __init__(
        self,
        source: Source,
        source_index_N: np.ndarray,
        decode: Callable[[int], np.ndarray],
        workers: int,
        size_N2: np.ndarray,
        checksum_N: np.ndarray,
        layout: Layout = RGB,
    ) -> None:
        self.layout = layout
        self.size_N2 = size_N2
        self.checksum_N = checksum_N
        self._source = source
        self._source_index_N = source_index_N
        self._decode = decode
        self._workers = workers

    def read(self, index_B: np.ndarray) -> np.ndarray:
        """Decodes images.

        Raises:
            UserError: If a file that was whole when the set was opened no longer is. No other image
                takes its place, as its label would be wrong.
        """
        source_index_B = self._source_index_N[index_B].tolist()
        size_B2 = self.size_N2[index_B]
        values_T = np.empty(lengths(size_B2, self.layout).sum(), np.uint8)
        decoded = decode_in_order(self._decode, source_index_B, self._workers)
        ends = [*starts(size_B2, self.layout).tolist(), len(values_T)]
        spans = zip(source_index_B, size_B2.tolist(), ends, ends[1:], strict=False)
        for outcome, (index, size, start, end) in zip(decoded, spans, strict=True):
            if isinstance(outcome, BrokenImageError):
                self._refuse(outcome.name, outcome.reason)
            shape = [*outcome.shape]  # S × H × W × 3 of a canvas, P × V × V of a test view
            if outcome.size != end - start or size not in (shape[-3:-1], shape[-2:]):
                self._refuse(self._source.identifier(index), "it has another size")
            values_T[start:end] = outcome.ravel()
        return values_T

    def _refuse(self, name: str, reason: str) -> NoReturn:
        raise UserError(
            f"{name}: {reason}. It was whole when the set was opened: restore it, or start again "
            "to have the folder read again."
        )


_log = logging.getLogger("mast")


@final
class Stored(Pixels):
    """Canvases one after the other in a file; each is verified when it is read.

    A canvas that is not what was written is decoded again, and the file is mended.

    Args:
        file: Of canvases alone.
        decoded: The same canvases, from their source, with their checksums.
    """

    def __init__(self, file: Path, decoded: Decoded) -> None:
        self.size_N2 = decoded.size_N2
        self.checksum_N = decoded.checksum_N
        self.layout = decoded.layout
        self._start_N = starts(self.size_N2, self.layout)
        self._file = file
        self._open = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._open)
        self._decoded = decoded
        self._said = False
        self._lock = threading.Lock()

    def read(self, index_B: np.ndarray) -> np.ndarray:
        """Reads images.

        Raises:
            UserError: A canvas is damaged, and its image is no longer what it was.
        """
        size_B2 = self.size_N2[index_B]
        values_T = np.empty(lengths(size_B2, self.layout).sum(), np.uint8)
        ends = [*starts(size_B2, self.layout).tolist(), len(values_T)]
        for number, first, end in zip(index_B.tolist(), ends, ends[1:], strict=False):
            canvas = values_T[first:end]
            self._read(number, canvas.data)
            if crc32(canvas.data) != self.checksum_N[number]:
                canvas[:] = self._restored(number)
        return values_T

    def _read(self, number: int, memory: memoryview) -> None:
        """Fills memory with one canvas as far as the file can be read.

        It is not mapped: where it were cut short, or its disk failed, SIGBUS would end the process.
        """
        with suppress(OSError):
            if sys.platform != "win32":
                os.preadv(self._open, [memory], int(self._start_N[number]))
                return
            with self._lock:
                os.lseek(self._open, int(self._start_N[number]), os.SEEK_SET)
                content = os.read(self._open, len(memory))
                memory[: len(content)] = content

    def _restored(self, number: int) -> np.ndarray:
        """A damaged canvas from its image; the file gets it, too, if it can be written."""
        file = self._file
        canvas = self._decoded.read(np.array([number]))
        if crc32(canvas.data) != self.checksum_N[number]:
            raise UserError(
                f"{file} is damaged, and the image of its canvas {number} is no longer what it "
                "was: delete the file to have it built anew"
            )
        if not self._said:
            self._said = True
            _log.warning(
                "%s changed on the disk since it was written, first at canvas %d; what is damaged "
                "is decoded again", file, number,
            )  # fmt: skip
        try:
            if file.is_symlink() or file.stat().st_nlink > 1:  # who else reads it is not known
                raise OSError(errno.EMLINK, "it is a link")
            with file.open("r+b") as canvases:
                canvases.seek(int(self._start_N[number]))
                canvases.write(canvas.tobytes())
        except OSError as error:
            _log.warning("%s cannot be mended: %s", file, error.strerror)
        return canvas


@final
class TestViews:
    """The test views of a set, made when a size is first asked for.

    Args:
        make: From a size V to the views of all images, each 3 × V × V; None where they are those of
            the canvases, which shrank no image.
        index_N: Which of the images these are; all if not given.
    """

    __test__ = False  # pytest takes the name for its own

    def __init__(
        self, make: Callable[[int], Pixels | None], index_N: np.ndarray | None = None
    ) -> None:
        self._make = make
        self._index_N = index_N
        self._made: dict[int, Pixels | None] = {}

    def at(self, size: int) -> Pixels | None:
        """The views of a size; None as above."""
        if size not in self._made:
            made = self._make(size)
            if made is not None and self._index_N is not None:
                made = Chosen(made, self._index_N)
            self._made[size] = made
        return self._made[size]

    def some(self, index_B: np.ndarray) -> "TestViews":
        """Those of some images."""
        return TestViews(self.at, index_B)
