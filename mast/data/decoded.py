"""Canvases that are decoded on demand, several at a time.

Legend: N images, B batch, S side of the canvas, H = W = S, C channels.
"""

from collections.abc import Iterator, Sequence
from typing import final

import numpy as np

from mast.core.errors import UserError
from mast.core.waiting import Threads
from mast.data.decode import BrokenImageError
from mast.data.source import Source

Canvas = tuple[np.ndarray, float]


def decode_in_order(
    source: Source, indices: Sequence[int], size: int, workers: int
) -> Iterator[Canvas | BrokenImageError]:
    """Decodes with threads and yields in the order of the indices.

    Threads suffice: Pillow releases the interpreter's lock while it decodes and resizes.

    Args:
        source: The images.
        indices: Which of them.
        size: Side of the canvas in pixels.
        workers: Number of threads.

    Yields:
        A canvas with its aspect ratio, or why there is none.
    """

    def decode(index: int) -> Canvas | BrokenImageError:
        try:
            return source.canvas(index, size)
        except BrokenImageError as error:
            return error

    window = 32 * workers  # bounds what waits in memory
    with Threads(workers) as pool:
        for start in range(0, len(indices), window):
            yield from pool.map(decode, indices[start : start + window])


@final
class Decoded:
    """An array (N, S, S, 3) of uint8 that decodes what it is indexed with.

    Args:
        source: The images.
        source_index_N: Their indices in the source; all were found whole when the set was opened.
        size: Side of the canvas in pixels.
        workers: Number of threads.
        checksum_N: CRC-32 of each canvas, taken when all were decoded.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        source: Source,
        source_index_N: np.ndarray,
        size: int,
        workers: int,
        checksum_N: np.ndarray,
    ) -> None:
        self.checksum_N = checksum_N
        self.shape = (len(source_index_N), size, size, 3)
        self._source = source
        self._source_index_N = source_index_N
        self._workers = workers

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """Decodes one image (S, S, 3) or several (B, S, S, 3).

        Raises:
            UserError: If a file that was whole when the set was opened no longer is. No other image
                takes its place, as its label would be wrong.
        """
        source_index_B = np.atleast_1d(self._source_index_N[index]).tolist()
        canvas_BHWC = np.empty((len(source_index_B), *self.shape[1:]), np.uint8)
        decoded = decode_in_order(self._source, source_index_B, self.shape[1], self._workers)
        for slot, outcome in enumerate(decoded):
            if isinstance(outcome, BrokenImageError):
                raise UserError(
                    f"{outcome.name}: {outcome.reason}. It was whole when the set was opened: "
                    "restore it, or start again to have the folder read again."
                )
            canvas_BHWC[slot] = outcome[0]
        return canvas_BHWC[0] if isinstance(index, int | np.integer) else canvas_BHWC
