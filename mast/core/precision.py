"""How float32 is rounded: some hardware shortens its numbers before it multiplies them.

PyTorch keeps each setting twice, and raises where the older one is read and the two differ. So both
are set and put back.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch


@final
class Setting:
    """A setting of the whole process, for blocks that may run in several threads at once.

    Args:
        change: Sets it, and returns what puts it back: the first block calls the one, the last of
            those that overlap the other.
    """

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._blocks = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Set it for a block."""
        with self._lock:
            if not self._blocks:
                self._put_back = self._change()
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._put_back()


def _multiply_whole() -> Callable[[], None]:
    backends: Any = torch.backends
    places = backends.cuda.matmul, backends.mkldnn.matmul
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by `fp32_precision`, or `allow_tf32` and that
        older = None
    newer = [place.fp32_precision for place in places]
    torch.set_float32_matmul_precision("highest")

    def put_back() -> None:
        if older is not None:
            torch.set_float32_matmul_precision(older)
        for place, precision in zip(places, newer, strict=True):
            place.fp32_precision = precision

    return put_back


def _convolve_whole() -> Callable[[], None]:
    backends: Any = torch.backends
    places = backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.conv
    try:
        older = backends.cudnn.allow_tf32
    except RuntimeError:
        older = None
    newer = [place.fp32_precision for place in places]
    backends.cudnn.allow_tf32 = False
    for place in places:
        place.fp32_precision = "ieee"

    def put_back() -> None:
        if older is not None:
            backends.cudnn.allow_tf32 = older
        for place, precision in zip(places, newer, strict=True):
            place.fp32_precision = precision

    return put_back


def _default_is_float32() -> Callable[[], None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    return lambda: torch.set_default_dtype(before)


# Matrices of float32 are multiplied as they are.
whole_products = Setting(_multiply_whole)
# So are convolutions; by default a GPU keeps 10 bits of float32 (TF32).
whole_convolutions = Setting(_convolve_whole)
# What is made without a type is float32.
default_float32 = Setting(_default_is_float32)
