"""What the user sees during long work: a live bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Item = TypeVar("Item")

console = Console(stderr=True)
PATIENCE_S = 1.0  # shorter work shows no bar


def track(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """Pass items on, with a bar on stderr after one second if stderr is a terminal.

    Args:
        items: What is passed on.
        description: What the bar says.
        total: How many there are.

    Yields:
        The items.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(description, total=total)
    begun = time.monotonic()
    try:
        for item in items:
            yield item
            bar.advance(task)
            if not bar.live.is_started and time.monotonic() - begun > PATIENCE_S:
                bar.start()
    finally:
        bar.stop()


class TrainingDisplay:
    """The live line of a training.

    Args:
        title: What the bar says.
        total: Steps of the whole run.
        completed: Steps that an earlier process has taken.
        enabled: False on all processes but the first.
    """

    def __init__(self, title: str, total: int, completed: int, enabled: bool) -> None:
        self.enabled = enabled
        self.live = enabled and sys.stderr.isatty()
        self.title = title
        self.total = total
        self._progress = Progress(
            TextColumn(f"[bold]{title}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._task = self._progress.add_task("", total=total, completed=completed, speed="")
        self._live = Live(self._progress, console=console, refresh_per_second=4)
        self._next_line = time.monotonic()

    @contextmanager
    def running(self) -> Iterator["TrainingDisplay"]:
        """Show the bar while the block runs."""
        if not self.live:
            yield self
            return
        with self._live:
            yield self

    def update(self, step: int, terms: str, speed: str) -> None:
        """Move the bar; away from a terminal, print a line at most every 30 seconds.

        Args:
            step: Steps taken.
            terms: The loss and its terms, on a line of their own below the bar.
            speed: The speed, as text.
        """
        if self.live:
            self._progress.update(self._task, completed=step, speed=speed)
            self._live.update(Group(self._progress, Text(terms, style="dim")))
        elif self.enabled and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + 30.0
            self.say(f"{self.title}: step {step}/{self.total}  {terms}  {speed}")

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line above the bar."""
        if self.enabled:
            console.print(text, style=style, highlight=False, soft_wrap=True)
