"""How to run a module over images, and how many threads to use for small computations.

On a busy machine, two threads took ten times as long as one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from lightning_fabric import Fabric


FEWEST, MOST = 8, 256  # images per forward pass
IN_CACHES = 8 * 224**2  # pixels per forward pass on a CPU


@dataclass(frozen=True)
class Compute:
    """How to run a module: device, precision, batch size and processes."""

    device: torch.device | str | None = None  # None: where the module is
    dtype: torch.dtype = torch.float32  # or bfloat16 for mixed precision
    batch_size: int = 0  # images in one forward pass; 0: `images_at_once` chooses
    fabric: Fabric | None = None  # of the processes that share the work; None: only this one

    def images_at_once(self, size: int) -> int:
        """Images per forward pass, by their side in pixels.

        256; on a CPU fewer, so that maps stay in its caches: 8 of 224 pixels, with which
        EfficientNet-Lite0 takes 10 ms per image (14 with 32).
        """
        if self.batch_size:
            return self.batch_size
        on_cpu = self.device is not None and torch.device(self.device).type == "cpu"
        return min(MOST, max(FEWEST, IN_CACHES // size**2)) if on_cpu else MOST

    def place(self, module: nn.Module) -> torch.device:
        """Move a module to the device, or return its own device if none is set."""
        if self.device is None:
            tensors = [*module.parameters(), *module.buffers()]
            return tensors[0].device if tensors else torch.device("cpu")
        module.to(self.device)
        return torch.device(self.device)

    def placed(self, module: nn.Module) -> Compute:
        """The same, with the device of a module."""
        return replace(self, device=self.place(module))

    def settings(self, size: int) -> dict[str, Any]:
        """Description for results, with the size of the views."""
        return {
            "size": size,
            "batch_size": self.images_at_once(size),
            "precision": str(self.dtype).removeprefix("torch."),
            "device": torch.device(self.device or "cpu").type,
            "processes": self.processes,
        }

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return 0 if self.fabric is None else self.fabric.global_rank

    @property
    def processes(self) -> int:
        """Number of processes."""
        return 1 if self.fabric is None else self.fabric.world_size

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor over the processes; all of them must call it."""
        if self.fabric is None or self.processes == 1:
            return tensor
        return cast(Tensor, self.fabric.all_reduce(tensor, reduce_op="sum"))


@contextmanager
def whole_float32() -> Iterator[None]:
    """Multiply and convolve in full float32; by default a GPU convolves in TF32 (10 bits).

    PyTorch has two versions of each setting, and raises if the older one is read and they differ.
    """
    backends: Any = torch.backends
    places = [backends.cuda.matmul, backends.mkldnn.matmul, backends.cudnn.conv,
              backends.cudnn.rnn, backends.mkldnn.conv]  # fmt: skip
    allow_tf32 = functools.partial(setattr, backends.cudnn, "allow_tf32")
    older: list[tuple[Any, ...]] = [
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
        (lambda: backends.cudnn.allow_tf32, allow_tf32, False),
    ]
    with ExitStack() as before:
        for place in places:
            before.callback(setattr, place, "fp32_precision", place.fp32_precision)
        for read, write, exact in older:
            with suppress(RuntimeError):
                before.callback(write, read())
            write(exact)
        for place in places:
            place.fp32_precision = "ieee"
        yield


@contextmanager
def autocast(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Mixed precision on a device; float32 is exact, whatever PyTorch's settings."""
    if dtype is torch.float32:
        with whole_float32(), torch.autocast(device.type, enabled=False):
            yield
    else:
        with torch.autocast(device.type, dtype):
            yield


SMALL = 1e8  # multiplications below which a second thread does not pay


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit OpenMP and BLAS to one thread.

    For scikit-learn, SciPy and NumPy on a few hundred images: a step of t-SNE takes half a
    millisecond; two threads gain nothing on an idle machine, and took 15 times as long on a busy
    one.
    """
    # From threadpoolctl, a dependency of scikit-learn.
    from sklearn.utils.parallel import _get_threadpool_controller

    with _get_threadpool_controller().limit(limits=1):
        yield


@contextmanager
def threads_for(multiplications: int, device: torch.device) -> Iterator[None]:
    """PyTorch's threads for a product: one if small and on a CPU, else the usual number."""
    threads = torch.get_num_threads()
    if device.type == "cpu" and multiplications < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
