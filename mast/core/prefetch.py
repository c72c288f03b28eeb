"""Iterating in a background thread, so that the next item is ready when it is needed."""

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Generic, Self, TypeVar, final

from mast.core.waiting import POLL_S, Ends, check_wanted, ends_here, waits_until

Item = TypeVar("Item")


class _End:
    """Marks the end of the items; holds the error that ended them early, if there was one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@final
class Prefetcher(Iterator[Item], Generic[Item]):
    """The items, of which up to `depth` are prepared ahead of their use, from now on.

    Closing it early, or dropping it, ends the thread, and what it waits for. What fails in the
    background is raised where the item would have come.

    Args:
        items: Iterated in the background thread alone.
        depth: Items that may wait.
    """

    def __init__(self, items: Iterable[Item], depth: int = 2) -> None:
        self._ready: queue.Queue[Item | _End] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=_prepare,
            args=(items, self._ready, self._stopped, ends_here()),
            name="mast-prefetch",
            daemon=True,
        )
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        if self._stopped.is_set():
            raise StopIteration
        item = self._next()
        if isinstance(item, _End):
            self.close()
            if item.error is not None:
                raise item.error
            raise StopIteration
        return item

    def _next(self) -> Item | _End:
        while True:
            with suppress(queue.Empty):
                return self._ready.get(timeout=POLL_S)
            check_wanted()

    def close(self) -> None:
        """End the thread, and wait until it has ended."""
        self._stopped.set()
        self._thread.join()

    def __del__(self) -> None:
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _prepare(
    items: Iterable[Item],
    ready: "queue.Queue[Item | _End]",
    stopped: threading.Event,
    ends: Ends,
) -> None:
    """What the thread does; it does not know of the object, so that this can be dropped."""

    def put(item: Item | _End) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=POLL_S)
                return

    try:
        with waits_until(stopped.is_set, *ends):
            for item in items:
                if stopped.is_set():
                    return
                put(item)
        put(_End())
    except BaseException as error:  # handed over: it is the consumer who must stop
        put(_End(error))
    finally:
        close = getattr(items, "close", None)  # a generator frees what it holds
        if close is not None:
            close()
