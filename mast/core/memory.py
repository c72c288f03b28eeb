"""Memory: how much there is, how a process holds on to it, what a forward pass keeps of it."""

import ctypes
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from mast.core.errors import UserError

MOST_TENSORS = 4096  # of weights; no model of timm or torchvision has half as many
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


# ---------------------------------------------------------------------------- how much there is


def memory_of(device: torch.device) -> int | None:
    """All memory there is where tensors of a device lie, in bytes, whether it is in use or not.

    Returns:
        Of a GPU its own; of a CPU what `machine_memory` says. None: not known.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return machine_memory() if device.type == "cpu" else None


def peak_memory(device: torch.device) -> int | None:
    """Bytes that this process has needed at most: of a GPU, or else in all; None: not known."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    status = Path("/proc/self/status")  # of Linux
    lines = status.read_text().splitlines() if status.is_file() else []
    peaks = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
    return peaks[0] if peaks else None


def machine_memory(root: Path = Path("/")) -> int | None:
    """Bytes that all processes of this machine, or of this container, can have together.

    Args:
        root: Where the file system begins.

    Returns:
        Physical memory and swap, or the lowest limit of the control groups (version 1 or 2) that
        this process is in. None where Linux's files do not say: other systems grow their swap.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        kilobytes = {name: int(rest.split()[0]) for name, rest in (x.split(":") for x in lines)}
        swap = kilobytes["SwapTotal"] * 1024
        total = kilobytes["MemTotal"] * 1024 + swap
    except (OSError, ValueError, LookupError):
        return None
    return min([total, *_group_limits(root, swap)])


def _group_limits(root: Path, swap: int) -> Iterator[int]:
    """Bytes of memory and swap that each control group above this process leaves to it."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:
        number, controllers, path = group.split(":", 2)
        if number != "0" and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("" if number == "0" else "memory")
        own = top / path.lstrip("/")
        # In a container the path may be the host's, and the container's own group the top.
        for folder in [own, *own.parents[: len(own.parts) - len(top.parts)]]:
            if number == "0":
                limit, swapped = _limit(folder / "memory.max"), _limit(folder / "memory.swap.max")
                if limit is not None:
                    yield limit + (swap if swapped is None else min(swap, swapped))
            else:
                limit = _limit(folder / "memory.limit_in_bytes")
                both = _limit(folder / "memory.memsw.limit_in_bytes")
                if limit is not None:
                    yield limit + swap if both is None else min(limit + swap, both)


def _limit(file: Path) -> int | None:
    """The number in a file; None without one, such as for "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


@contextmanager
def bounded_weights(tensors: int = MOST_TENSORS) -> Iterator[None]:
    """Refuse modules of more weights than this machine can hold, before these have numbers.

    Args:
        tensors: Of weights that there may be at most, so that building does not take minutes.

    Raises:
        UserError: There are more, or they need more memory. On the meta device they need none.
    """
    most, count, size = machine_memory(), 0, 0

    def look(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count, size
        if parameter is None:
            return
        count += 1
        size += 0 if parameter.is_meta else parameter.nbytes
        if count > tensors:
            raise UserError(
                f"more than {tensors:,} tensors of weights are asked for: ask for fewer layers "
                "(encoder.options, objective)"
            )
        if most is not None and size > most:
            raise UserError(
                f"weights of more than {most / 1e9:,.1f} GB are asked for, all the memory of this "
                "machine: ask for fewer or narrower layers (encoder.name, encoder.options, "
                "objective)"
            )

    hook = register_module_parameter_registration_hook(look)
    try:
        yield
    finally:
        hook.remove()


# --------------------------------------------------------------------- what a forward pass keeps


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages of tensors, each counted once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def kept_for_backward(forward: Callable[[], object], besides: Iterable[Tensor]) -> int:
    """Bytes that autograd keeps of a forward pass for the backward pass.

    Args:
        forward: Its result holds the graph until the count is done.
        besides: Tensors whose storages are not counted: weights, inputs.

    Returns:
        The storages of all tensors saved for the backward pass, each counted once.
    """
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)  # alive, so that no other storage takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = forward()
    others = list(besides)
    size = size_of([*others, *kept]) - size_of(others)
    del result
    return size
