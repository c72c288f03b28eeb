"""Memory: how much there is, and how a process holds on to it."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from mast.core.errors import UserError

MOST_TENSORS = 4096  # of weights; no model of timm or torchvision has half as many
# from malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> None:
    """Have glibc keep what is freed for the next step.

    PyTorch frees and asks for the same large tensors at every step on a CPU. By default glibc gives
    each back to the system, which clears it page by page: a quarter of a training step. Peak memory
    grows by about a fifth.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, -1)


def machine_memory() -> int | None:
    """Bytes of physical memory of this machine; None where it does not say (Windows)."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def bounded_weights(tensors: int = MOST_TENSORS) -> Iterator[None]:
    """Refuse modules of more weights than this machine can hold, before they have numbers."""
    most, count, size = machine_memory(), 0, 0

    def look(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count, size
        if parameter is None:
            return
        count += 1
        size += 0 if parameter.is_meta else parameter.nbytes
        if count > tensors:
            raise UserError(
                f"these are more than {tensors:,} tensors of weights: choose fewer layers "
                "(encoder.options, objective)"
            )
        if most is not None and size > most:
            raise UserError(
                f"these weights need more than {most / 1e9:,.1f} GB, all the memory of this "
                "machine: choose fewer or narrower layers (encoder.name, encoder.options, "
                "objective)"
            )

    hook = register_module_parameter_registration_hook(look)
    try:
        yield
    finally:
        hook.remove()
