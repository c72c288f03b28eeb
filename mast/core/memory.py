"""Limits of memory, and reuse of freed memory."""

import ctypes
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from mast.core.errors import UserError

MOST_TENSORS = 4096  # twice as many as in any model of timm or torchvision
# from glibc's malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> None:
    """Make glibc reuse freed memory in the next step.

    On a CPU, PyTorch frees and allocates the same large tensors at every step. By default glibc
    returns them to the system, which zeroes each page again: a quarter of a training step. Peak
    memory grows by about a fifth.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, -1)


def machine_memory() -> int | None:
    """Physical memory of this machine in bytes; None if unknown (Windows)."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def bounded_weights(tensors: int = MOST_TENSORS) -> Iterator[None]:
    """Refuse modules with more weights than fit in memory, before allocating them."""
    most, count, size = machine_memory() or math.inf, 0, 0

    def look(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count, size
        if parameter is None:
            return
        count += 1
        size += 0 if parameter.is_meta else parameter.nbytes
        if count > tensors or size > most:
            raise UserError(
                f"expected weights of at most {tensors:,} tensors and {most / 1e9:,.1f} GB, the "
                "memory of this machine, got more: choose fewer or narrower layers "
                "(encoder.name, encoder.options, objective)"
            )

    hook = register_module_parameter_registration_hook(look)
    try:
        yield
    finally:
        hook.remove()
