"""A progress bar that shows only where someone can see it, and only for what takes a while."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_PATIENCE_S = 1.0


def progress(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    """Passes items on, with a bar on stderr after one second if stderr is a terminal.

    Args:
        items: What is passed on.
        total: How many there are.
        label: What the bar says.

    Yields:
        The items.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console  # noqa: PLC0415 (heavy)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=total)
    begun = time.monotonic()
    try:
        for item in items:
            yield item
            bar.advance(task)
            if not bar.live.is_started and time.monotonic() - begun > _PATIENCE_S:
                bar.start()
    finally:
        bar.stop()
