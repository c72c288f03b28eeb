"""Threads whose waits end when their outcome is no longer wanted.

A thread inherits what ends the waits of the thread that started it, so that closing the outermost
ends all. No wait is without end: a signal that the system gives to another thread is seen by the
main thread, which answers it, only when it wakes.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, Self, TypeVar, final

from mast.core.errors import UserError

POLL_S = 0.1
Item = TypeVar("Item")
Result = TypeVar("Result")
Events = tuple[threading.Event, ...]


class _Here(threading.local):
    """Of this thread: what ends its waits, and whether a public function runs in it."""

    ends: Events = ()
    inside = False


here = _Here()


def _check_wanted() -> None:
    """Raise where this thread may not go on waiting."""
    if any(end.is_set() for end in here.ends):
        raise UserError("stopped waiting")


def wait(event: threading.Event, seconds: float) -> bool:
    """Whether an event comes within some seconds."""
    until = time.monotonic() + seconds
    while not event.wait(max(0.0, min(POLL_S, until - time.monotonic()))):
        _check_wanted()
        if time.monotonic() >= until:
            return False
    return True


def _begin(ends: Events) -> None:
    """In a new thread of this library."""
    here.ends, here.inside = ends, True


@final
class Threads:
    """Threads for a block; where it ends by an error their waits end, and work is left undone."""

    def __init__(self, count: int, name: str = "mast") -> None:
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(count, name, _begin, ((self._stopped, *here.ends),))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stopped.set()
        self._pool.shutdown(cancel_futures=kind is not None)

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Begin some work; `result_of` waits for it."""
        return self._pool.submit(work, *arguments)

    def map(self, work: Callable[..., Result], *items: Iterable[Any]) -> Iterator[Result]:
        """The results in the order of the items, which are all begun at the first one."""
        futures = deque(self.submit(work, *each) for each in zip(*items, strict=True))
        while futures:
            yield result_of(futures.popleft())


def result_of(future: Future[Result]) -> Result:
    """What some work returns or raises, once it is done."""
    while not future.done() and not wait_for([future], POLL_S).done:
        _check_wanted()
    return future.result()


def prefetched(items: Iterable[Item], depth: int = 3) -> Generator[Item, None, None]:
    """The items, of which up to `depth` are prepared ahead in a background thread.

    Closing it early, or dropping it, ends the thread and what it waits for. What fails in the
    background is raised where the item would have come.
    """
    iterator, end = iter(items), object()
    with Threads(1, "mast-prefetch") as pool:
        ahead = deque(pool.submit(next, iterator, end) for _ in range(depth))
        while (item := result_of(ahead.popleft())) is not end:
            ahead.append(pool.submit(next, iterator, end))
            yield item
            del item
