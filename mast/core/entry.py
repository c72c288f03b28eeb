"""Where users call this library: arguments are checked, and what is set around a call is set aside.

Mixed precision, another default type or device, no gradients, rounded products and errors of NumPy
change no result, and are there again afterwards. Where PyTorch and NumPy are not loaded yet nothing
is set, and neither is imported before the arguments are checked.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any, ParamSpec, TypeVar

from mast.core.arguments import checked
from mast.core.threads import here

# Whether the number of threads is decided: the command line leaves it to `launch.choose_threads`.
advised = True
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def whole_float32(convolutions: bool = True) -> Iterator[None]:
    """Multiply, and convolve, float32 as it is; by default a GPU convolves 10 bits of it (TF32).

    PyTorch keeps each setting twice, and raises where the older one is read and the two differ.
    """
    import torch

    backends: Any = torch.backends
    places = [backends.cuda.matmul, backends.mkldnn.matmul]
    older: list[tuple[Any, ...]] = [
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")
    ]
    if convolutions:
        places += [backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.conv]
        write = functools.partial(setattr, backends.cudnn, "allow_tf32")
        older.append((lambda: backends.cudnn.allow_tf32, write, False))
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
def restore_torch_state(draws: bool = False) -> Iterator[None]:
    """PyTorch and NumPy as a process starts with them, for a block.

    With `draws`, PyTorch's generators and number of threads are afterwards as they were.
    """
    import numpy as np
    import torch

    with ExitStack() as before:
        before.enter_context(
            np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
        )
        before.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        before.enter_context(whole_float32(convolutions=False))
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
            from mast.core.seeds import isolated_rng

            before.callback(torch.set_num_threads, torch.get_num_threads())
            before.enter_context(isolated_rng())
        yield


def entry(*, draws: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a public function check its arguments, and compute the same whatever surrounds it.

    Inside this library it is called as it is. With `draws` something in it may draw from PyTorch's
    global generators, or set threads.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def isolated(*args: P.args, **kwargs: P.kwargs) -> T:
            here.inside = True
            loaded = sys.modules.get("torch") or sys.modules.get("numpy")
            try:
                with restore_torch_state(draws) if loaded else nullcontext():
                    return function(*args, **kwargs)
            finally:
                here.inside = False

        outside = checked(isolated)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            return (function if here.inside else outside)(*args, **kwargs)

        return called

    return decorated
