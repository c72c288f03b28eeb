"""Canvases in a file, each verified whenever it is read.

Legend: N images, B batch, S side of the canvas, H = W = S, C channels.
"""

import errno
import logging
import math
import os
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
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
        file: Of canvases alone.
        decoded: The same canvases, from their source, with their checksums.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, file: Path, decoded: Decoded) -> None:
        self.shape = decoded.shape
        self.nbytes = math.prod(self.shape)
        self.checksum_N = decoded.checksum_N
        self._file = file
        self._open = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._open)
        self._decoded = decoded
        self._index_N = np.arange(len(decoded))
        self._said = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """One image (S, S, 3) or several (B, S, S, 3), in memory of their own.

        Raises:
            UserError: A canvas is damaged, and its image is no longer what it was.
        """
        index_B = np.atleast_1d(self._index_N[index])
        canvas_BHWC = np.empty((len(index_B), *self.shape[1:]), np.uint8)
        for slot, number in enumerate(index_B.tolist()):
            self._read(number, canvas_BHWC[slot].data.cast("B"))
            if crc32(canvas_BHWC[slot].data) != self.checksum_N[number]:
                canvas_BHWC[slot] = self._restored(number)
        return canvas_BHWC[0] if isinstance(index, int | np.integer) else canvas_BHWC

    def _read(self, number: int, memory: memoryview) -> None:
        """Fills memory with one canvas as far as the file can be read.

        It is not mapped: where it were cut short, or its disk failed, SIGBUS would end the process.
        """
        with suppress(OSError):
            if sys.platform != "win32":
                os.preadv(self._open, [memory], number * len(memory))
                return
            with self._lock:
                os.lseek(self._open, number * len(memory), os.SEEK_SET)
                content = os.read(self._open, len(memory))
                memory[: len(content)] = content

    def _restored(self, number: int) -> np.ndarray:
        """A damaged canvas from its image; the file gets it, too, if it can be written."""
        file = self._file
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
            if file.is_symlink() or file.stat().st_nlink > 1:  # who else reads it is not known
                raise OSError(errno.EMLINK, "it is a link")
            with file.open("r+b") as canvases:
                canvases.seek(number * canvas_HWC.nbytes)
                canvases.write(canvas_HWC.tobytes())
        except OSError as error:
            _log.warning("%s cannot be mended: %s", file, error.strerror)
        return canvas_HWC
