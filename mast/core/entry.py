"""Where users call this library: arguments are checked, and nothing around the call changes it.

What PyTorch or NumPy, set for a whole process or a block, would do to a call (mixed precision,
another default type or device, no gradients, rounded products, seeds, errors) is set aside for it
and is there again afterwards. PyTorch is imported after the arguments are checked.
"""

import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any, ParamSpec, TypeVar, final

from mast.core.arguments import checked
from mast.core.threads import here

# Of the command line: whether its process does nothing else, so that nothing is around a call or
# comes after it; and whether the user was told of threads, or chose their number.
alone, advised = False, True
P = ParamSpec("P")
T = TypeVar("T")


@final
class Setting:
    """A setting of the whole process, for blocks that may run in several threads at once.

    `change` sets it and returns what puts it back: the first of blocks that overlap calls the one,
    the last the other.
    """

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._blocks = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Set it for a block."""
        with self._lock:
            if not self._blocks:
                self._put_back = self._change()
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._put_back()


def _whole(
    read: Callable[[], Any], write: Callable[[Any], object], whole: Any, places: tuple[Any, ...]
) -> Callable[[], None]:
    """Set an older setting and the newer ones in several places.

    PyTorch keeps each setting twice, and raises where the older one is read and the two differ.
    """
    older: Any = None
    with suppress(RuntimeError):
        older = read()
    newer = [place.fp32_precision for place in places]
    write(whole)
    for place in places:
        place.fp32_precision = "ieee"

    def put_back() -> None:
        if older is not None:
            write(older)
        for place, precision in zip(places, newer, strict=True):
            place.fp32_precision = precision

    return put_back


def _whole_products() -> Callable[[], None]:
    import torch

    read, write = torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    backends: Any = torch.backends
    return _whole(read, write, "highest", (backends.cuda.matmul, backends.mkldnn.matmul))


def _whole_convolutions() -> Callable[[], None]:
    import torch

    backends: Any = torch.backends
    cudnn, write = backends.cudnn, functools.partial(setattr, backends.cudnn, "allow_tf32")
    places = (cudnn.conv, cudnn.rnn, backends.mkldnn.conv)
    return _whole(lambda: cudnn.allow_tf32, write, False, places)


def _default_is_float32() -> Callable[[], None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    return lambda: torch.set_default_dtype(before)


def _keep_generators() -> Callable[[], None]:
    import numpy as np
    import torch

    from mast.core.seeds import own_generator

    with own_generator:
        before, there = torch.get_rng_state(), torch.cuda.is_initialized()
    of_gpus = torch.cuda.get_rng_state_all() if there else []
    of_numpy, of_python = np.random.get_state(), random.getstate()  # noqa: NPY002

    def put_back() -> None:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
        with own_generator:
            torch.set_rng_state(before)
        torch.cuda.set_rng_state_all(of_gpus)
        if not there and torch.cuda.is_initialized():  # as if a GPU were first used from now on
            torch.cuda.manual_seed_all(torch.initial_seed())

    return put_back


whole_products = Setting(_whole_products)  # matrices of float32 are multiplied as they are
# So are convolutions; by default a GPU keeps 10 bits of float32 (TF32).
whole_convolutions = Setting(_whole_convolutions)
default_float32 = Setting(_default_is_float32)  # what is made without a type is float32
# The generators of PyTorch, NumPy and Python are afterwards what they were before.
restored = Setting(_keep_generators)


@contextmanager
def settled() -> Iterator[None]:
    """PyTorch and NumPy as a process starts with them, for a block."""
    import numpy as np
    import torch

    with ExitStack() as before:
        before.enter_context(
            np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
        )
        before.enter_context(default_float32())
        before.enter_context(whole_products())
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
        yield


@contextmanager
def own_draws() -> Iterator[None]:
    """All global generators and PyTorch's number of threads come back after a block."""
    import torch

    threads = torch.get_num_threads()
    with restored():
        try:
            yield
        finally:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)


def entry(*, draws: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a public function check its arguments, and compute the same whatever surrounds it.

    Inside this library it is called as it is. With `draws` something in it may draw from PyTorch's
    global generators, or set threads.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def settled_function(*args: P.args, **kwargs: P.kwargs) -> T:
            here.inside = True
            surroundings = ExitStack()
            if not alone or sys.modules.get("torch"):
                surroundings.enter_context(settled())
                surroundings.enter_context(own_draws() if draws else nullcontext())
            try:
                with surroundings:
                    return function(*args, **kwargs)
            finally:
                here.inside = False

        outside = checked(settled_function)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            return (function if here.inside else outside)(*args, **kwargs)

        return called

    return decorated
