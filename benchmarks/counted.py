"""Counts that do not drift with the machine: operator calls, and bytes held at their highest."""

import weakref
from collections import Counter
from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Counted(TorchDispatchMode):
    """Count what runs inside: `with Counted() as counted: ...`, backward passes included.

    Attributes:
        calls: How often each operator reached its kernel, by name; views, which run none, are
            left out.
        peak: The most bytes that storages made inside held at one time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.peak = self._held = 0
        self._known: dict[int, weakref.finalize[Any, Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {
            tensor.untyped_storage()._cdata
            for tensor in tree_leaves((args, kwargs))
            if isinstance(tensor, torch.Tensor)
        }
        result = func(*args, **(kwargs or {}))
        made = False
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                made = self._hold(tensor.untyped_storage(), given) or made
        if made or func._schema.is_mutable:
            self.calls[func.overloadpacket._qualified_op_name] += 1
        return result

    def _hold(self, storage: torch.UntypedStorage, given: set[int]) -> bool:
        """Count a storage that no argument had and that was not counted before."""
        key = storage._cdata
        if key in given or key in self._known:
            return False
        size = storage.nbytes()
        self._held += size
        self.peak = max(self.peak, self._held)
        self._known[key] = weakref.finalize(storage, self._release, key, size)
        return True

    def _release(self, key: int, size: int) -> None:
        self._held -= size
        del self._known[key]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        for finalizer in list(self._known.values()):
            finalizer.detach()
