"""Where users call this library: arguments are checked, and nothing around the call changes it.

What PyTorch, set for a whole process or a block, would do to a call (mixed precision, another
default type or device, no gradients, rounded products, seeds) is set aside for it and is there
again afterwards.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import ParamSpec, TypeVar

import torch

from mast.core.arguments import checked
from mast.core.precision import default_float32, whole_products
from mast.core.seeds import restored

P = ParamSpec("P")
T = TypeVar("T")

_CPU = torch.device("cpu")


class _Here(threading.local):
    """Whether a public function runs in this thread."""

    inside = False


_here = _Here()


@contextmanager
def settled() -> Iterator[None]:
    """PyTorch as a process starts with it, for a block."""
    with ExitStack() as before:
        before.enter_context(default_float32())
        before.enter_context(whole_products())
        made = torch.empty(0)
        if made.device != _CPU:
            before.enter_context(_CPU)
        if made.is_inference():
            before.enter_context(torch.inference_mode(mode=False))
        if not torch.is_grad_enabled():
            before.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                before.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def own_draws() -> Iterator[None]:
    """All global generators and PyTorch's number of threads come back after a block."""
    threads = torch.get_num_threads()
    with restored():
        try:
            yield
        finally:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)


def entry(*, draws: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a public function check its arguments, and compute the same whatever surrounds it.

    Where this library itself calls it, it is called as it is.

    Args:
        draws: Whether something in it may draw from PyTorch's global generators, or set threads.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def settled_function(*args: P.args, **kwargs: P.kwargs) -> T:
            _here.inside = True
            try:
                with settled(), own_draws() if draws else nullcontext():
                    return function(*args, **kwargs)
            finally:
                _here.inside = False

        outside = checked(settled_function)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            return (function if _here.inside else outside)(*args, **kwargs)

        return called

    return decorated
