"""Canvases that are decoded on demand, several at a time.

Legend: N images, B batch, T numbers of all images of a batch.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar, final

import numpy as np

from mast.core.errors import UserError
from mast.core.reading import RGB, Layout
from mast.core.waiting import Threads
from mast.data.decode import BrokenImageError
from mast.data.pixels import Pixels, lengths, starts
from mast.data.source import Source

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
