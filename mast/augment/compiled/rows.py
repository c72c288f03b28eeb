"""Building blocks of the kernels: vectorizable loops over stretches of flat arrays.

A stretch is an array, where it starts, and how many numbers it has. Slices would read better, but
each is a counted reference, which costs more than a row of pixels does.

Compiled kernels are kept in the user's cache, by the digest of all files of this folder. Numba's
default is next to the files, where they outlive the package and changes of inlined kernels.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, njit
from numba.core.event import Event, Listener, register

from mast.core.display import doing
from mast.core.errors import UserError
from mast.core.files import default_cache

# Sums may be reordered and fused, which vectorising needs; NaN and infinity keep their meaning.
_FAST = {"contract", "reassoc", "nsz", "arcp"}

_numba: Any = config
_SOURCE = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
try:
    FOLDER = str(default_cache() / "kernels" / hashlib.sha256(_SOURCE).hexdigest()[:16])
    FOLDER = _numba.CACHE_DIR or FOLDER  # NUMBA_CACHE_DIR goes first
    os.makedirs(FOLDER, exist_ok=True)
    FOLDER = FOLDER if os.access(FOLDER, os.W_OK) else ""
except (OSError, UserError):
    FOLDER = ""  # no cache

ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)
RED, GREEN, BLUE = np.float32(0.2989), np.float32(0.587), np.float32(0.114)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile when first called, and keep the result on disk where there is a place for it.

    Kernels that others call are inlined: a process that compiles both would otherwise link the
    inner one as it was built alone, whose sums have another order than its copy on disk.
    """
    options: dict[str, Any] = {
        "fastmath": _FAST, "nogil": True, "error_model": "numpy", "forceinline": True,
    }  # fmt: skip
    before, _numba.CACHE_DIR = _numba.CACHE_DIR, FOLDER
    try:
        return njit(cache=bool(FOLDER), **options)(function)
    finally:
        _numba.CACHE_DIR = before


class _Compiling(Listener):
    """Shows that kernels are compiled, which takes a minute where none is on disk."""

    def __init__(self) -> None:
        self._depth = 0  # a kernel is compiled within the one that calls it
        self._shown = ExitStack()

    def on_start(self, event: Event) -> None:
        if self._depth == 0:
            self._shown.enter_context(doing("compiling kernels"))
        self._depth += 1

    def on_end(self, event: Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._shown.close()


register("numba:compile", _Compiling())


@kernel
def at(start, i):
    """Unsigned, or every turn of a loop would ask whether the index counts from the end."""
    return np.uint64(start) + np.uint64(i)


@kernel
def clip(value):
    return min(max(value, ZERO), ONE)


@kernel
def copy(count, out, to, source, start):
    for i in range(count):
        out[at(to, i)] = source[at(start, i)]


@kernel
def set_scaled(count, out, to, source, start, weight):
    for i in range(count):
        out[at(to, i)] = weight * np.float32(source[at(start, i)])


@kernel
def add_scaled(count, out, to, source, start, weight):
    for i in range(count):
        out[at(to, i)] += weight * np.float32(source[at(start, i)])


@kernel
def mirror_ends(line, radius, count):
    """Surround `count` values with `radius` mirrored ones on either side, the outermost once."""
    last = radius + count - 1
    for t in range(1, radius + 1):
        line[radius - t] = line[radius + t]
        line[last + t] = line[last - t]


@kernel
def mirrored(position, size):
    """Where a position outside [0, size) lands."""
    position = abs(position)
    return position if position < size else 2 * (size - 1) - position
