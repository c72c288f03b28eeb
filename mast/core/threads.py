"""Waits that end when their outcome is no longer wanted: a thread cannot be stopped, but can stop.

A thread inherits what ends the waits of the thread that started it, so that closing the outermost
ends all. No wait is without end: a signal that the system gives to another thread is seen by the
main thread, which answers it, only when it wakes.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from typing import Any, Generic, Self, TypeVar, final

from mast.core.errors import UserError

POLL_S = 0.1
Result = TypeVar("Result")
Ends = tuple[Callable[[], bool], ...]


class _Here(threading.local):
    """Of this thread: what ends its waits, and whether a public function runs in it."""

    ends: Ends = ()
    inside = False


here = _Here()


class UnwantedError(UserError):
    """What was waited for is no longer wanted."""


@contextmanager
def waits_until(*ends: Callable[[], bool]) -> Iterator[None]:
    """In the block, waits of this thread end as soon as one of some functions is true."""
    before = here.ends
    here.ends = (*ends, *before)
    try:
        yield
    finally:
        here.ends = before


def check_wanted() -> None:
    """Raise UnwantedError where this thread may not go on waiting."""
    if any(ended() for ended in here.ends):
        raise UnwantedError("stopped waiting")


def wait(event: threading.Event, seconds: float) -> bool:
    """Whether an event comes within some seconds."""
    until = time.monotonic() + seconds
    while not event.wait(max(0.0, min(POLL_S, until - time.monotonic()))):
        check_wanted()
        if time.monotonic() >= until:
            return False
    return True


def _begin(ends: Ends) -> None:
    """In a new thread of this library."""
    here.ends, here.inside = ends, True


@final
class Threads:
    """Threads for a block; where it ends by an error their waits end, and work is left undone."""

    def __init__(self, count: int) -> None:
        self._stopped = threading.Event()
        ends = (self._stopped.is_set, *here.ends)
        self._pool = ThreadPoolExecutor(count, "mast", _begin, (ends,))

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


Item = TypeVar("Item")
_Ready = queue.Queue[tuple[Any, BaseException | None]]  # items, and what ended them at last


@final
class Prefetcher(Iterator[Item], Generic[Item]):
    """The items, of which up to `depth` are prepared ahead in a background thread, from now on.

    Closing it early, or dropping it, ends the thread, and what it waits for. What fails in the
    background is raised where the item would have come.
    """

    def __init__(self, items: Iterable[Item], depth: int = 2) -> None:
        self._ready: _Ready = queue.Queue(depth)
        self._stopped = threading.Event()
        ends = (self._stopped.is_set, *here.ends)
        arguments = (items, self._ready, self._stopped, ends)
        self._thread = threading.Thread(
            target=_prepare, args=arguments, name="mast-prefetch", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        if self._stopped.is_set():
            raise StopIteration
        while True:
            with suppress(queue.Empty):
                item, ended = self._ready.get(timeout=POLL_S)
                break
            check_wanted()
        if ended is not None:
            self.close()
            raise ended
        return item

    def close(self) -> None:
        """End the thread, and wait until it has ended."""
        self._stopped.set()
        self._thread.join()

    def __del__(self) -> None:
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _prepare(items: Iterable[Item], ready: _Ready, stopped: threading.Event, ends: Ends) -> None:
    """What the thread does; it does not know of the object, so that this can be dropped."""

    def put(item: Item | None, ended: BaseException | None = None) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                ready.put((item, ended), timeout=POLL_S)
                return

    _begin(ends)
    try:
        for item in items:
            if stopped.is_set():
                return
            put(item)
        put(None, StopIteration())
    except BaseException as error:  # handed over: it is the consumer who must stop
        put(None, error)
    finally:
        close = getattr(items, "close", None)  # a generator frees what it holds
        if close is not None:
            close()
