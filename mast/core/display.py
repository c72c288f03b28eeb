"""Progress of long work: rich's bars on a terminal, otherwise a line now and then.

Work is nested: an evaluation runs protocols, which read images. All output goes to stderr.
"""

import logging
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from mast.core.errors import one_line, visible
from mast.core.stopping import is_first_here

Item = TypeVar("Item")

LITERAL: Any = {"markup": False, "emoji": False, "highlight": False}  # no markup in names
LEAST_COLUMNS = 20  # smallest width assumed for a terminal of unknown size
LINE_S = 3.0  # seconds below which work prints no line
EVERY_S = 15.0  # seconds between two lines
SPEED_S = 60.0  # seconds to average the speed over


def terminal(stderr: bool = False) -> Console:
    """The console on stderr, a terminal or not."""
    columns = os.environ.get("COLUMNS", "")
    unknown = columns.isdecimal() and int(columns) < LEAST_COLUMNS
    return Console(stderr=stderr, width=80 if unknown else None, force_jupyter=False, **LITERAL)


class _Facts(ProgressColumn):
    """Progress of work, with a note."""

    def render(self, task: Task) -> Text:
        return Text(_facts(task))


console = terminal(stderr=True)
_bars = Progress(
    TextColumn("{task.description}", markup=False), BarColumn(20), _Facts(),
    console=console, transient=True, redirect_stdout=False, speed_estimate_period=SPEED_S,
)  # fmt: skip
_silent = ContextVar("silent", default=False)


class Work:
    """Work in progress: how much is done, with a note."""

    _next_line = math.inf  # when the next line is due, over all work

    def __init__(self, what: str, total: int | None, done: int, **how: Any) -> None:
        self.done, self._note = done, ""
        self._task = _bars.add_task(one_line(what), completed=done, total=total, note="", **how)

    def advance(self, count: int = 1) -> None:
        """Count completed items."""
        self.update(self.done + count)

    def update(self, done: int, note: str | None = None) -> None:
        """Set the number of completed items and a note, such as losses; None leaves the note."""
        self.done, self._note = done, self._note if note is None else note
        _bars.update(self._task, completed=done, note=self._note)
        if time.monotonic() >= Work._next_line:
            Work._next_line = time.monotonic() + EVERY_S
            console.print(line(), soft_wrap=True)

    def end(self) -> None:
        """Stop showing it."""
        _bars.remove_task(self._task)


def line() -> str:
    """All work in progress on one line, outermost first."""
    tasks = [task for task in _bars.tasks if task.visible]
    parts = (part for task in tasks for part in (task.description, _facts(task)))
    return ": ".join(filter(None, parts))


@contextmanager
def doing(
    what: str,
    total: int | None = None,
    unit: str = "",
    done: int = 0,
    *,
    even: bool = True,
    images: int = 0,
    enabled: bool = True,
) -> Iterator[Work]:
    """Show progress during the block, in the first process only.

    Args:
        what: Description of the work; may be empty if the unit suffices.
        total: Number of items; None if not counted.
        unit: Unit of items, such as "images".
        done: Items completed by an earlier process.
        even: Whether items take similar time, so that the remaining time can be estimated.
        images: Images per item, to show images per second.
        enabled: Whether to show progress.

    Yields:
        The work, which the block updates.
    """
    shown, first = enabled and is_first_here(), not _bars.tasks
    images = 1 if unit == "images" else images
    work = Work(what, total, done, unit=unit, even=even, images=images, visible=shown)
    try:
        if shown and console.is_terminal and not console.is_dumb_terminal:
            _bars.start()
        elif shown and first:
            Work._next_line = time.monotonic() + LINE_S
        yield work
    finally:
        work.end()
        if not _bars.tasks:
            Work._next_line = math.inf
            if _bars.live.is_started:
                with suppress(OSError):  # the terminal is gone
                    _bars.stop()


def track(
    items: Iterable[Item], what: str, total: int, unit: str = "", even: bool = True
) -> Iterator[Item]:
    """Iterate over items, and show progress; see `doing`."""
    with doing(what, total, unit, even=even) as work:
        for item in items:
            yield item
            work.advance()


@contextmanager
def silent() -> Iterator[None]:
    """Print nothing but progress during the block."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def say(text: str, style: str | None = None) -> None:
    """Print a line, above progress bars."""
    if not _silent.get():
        console.print(one_line(text), style=style, soft_wrap=True)


class _LineFormatter(logging.Formatter):
    """Formats log records as `one_line`."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


_format_warning = warnings.formatwarning


def show_warnings() -> None:
    """Print warnings, including those of libraries, with names escaped."""
    if logging.lastResort is not None:  # the handler of last resort
        logging.lastResort.setFormatter(_LineFormatter())
    warnings.filterwarnings("ignore", "Image size", module="PIL")  # `max_pixels` decides
    warnings.formatwarning = lambda *args, **options: visible(_format_warning(*args, **options))


def _facts(task: Task) -> str:
    """Progress, speed, remaining time and note."""
    unit, speed, texts = task.fields["unit"], task.speed or 0.0, list[str]()
    if task.total is not None:
        texts.append(f"{task.completed:,.0f} of {task.total:,.0f} {unit}".rstrip())
    elif unit and task.completed:
        texts.append(f"{task.completed:,.0f} {unit}")
    if (images := speed * task.fields["images"]) > 0:
        texts.append(f"{images:,.0f} images/s" if images >= 10 else f"{images:.1f} images/s")
    if task.time_remaining and task.fields["even"]:
        texts.append(f"{_span(task.time_remaining)} left")
    return one_line("  ".join(filter(None, (", ".join(texts), task.fields["note"]))))


def _span(seconds: float) -> str:
    """A duration in words, to about two digits."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
