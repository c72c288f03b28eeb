"""How the process holds on to memory."""

import ctypes
import platform

# from malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> bool:
    """Have the C library keep what is freed for the next step, for the rest of the process.

    PyTorch frees and asks for the same large tensors at every step on a CPU. By default glibc
    gives each back to the operating system, which then clears it page by page when it is first
    touched again: a quarter of a training step. Peak memory grows by the gaps this leaves, about a
    fifth.

    Returns:
        Whether it took effect; only glibc can do it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_M_MMAP_MAX, 0) and library.mallopt(_M_TRIM_THRESHOLD, -1))
