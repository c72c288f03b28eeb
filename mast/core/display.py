"""What the user sees during long work: rich's bars on a terminal, elsewhere a line now and then.

Work is nested: an evaluation runs protocols, each of which reads images. All of it is on stderr.
"""

import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from rich.progress import Progress, Task
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mast.core.errors import one_line, visible
from mast.core.stopping import is_first_here

Item = TypeVar("Item")

LITERAL: Any = {"markup": False, "emoji": False, "highlight": False}  # names mean only themselves
LEAST_COLUMNS = 20  # of a terminal: shells that do not know its size say fewer
BAR_S = 1.0  # shorter work shows no bar on a terminal
LINE_S = 3.0  # and no line elsewhere
EVERY_S = 15.0  # between two lines
SPEED_S = 60.0  # of which the speed is taken


def terminal(stderr: bool = False) -> Console:
    """What prints to a terminal, or to what is there in its place."""
    columns = os.environ.get("COLUMNS", "")
    unknown = columns.isdecimal() and int(columns) < LEAST_COLUMNS
    return Console(stderr=stderr, width=80 if unknown else None, force_jupyter=False, **LITERAL)


console = terminal(stderr=True)


class Board(Progress):
    """All work under way, the outermost first."""

    def __init__(self) -> None:
        super().__init__(
            console=console, transient=True, redirect_stdout=False, speed_estimate_period=SPEED_S
        )
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        """A row for each."""
        rows = Table.grid(padding=(0, 1))
        rows.add_column(overflow="ellipsis", no_wrap=True)
        rows.add_column(width=20)
        rows.add_column(overflow="fold")
        tasks = self._visible()
        for depth, task in enumerate(tasks):
            bar = "" if task.total is None else ProgressBar(task.total, task.completed, width=20)
            facts = filter(None, (_facts(task, task is tasks[-1]), task.fields["note"]))
            what = "  " * depth + one_line(task.description)
            rows.add_row(Text(what), bar, Text(one_line("  ".join(facts))))
        yield rows

    def line(self) -> str:
        """The same in one line."""
        tasks = self._visible()
        parts = [
            text for task in tasks for text in (task.description, _facts(task, task is tasks[-1]))
        ]
        notes = [task.fields["note"] for task in tasks[-1:]]
        return "  ".join(filter(None, (": ".join(filter(None, parts)), *notes)))

    def _visible(self) -> list[Task]:
        return [task for task in self.tasks if task.visible]

    def watch(self) -> None:
        """Show what is under way until `rest`, from a thread of its own."""
        with self._lock:
            if self._thread is None:
                self._over.clear()
                self._thread = threading.Thread(target=self._show, name="mast-display", daemon=True)
                self._thread.start()

    def rest(self) -> None:
        """Show nothing any more."""
        thread, self._thread = self._thread, None
        self._over.set()
        if thread is not None:
            thread.join()

    def _show(self) -> None:
        on_terminal = sys.stderr.isatty() and not console.is_dumb_terminal
        if self._over.wait(min(BAR_S if on_terminal else LINE_S, threading.TIMEOUT_MAX)):
            return
        with suppress(OSError):  # the terminal is gone; the work itself notices if that matters
            if on_terminal:
                with self:
                    self._over.wait()
                return
            say(self.line())
            while not self._over.wait(EVERY_S):
                say(self.line())


class Work:
    """Something under way, and how far it is; see `doing`."""

    def __init__(self, what: str, total: int | None, unit: str, done: int, **how: Any) -> None:
        self.what, self.total, self.unit, self.done, self.note = what, total, unit, done, ""
        self.images = how["images"]
        self.task = _board.add_task(what, completed=done, total=total, unit=unit, note="", **how)

    def advance(self, count: int = 1) -> None:
        """Count what was done."""
        self.update(self.done + count)

    def update(self, done: int, note: str | None = None) -> None:
        """Say how far it is, with a note, such as losses; None: as before."""
        self.done, self.note = done, self.note if note is None else note
        _board.update(self.task, completed=done, note=self.note)


_board = Board()
_silent = ContextVar("silent", default=False)


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
    shown = enabled and is_first_here()
    images = 1 if unit == "images" else images
    work = Work(what, total, unit, done, even=even, images=images, visible=shown)
    try:
        if shown:
            _board.watch()
        yield work
    finally:
        _board.remove_task(work.task)
        if not _board.tasks:
            _board.rest()


def track(
    items: Iterable[Item], what: str, total: int, unit: str = "", even: bool = True
) -> Iterator[Item]:
    """Pass items on, and show how many were dealt with; see `Work`."""
    with doing(what, total, unit, even=even) as work:
        for item in items:
            yield item
            work.advance()


@contextmanager
def silent() -> Iterator[None]:
    """Say nothing during the block; how far its work is, another thread shows all the same."""
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


def _facts(task: Task, innermost: bool) -> str:
    """How far work is, how fast and how long yet; of the innermost at least how long it took."""
    unit, images, texts = task.fields["unit"], task.fields["images"], list[str]()
    if task.total is not None:
        texts.append(f"{task.completed:,.0f} of {task.total:,.0f} {unit}".rstrip())
    elif unit and task.completed:
        texts.append(f"{task.completed:,.0f} {unit}")
    if task.speed and images:
        speed = images * task.speed
        texts.append(f"{speed:,.0f} images/s" if speed >= 10 else f"{speed:.1f} images/s")
    if task.time_remaining and task.fields["even"]:
        texts.append(f"{_span(task.time_remaining)} left")
    elif innermost:
        texts.append(f"{_span(task.elapsed or 0)} so far")
    return ", ".join(texts)


def _span(seconds: float) -> str:
    """A length of time in words, to two digits or so."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
