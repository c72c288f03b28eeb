"""Waits that end when their outcome is no longer wanted: a thread cannot be stopped, but can stop.

A thread inherits what ends the waits of the thread that started it, so that closing the outermost
ends all.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from mast.core.errors import UserError

POLL_S = 0.1
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


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for the block; where it ends by an error their waits end, and work is left undone."""
    stopped = threading.Event()

    def begin(ends: Ends) -> None:
        _thread.ends = ends

    with ThreadPoolExecutor(count, "mast", begin, ((stopped.is_set, *ends_here()),)) as pool:
        try:
            yield pool
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
