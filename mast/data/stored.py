"""Canvases in a mapped file, each verified whenever it is read.

Legend: N images, B batch, S side of the canvas, H = W = S, C channels.
"""

import logging
from typing import final
from zlib import crc32

import numpy as np

from mast.core.errors import UserError
from mast.data.decoded import Decoded

_log = logging.getLogger("mast")


@final
class Stored:
    """An array (N, S, S, 3) of uint8 in a file, of which what it is indexed with is verified.

    A canvas that is not what was written is decoded again, and the file is mended.

    Args:
        mapped: The file's canvases.
        decoded: The same canvases, from their source, with their checksums.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, mapped: np.memmap, decoded: Decoded) -> None:
        self.shape = mapped.shape
        self.nbytes = mapped.nbytes
        self._mapped = mapped
        self.checksum_N = decoded.checksum_N
        self._decoded = decoded
        self._index_N = np.arange(len(mapped))
        self._said = False

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """One image (S, S, 3) or several (B, S, S, 3), in memory of their own.

        Raises:
            UserError: A canvas is damaged, and its image is no longer what it was.
        """
        index_B = np.atleast_1d(self._index_N[index])
        canvas_BHWC = np.empty((len(index_B), *self.shape[1:]), np.uint8)
        # "clip" lets numpy write into `out` directly; the bounds were checked above.
        np.take(self._mapped, index_B, axis=0, out=canvas_BHWC, mode="clip")
        for slot, number in enumerate(index_B.tolist()):
            if crc32(canvas_BHWC[slot].data) != self.checksum_N[number]:
                canvas_BHWC[slot] = self._restored(number)
        return canvas_BHWC[0] if isinstance(index, int | np.integer) else canvas_BHWC

    def _restored(self, number: int) -> np.ndarray:
        """A damaged canvas from its image; the file gets it, too, if it can be written."""
        file = self._mapped.filename
        canvas_HWC = self._decoded[number]
        if crc32(canvas_HWC.data) != self.checksum_N[number]:
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
            with open(str(file), "r+b") as canvases:
                canvases.seek(number * canvas_HWC.nbytes)
                canvases.write(canvas_HWC.tobytes())
        except OSError as error:
            _log.warning("%s cannot be mended: %s", file, error.strerror)
        return canvas_HWC
