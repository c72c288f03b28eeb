"""Canvases that are decoded on demand, several at a time.

Legend: N images, B batch, T numbers of all images of a batch.
"""

from collections.abc import Iterator, Sequence
from typing import NoReturn, final

import numpy as np

from mast.core.errors import UserError
from mast.core.waiting import Threads
from mast.data.decode import BrokenImageError
from mast.data.pixels import Pixels, starts
from mast.data.source import Source

Canvas = tuple[np.ndarray, float]


def decode_in_order(
    source: Source, indices: Sequence[int], side: int, workers: int
) -> Iterator[Canvas | BrokenImageError]:
    """Decodes with threads and yields in the order of the indices.

    Threads suffice: Pillow releases the interpreter's lock while it decodes and resizes.

    Args:
        source: The images.
        indices: Which of them.
        side: Of a square with as many pixels as a canvas may have.
        workers: Number of threads.

    Yields:
        A canvas with its aspect ratio, or why there is none.
    """

    def decode(index: int) -> Canvas | BrokenImageError:
        try:
            return source.canvas(index, side)
        except BrokenImageError as error:
            return error

    window = 32 * workers  # bounds what waits in memory
    with Threads(workers) as pool:
        for start in range(0, len(indices), window):
            yield from pool.map(decode, indices[start : start + window])


@final
class Decoded(Pixels):
    """Canvases that are decoded when they are asked for.

    Args:
        source: The images.
        source_index_N: Their indices in the source; all were found whole when the set was opened.
        side: Of a square with as many pixels as a canvas may have.
        workers: Number of threads.
        size_N2: Height and width of each canvas, as all were decoded then.
        checksum_N: CRC-32 of each, taken then.
    """

    def __init__(
        self,
        source: Source,
        source_index_N: np.ndarray,
        side: int,
        workers: int,
        size_N2: np.ndarray,
        checksum_N: np.ndarray,
    ) -> None:
        self.size_N2 = size_N2
        self.checksum_N = checksum_N
        self._source = source
        self._source_index_N = source_index_N
        self._side = side
        self._workers = workers

    def read(self, index_B: np.ndarray) -> np.ndarray:
        """Decodes images.

        Raises:
            UserError: If a file that was whole when the set was opened no longer is. No other image
                takes its place, as its label would be wrong.
        """
        source_index_B = self._source_index_N[index_B].tolist()
        size_B2 = self.size_N2[index_B]
        values_T = np.empty(3 * size_B2.prod(1).sum(), np.uint8)
        decoded = decode_in_order(self._source, source_index_B, self._side, self._workers)
        spans = zip(starts(size_B2).tolist(), size_B2.tolist(), source_index_B, strict=True)
        for outcome, (start, size, index) in zip(decoded, spans, strict=True):
            if isinstance(outcome, BrokenImageError):
                self._refuse(outcome.name, outcome.reason)
            canvas_HWC = outcome[0]
            if [*canvas_HWC.shape[:2]] != size:
                self._refuse(self._source.identifier(index), "it has another size")
            values_T[start : start + canvas_HWC.size] = canvas_HWC.ravel()
        return values_T

    def _refuse(self, name: str, reason: str) -> NoReturn:
        raise UserError(
            f"{name}: {reason}. It was whole when the set was opened: restore it, or start again "
            "to have the folder read again."
        )
