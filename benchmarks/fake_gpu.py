"""A GPU that is not there: types, shapes and devices of what would run on one, without numbers.

Tensors are PyTorch's fake ones. Operators between devices are an error of theirs, as on a GPU; so
is a result whose shape depends on numbers (`nonzero`, a boolean index): the host would wait.
Whatever else makes it wait is collected, with the line that does, and every launch is counted with
the bytes that it reads and writes. Triton's kernels are counted and not run.
"""

import contextlib
import math
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.precision import MixedPrecision, Precision
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import mast

SOURCE = str(Path(mast.__file__).parent)
GPU = torch.device("cuda", 0)
FAKE = FakeTensorMode(allow_non_fake_inputs=True)
# Bytes that a driver takes over at once, pinned or not: 64 KB. That is 16 for each of 4096 views,
# and here, where a batch has 32, as many for each.
AT_ONCE = 512
# Operators that give another view of memory, or memory with nothing in it.
FREE = {
    *("_unsafe_view", "_reshape_alias", "lift_fresh", "detach", "alias"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
}
INDEXING = ("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_")


class FakeGPU(TorchDispatchMode):
    """What runs inside on tensors of the fake GPU.

    Attributes:
        waits: Where the host waited for the GPU, and what for.
        pinned: What was pinned; kept, so that its memory is nobody else's.
        launches: How often each operator, or kernel of Triton, would have been launched.
        copies: How often something went from the CPU to the GPU.
        moved: Bytes that operators of PyTorch read and wrote.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.pinned: list[Tensor] = []
        self.launches: Counter[str] = Counter()
        self.copies = 0
        self.moved = 0

    def launch(self, kernel: Any, grid: tuple[int], arguments: dict[str, Any]) -> None:
        """Stands for `mast.augment.fused.chain.launch`."""
        given = [value for value in arguments.values() if isinstance(value, Tensor)]
        assert {tensor.device for tensor in given} == {GPU}
        self.launches[kernel.__name__] += 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (
            torch.is_inference_mode_enabled() and func.namespace == "aten"
        ):  # operators arrive there that are made of others
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        name = func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        devices = {tensor.device.type for tensor in tensors}
        target = torch.device(kwargs.get("device") or "cpu").type
        if "cuda" not in devices and target != "cuda":
            return func(*args, **kwargs)
        if name == "_local_scalar_dense":
            self._wait("a number is read")
            return args[0].dtype.is_floating_point or 1
        if name == "_to_copy" and "device" in kwargs and {target} != devices:
            self.copies += target == "cuda"
            if target == "cpu" or not kwargs.get("non_blocking"):
                self._wait(f"a copy to {target}")
            elif args[0].nbytes > AT_ONCE and _memory(args[0]) not in map(_memory, self.pinned):
                self._wait("a copy of what is not pinned")
            if target == "cpu":  # with numbers, for what goes on there
                return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if name == "copy_" and args[0].device != args[1].device:
            if args[0].device.type == "cpu" or args[2:] != (True,):
                self._wait(f"a copy to {args[0].device.type}")
            if args[0].device.type == "cpu":
                return args[0]
            self.copies += 1
        if name in INDEXING and any(
            index is not None and index.device.type == "cpu" and index.ndim for index in args[1]
        ):
            self._wait("an index on the CPU")
            args = (args[0], [None if i is None else on_gpu(i) for i in args[1]], *args[2:])
        with FAKE:
            result = func(*args, **kwargs)
        on_it = [tensor for tensor in tensors if tensor.device.type == "cuda"]
        if launches(func):
            self.launches[name] += 1
            self.moved += moved(func, args, on_it, result)
        return result

    def _wait(self, what: str) -> None:
        frames = [f for f in traceback.extract_stack() if f.filename.startswith(SOURCE)]
        line = f"{frames[-1].filename.removeprefix(SOURCE)}:{frames[-1].lineno}" if frames else "?"
        self.waits.append(f"{line}: {what}")


def launches(func: Any) -> bool:
    """Whether an operator launches a kernel: it neither gives a view nor makes memory alone."""
    views = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
    return not (views or func.overloadpacket.__name__ in FREE or func.namespace == "prim")


def moved(func: Any, args: tuple[Any, ...], inputs: list[Tensor], result: Any) -> int:
    """Bytes that an operator reads and writes, where it reads all that it is given once.

    Args:
        func: The operator.
        args: What it is given by position.
        inputs: Tensors that it is given, which count.
        result: What it returned.
    """
    name = func.overloadpacket.__name__
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
    if not outputs:  # such as `_foreach_add_`
        written = [
            given
            for given, described in zip(args, func._schema.arguments, strict=False)
            if described.alias_info and described.alias_info.is_write
        ]
        outputs = [leaf for leaf in tree_leaves(written) if isinstance(leaf, Tensor)]
    if name in ("index_select", "gather", "index"):  # of what is read only what is wanted
        return 2 * sum(map(_bytes, outputs))
    if name == "index_copy_":
        return 2 * _bytes(inputs[-1])
    return sum(map(_bytes, [*inputs, *outputs]))


def _bytes(tensor: Tensor) -> int:
    """In memory: what an expanded tensor repeats is there once."""
    numbers = math.prod(
        size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride
    )
    return numbers * tensor.element_size()


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def on_gpu(tensor: Tensor) -> Tensor:
    """A tensor of the fake GPU like this one."""
    with FAKE:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=GPU)


def move(module: nn.Module) -> dict[nn.Parameter, nn.Parameter]:
    """Put a module on the fake GPU in place.

    Returns:
        From its parameters as they were to those that it has now.
    """
    moved: dict[Any, Any] = {}
    for part in module.modules():
        for own in (part._parameters, part._buffers):
            for name, tensor in own.items():
                if tensor is None or tensor.device == GPU:
                    continue
                if tensor not in moved:
                    moved[tensor] = on_gpu(tensor.detach())
                    if isinstance(tensor, nn.Parameter):
                        moved[tensor] = nn.Parameter(moved[tensor], tensor.requires_grad)
                own[name] = moved[tensor]
    return moved


class FakeFabric:
    """Fabric on the fake GPU, but for gradients: PyTorch's engine needs a device to compute them.

    Args:
        mixed: Whether in mixed precision.
    """

    device, world_size, global_rank, is_global_zero = GPU, 1, 0, True

    def __init__(self, mixed: bool) -> None:
        self.precision = MixedPrecision("bf16-mixed", "cuda") if mixed else Precision()

    def setup(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
        moved = move(module)
        for group in optimizer.param_groups:
            group["params"] = [moved[parameter] for parameter in group["params"]]
        self.module = module
        return _Wrapped(module, self.precision), optimizer

    def backward(self, loss: Tensor) -> None:
        assert loss.device == GPU
        assert loss.dtype == torch.float32
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.empty_like(parameter)

    def clip_gradients(
        self, module: nn.Module, optimizer: object, max_norm: float, error_if_nonfinite: bool
    ) -> None:
        assert not error_if_nonfinite
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), max_norm)

    def to_device(self, data: Any) -> Any:
        return apply_to_collection(data, Tensor, lambda x: x.to(GPU, non_blocking=True))

    def no_backward_sync(self, module: nn.Module, enabled: bool) -> Any:
        return contextlib.nullcontext()

    def all_reduce(self, data: Any, reduce_op: str = "mean") -> Any:
        return data

    def barrier(self) -> None:
        pass


class _Wrapped(nn.Module):
    def __init__(self, module: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.module, self.precision = module, precision

    def forward(self, *inputs: Any) -> Any:
        with self.precision.forward_context():
            output = self.module(*self.precision.convert_input(inputs))
        return self.precision.convert_output(output)
