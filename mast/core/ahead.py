"""Iterating in a background thread, so that the next item is ready when it is needed."""

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

Item = TypeVar("Item")


class _End:
    """Marks the end of the items; holds the error that ended them early, if there was one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def ahead(items: Iterable[Item], depth: int = 2) -> Iterator[Item]:
    """The items, of which up to `depth` are prepared ahead of their use.

    Closing the iterator early, or dropping it, ends the thread.

    Args:
        items: Iterated in the background thread alone.
        depth: Items that may wait.

    Yields:
        The items. What fails in the background is raised here.
    """
    ready: queue.Queue[Item | _End] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: Item | _End) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def prepare() -> None:
        try:
            for item in items:
                if stopped.is_set():
                    return
                put(item)
            put(_End())
        except BaseException as error:  # handed over: it is the consumer who must stop
            put(_End(error))

    thread = threading.Thread(target=prepare, name="mast-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        thread.join()
