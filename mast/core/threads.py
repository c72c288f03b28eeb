"""Threads whose waits can be cancelled.

A thread inherits the cancellation of the thread that started it, so closing the outermost one ends
all. All waits have timeouts: a signal delivered to another thread is handled by the main thread
only when it wakes.
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
    """Per thread: what cancels its waits, and whether a public function runs in it."""

    ends: Events = ()
    inside = False


here = _Here()


def _check_wanted() -> None:
    """Raise if this thread's waits were cancelled."""
    if any(end.is_set() for end in here.ends):
        raise UserError("stopped waiting")


def wait(event: threading.Event, seconds: float) -> bool:
    """Wait for an event for some seconds; returns whether it came."""
    until = time.monotonic() + seconds
    while not event.wait(max(0.0, min(POLL_S, until - time.monotonic()))):
        _check_wanted()
        if time.monotonic() >= until:
            return False
    return True


def _begin(ends: Events) -> None:
    """Run in a new thread of this library."""
    here.ends, here.inside = ends, True


@final
class Threads:
    """A thread pool for a block; an error in the block cancels waits and pending work."""

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
        """Submit work; `result_of` waits for it."""
        return self._pool.submit(work, *arguments)

    def map(self, work: Callable[..., Result], *items: Iterable[Any]) -> Iterator[Result]:
        """Results in the order of the items, all submitted at the first request."""
        futures = deque(self.submit(work, *each) for each in zip(*items, strict=True))
        while futures:
            yield result_of(futures.popleft())


def result_of(future: Future[Result]) -> Result:
    """Wait for work; return its result or raise its error."""
    while not future.done() and not wait_for([future], POLL_S).done:
        _check_wanted()
    return future.result()


def prefetched(items: Iterable[Item], depth: int = 3) -> Generator[Item, None, None]:
    """Iterate over items, preparing up to `depth` ahead in a background thread.

    Closing or dropping the iterator ends the thread. Errors in the background are raised in place
    of the item.
    """
    iterator, end = iter(items), object()
    with Threads(1, "mast-prefetch") as pool:
        ahead = deque(pool.submit(next, iterator, end) for _ in range(depth))
        while (item := result_of(ahead.popleft())) is not end:
            ahead.append(pool.submit(next, iterator, end))
            yield item
            del item
