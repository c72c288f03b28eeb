"""What the user sees during long work: rich's bars on a terminal, elsewhere a line now and then.

Work is nested: an evaluation runs protocols, each of which reads images. All of it is on stderr.
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

LITERAL: Any = {"markup": False, "emoji": False, "highlight": False}  # names mean only themselves
LEAST_COLUMNS = 20  # of a terminal: shells that do not know its size say fewer
LINE_S = 3.0  # shorter work shows no line
EVERY_S = 15.0  # between two lines
SPEED_S = 60.0  # of which the speed is taken


def terminal(stderr: bool = False) -> Console:
    """What prints to a terminal, or to what is there in its place."""
    columns = os.environ.get("COLUMNS", "")
    unknown = columns.isdecimal() and int(columns) < LEAST_COLUMNS
    return Console(stderr=stderr, width=80 if unknown else None, force_jupyter=False, **LITERAL)


class _Facts(ProgressColumn):
    """How far work is, and its note."""

    def render(self, task: Task) -> Text:
        return Text(_facts(task))


console = terminal(stderr=True)
_bars = Progress(
    TextColumn("{task.description}", markup=False), BarColumn(20), _Facts(),
    console=console, transient=True, redirect_stdout=False, speed_estimate_period=SPEED_S,
)  # fmt: skip
_silent = ContextVar("silent", default=False)


class Work:
    """Work under way: how much is done, with a note."""

    _next_line = math.inf  # when a line is due, of all work

    def __init__(self, what: str, total: int | None, done: int, **how: Any) -> None:
        self.done, self._note = done, ""
        self._task = _bars.add_task(one_line(what), completed=done, total=total, note="", **how)

    def advance(self, count: int = 1) -> None:
        """Count what was done."""
        self.update(self.done + count)

    def update(self, done: int, note: str | None = None) -> None:
        """Say how far it is, with a note, such as losses; None: as before."""
        self.done, self._note = done, self._note if note is None else note
        _bars.update(self._task, completed=done, note=self._note)
        if time.monotonic() >= Work._next_line:
            Work._next_line = time.monotonic() + EVERY_S
            console.print(line(), soft_wrap=True)

    def end(self) -> None:
        """Show it no longer."""
        _bars.remove_task(self._task)


def line() -> str:
    """All work under way in a line, the outermost first."""
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
    """Show that something is under way during the block, in the first process alone.

    Args:
        what: What it does; empty where the unit says it.
        total: How many there are; None: not counted.
        unit: Of what, such as "images".
        done: How many an earlier process did.
        even: Whether all take about as long, so that the time left can be estimated.
        images: How many images one stands for, to show their speed.
        enabled: Whether to show it.

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
    """Pass items on, and show how many were dealt with; see `doing`."""
    with doing(what, total, unit, even=even) as work:
        for item in items:
            yield item
            work.advance()


@contextmanager
def silent() -> Iterator[None]:
    """Say nothing during the block but how far its work is."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def say(text: str, style: str | None = None) -> None:
    """Print a line, above the bars where there are some."""
    if not _silent.get():
        console.print(one_line(text), style=style, soft_wrap=True)


class _LineFormatter(logging.Formatter):
    """What is logged, as `one_line`."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


_format_warning = warnings.formatwarning


def show_warnings() -> None:
    """Print warnings, those of libraries too, with names in them as all else."""
    if logging.lastResort is not None:  # it handles what has no other handler
        logging.lastResort.setFormatter(_LineFormatter())
    warnings.filterwarnings("ignore", "Image size", module="PIL")  # `max_pixels` decides
    warnings.formatwarning = lambda *args, **options: visible(_format_warning(*args, **options))


def _facts(task: Task) -> str:
    """How far work is, how fast and how long yet, and its note."""
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
    """A length of time in words, to two digits or so."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
