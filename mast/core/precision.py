"""How float32 is rounded: some hardware shortens its numbers before it multiplies them.

PyTorch keeps each setting twice, and raises where the older one is read and the two differ. So both
are set and put back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def products_are_whole() -> bool:
    """Whether PyTorch multiplies matrices of float32 as they are."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # set by `fp32_precision`, or `allow_tf32` and that
        return False


@contextmanager
def whole_products() -> Iterator[None]:
    """Multiply matrices of float32 as they are, for a block."""
    backends: Any = torch.backends
    places = backends.cuda.matmul, backends.mkldnn.matmul
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        older = None
    newer = [place.fp32_precision for place in places]
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if older is not None:
            torch.set_float32_matmul_precision(older)
        for place, precision in zip(places, newer, strict=True):
            place.fp32_precision = precision


@contextmanager
def whole_convolutions() -> Iterator[None]:
    """Convolve float32 as it is, for a block; by default a GPU keeps 10 bits of it (TF32)."""
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
    try:
        yield
    finally:
        if older is not None:
            backends.cudnn.allow_tf32 = older
        for place, precision in zip(places, newer, strict=True):
            place.fp32_precision = precision
