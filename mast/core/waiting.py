"""Waits that end when their outcome is no longer wanted: a thread cannot be stopped, but can stop.

A thread inherits what ends the waits of the thread that started it, so that closing the outermost
ends all. No wait is without end: a signal that the system gives to another thread is seen by the
main thread, which answers it, only when it wakes.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from typing import Any, Self, TypeVar, final

from mast.core.errors import UserError

POLL_S = 0.1
Result = TypeVar("Result")
Ends = tuple[Callable[[], bool], ...]
_thread = threading.local()  # .ends: what ends the waits of this thread


class UnwantedError(UserError):
    """What was waited for is no longer wanted."""


def ends_here() -> Ends:
    """What ends the waits of this thread."""
    return getattr(_thread, "ends", ())


@contextmanager
def waits_until(*ends: Callable[[], bool]) -> Iterator[None]:
    """In the block, waits of this thread end as soon as one of some functions is true."""
    before = ends_here()
    _thread.ends = (*ends, *before)
    try:
        yield
    finally:
        _thread.ends = before


def check_wanted() -> None:
    """Look whether this thread may go on waiting.

    Raises:
        UnwantedError: It may not.
    """
    if any(ended() for ended in ends_here()):
        raise UnwantedError("stopped waiting")


def wait(event: threading.Event, seconds: float) -> bool:
    """Whether an event comes within some seconds.

    Raises:
        UnwantedError: Nobody waits for it any more.
    """
    until = time.monotonic() + seconds
    while not event.wait(max(0.0, min(POLL_S, until - time.monotonic()))):
        check_wanted()
        if time.monotonic() >= until:
            return False
    return True


@final
class Threads:
    """Threads for a block; where it ends by an error their waits end, and work is left undone.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self._stopped = threading.Event()
        ends = (self._stopped.is_set, *ends_here())
        self._pool = ThreadPoolExecutor(count, "mast", setattr, (_thread, "ends", ends))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stopped.set()
        self._pool.shutdown(cancel_futures=kind is not None)

    def map(self, work: Callable[..., Result], *items: Iterable[Any]) -> Iterator[Result]:
        """The results in the order of the items, which are all begun at the first one."""
        futures = deque(self._pool.submit(work, *each) for each in zip(*items, strict=True))
        while futures:
            while not futures[0].done() and not wait_for([futures[0]], POLL_S).done:
                check_wanted()
            yield futures.popleft().result()
