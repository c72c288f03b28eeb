"""Canvases in a file, each verified whenever it is read.

Legend: N images, B batch, T numbers of all images of a batch.
"""

import errno
import logging
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
from mast.data.pixels import Pixels, lengths, starts

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
