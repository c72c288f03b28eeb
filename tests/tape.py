"""CUDA graphs without a GPU: operators are written down as they run, and done again on the same
memory with the same numbers from the host, whatever has changed since.

It stands for `mast.core.graphs`. Unlike a GPU it does the work that it records.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mast.core.graphs import WARM_UP, Graph, GraphError

T = TypeVar("T")


class Tape(TorchDispatchMode):
    """Write down what runs inside.

    Attributes:
        lines: Operators with their arguments and what they returned, which keeps all memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[Any, Any, dict[str, Any], list[Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ == "_local_scalar_dense":
            raise RuntimeError("a number is read while a graph is recorded")
        result = func(*args, **(kwargs or {}))
        self.lines.append((func, args, kwargs or {}, tree_leaves(result)))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        """Do it again."""
        for func, args, kwargs, results in self.lines:
            for old, new in zip(results, tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and not _same_memory(old, new):
                    old.copy_(new)


def _same_memory(first: Tensor, second: Tensor) -> bool:
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def record(work: Callable[[], T], pool: Any = None) -> Graph[T]:
    """See `mast.core.graphs.record`."""
    with Tape() as tape:
        try:
            result = work()
        except RuntimeError as error:
            raise GraphError(str(error)) from error
    return Graph(result, tape.replay, None)


def warm_up(work: Callable[[], object], device: torch.device) -> None:
    """See `mast.core.graphs.warm_up`."""
    for _ in range(WARM_UP):
        work()
