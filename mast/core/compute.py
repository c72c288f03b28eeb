"""How a module is run over images, and on how many threads something small is computed.

On a machine that is busy with something else, two threads took ten times as long as one.
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


FEWEST, MOST = 8, 256  # images that take one forward pass
IN_CACHES = 8 * 224**2  # pixels that do, on a CPU


@dataclass(frozen=True)
class Compute:
    """How a module is run: where, how precisely, how many images at once, by which processes."""

    device: torch.device | str | None = None  # None: where the module is
    dtype: torch.dtype = torch.float32  # or bfloat16 for mixed precision
    batch_size: int = 0  # images in one forward pass; 0: `images_at_once` chooses
    fabric: Fabric | None = None  # of the processes that share the work; None: this one does it all

    def images_at_once(self, size: int) -> int:
        """Images of a side in pixels that take one forward pass.

        By default 256; on a CPU so few that maps stay in its caches: of 224 pixels 8, with which
        EfficientNet-Lite0 takes 10 ms an image, with 32 of them 14.
        """
        if self.batch_size:
            return self.batch_size
        on_cpu = self.device is not None and torch.device(self.device).type == "cpu"
        return min(MOST, max(FEWEST, IN_CACHES // size**2)) if on_cpu else MOST

    def place(self, module: nn.Module) -> torch.device:
        """Move a module to the device, or find where it is if none is named."""
        if self.device is None:
            tensors = [*module.parameters(), *module.buffers()]
            return tensors[0].device if tensors else torch.device("cpu")
        module.to(self.device)
        return torch.device(self.device)

    def placed(self, module: nn.Module) -> Compute:
        """The same with the device on which a module is from now on."""
        return replace(self, device=self.place(module))

    def settings(self, size: int) -> dict[str, Any]:
        """What a result says of it, with the size of the views."""
        return {
            "size": size,
            "batch_size": self.images_at_once(size),
            "precision": str(self.dtype).removeprefix("torch."),
            "device": torch.device(self.device or "cpu").type,
            "processes": self.processes,
        }

    @property
    def rank(self) -> int:
        """Which of the processes this one is."""
        return 0 if self.fabric is None else self.fabric.global_rank

    @property
    def processes(self) -> int:
        """How many work together."""
        return 1 if self.fabric is None else self.fabric.world_size

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over the processes; each of them must call it."""
        if self.fabric is None or self.processes == 1:
            return tensor
        return cast(Tensor, self.fabric.all_reduce(tensor, reduce_op="sum"))


@contextmanager
def whole_float32() -> Iterator[None]:
    """Multiply and convolve float32 as it is; by default a GPU convolves 10 bits of it (TF32).

    PyTorch keeps each setting twice, and raises where the older one is read and the two differ.
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
    """Mixed precision on a device; float32 is exact, whatever PyTorch is set to."""
    if dtype is torch.float32:
        with whole_float32(), torch.autocast(device.type, enabled=False):
            yield
    else:
        with torch.autocast(device.type, dtype):
            yield


SMALL = 1e8  # multiplications of one product below which a second thread costs more than it does


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread of OpenMP and of the libraries of linear algebra.

    For what scikit-learn, SciPy and NumPy compute of a few hundred images: a step of t-SNE takes
    half a millisecond, and two threads gain nothing on an idle machine, and took 15 times as long
    on a busy one.
    """
    # Of threadpoolctl, which scikit-learn needs; there is no public name for it here.
    from sklearn.utils.parallel import _get_threadpool_controller

    with _get_threadpool_controller().limit(limits=1):
        yield


@contextmanager
def threads_for(multiplications: int, device: torch.device) -> Iterator[None]:
    """PyTorch's threads for a product: one if it is small and on a CPU, else the usual number."""
    threads = torch.get_num_threads()
    if device.type == "cpu" and multiplications < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
