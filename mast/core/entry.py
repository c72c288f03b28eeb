"""Entry points of the library: check arguments, and isolate PyTorch's settings.

The caller's autocast, default dtype, default device and no_grad affect no result, and are restored
afterwards. If PyTorch is not loaded yet, nothing is set, and it is imported only after arguments
are checked.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import ParamSpec, TypeVar

from mast.core.arguments import checked
from mast.core.threads import here

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def restore_torch_state(draws: bool = False) -> Iterator[None]:
    """PyTorch's default settings, for a block.

    With `draws`, PyTorch's generators and number of threads are restored afterwards.
    """
    import torch

    with ExitStack() as before:
        before.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        made = torch.empty(0)
        if made.device.type != "cpu":
            before.enter_context(torch.device("cpu"))
        if made.is_inference():
            before.enter_context(torch.inference_mode(mode=False))
        if not torch.is_grad_enabled():
            before.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                before.enter_context(torch.autocast(kind, enabled=False))
        if draws:
            gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            before.callback(torch.set_num_threads, torch.get_num_threads())
            before.enter_context(torch.random.fork_rng(gpus))
        yield


def entry(*, draws: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a public function to check its arguments and isolate PyTorch's settings.

    Calls from inside this library skip both. With `draws`, the function may draw from PyTorch's
    global generators or set the number of threads.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        outside = checked(function)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            if here.inside:
                return function(*args, **kwargs)
            here.inside = True
            try:
                with restore_torch_state(draws) if sys.modules.get("torch") else nullcontext():
                    return outside(*args, **kwargs)
            finally:
                here.inside = False

        return called

    return decorated
