"""What the user sees during long work: bars on a terminal and in notebooks, elsewhere plain lines.

Work is nested: a study trains runs, a run reads its images. One thread shows all that is under way,
so that a single step of minutes gives a sign too. Work of a few seconds shows nothing.
"""

import io
import logging
import os
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mast.core.errors import one_line, visible
from mast.core.stopping import is_first_here

Item = TypeVar("Item")

LITERAL: Any = {"markup": False, "emoji": False, "highlight": False}  # names mean only themselves
LEAST_COLUMNS = 20  # of a terminal: shells that do not know its size say fewer


def terminal(stderr: bool = False) -> Console:
    """What prints to a terminal, or to what is there in its place."""
    columns = os.environ.get("COLUMNS", "")
    unknown = columns.isdecimal() and int(columns) < LEAST_COLUMNS
    return Console(stderr=stderr, width=80 if unknown else None, **LITERAL)


console = terminal(stderr=True)

BAR_S = 1.0  # shorter work shows no bar on a terminal
LINE_S = 3.0  # and no line elsewhere
EVERY_S = 15.0  # at most between two lines
APART_S = 5.0  # at least, in the first minute, where other work has begun
MINUTE_S = 60.0
SPEED_S = 60.0  # of which the speed is taken
REFRESH_S = 0.25
NOTEBOOK_S = 1.0  # likewise, where each sign is a message to a browser
HTML = '<pre style="line-height: normal">{code}</pre>'


class Work:
    """Something under way, and how far it is.

    Args:
        what: What it does; empty where the unit says it.
        total: How many there are; None: not counted.
        unit: Of what, such as "images".
        done: How many an earlier process did.
        even: Whether all take about as long, so that the time left can be estimated.
        images: How many images one stands for, to show their speed.
        clock: The time in seconds.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        unit: str = "",
        done: int = 0,
        even: bool = True,
        images: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what, self.total, self.unit, self.even = what, total, unit, even
        self.images = 1 if unit == "images" else images
        self.done = done
        self.note = ""
        self.begun = clock()
        self.announced = False  # whether a line was shown of it
        self._clock = clock
        self._marks = deque([(self.begun, done)])  # of the last minute, for the speed
        self._last = self._marks[0]

    def advance(self, count: int = 1) -> None:
        """Count what was done."""
        self.update(self.done + count)

    def update(self, done: int, note: str | None = None) -> None:
        """Say how far it is, with a note, such as losses; None: as before."""
        now = self._clock()
        self.done, self._last = done, (now, done)
        if now - self._marks[-1][0] >= 1.0:
            self._marks.append(self._last)
            while len(self._marks) > 2 and self._marks[1][0] <= now - SPEED_S:
                self._marks.popleft()
        self.note = self.note if note is None else note

    def facts(self, now: float, innermost: bool = True) -> str:
        """How far it is, in words; `innermost` where nothing that is shown is a part of it."""
        so_far = f"{_span(now - self.begun)} so far" if innermost else ""
        if self.total is None:
            counted = f"{self.done:,} {self.unit}" if self.unit and self.done else ""
            return ", ".join(filter(None, (counted, so_far)))
        seconds, count = (b - a for a, b in zip(self._marks[0], self._last, strict=True))
        rate = count / seconds if count > 0 and seconds > 0 else 0.0
        speed = left = last = ""
        if rate and self.images:
            images = self.images * rate
            speed = f"{images:,.0f} images/s" if images >= 10 else f"{images:.1f} images/s"
        if rate and self.even:
            left = f"{_span((self.total - self.done) / rate)} left"
        if rate and innermost and now - self._last[0] >= EVERY_S:
            last = f"the last one {_span(now - self._last[0])} ago"
        done = f"{self.done:,} of {self.total:,} {self.unit}".rstrip()
        return ", ".join(filter(None, (done, speed, left, "" if rate else so_far, last)))


class Board:
    """All that is under way, the outermost first; as plain lines, and as bars."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._works: list[Work] = []
        self._line_at = float("-inf")
        self._changing = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def showing(self, work: Work) -> Iterator[None]:
        """Show work during the block."""
        try:
            with self._changing:
                self._works.append(work)
                if self._thread is None:
                    self._over = threading.Event()
                    self._thread = threading.Thread(
                        target=self._show, args=(self._over,), name="mast-display", daemon=True
                    )
                    self._thread.start()
            yield
        finally:
            thread = None
            with self._changing:
                if work in self._works:  # a signal may come before it is
                    self._works.remove(work)
                if not self._works:
                    thread, self._thread = self._thread, None
                    self._over.set()
            if thread is not None:
                thread.join()

    def line(self) -> str | None:
        """The line that is due now, if one is.

        It is when the last one is `EVERY_S` old; in the first minute as soon as new work has lasted
        for `LINE_S`.
        """
        now, works = self.clock(), list(self._works)
        if not works or now - works[0].begun < LINE_S:
            return None
        new = any(now - work.begun >= LINE_S and not work.announced for work in works)
        patience = APART_S if new and now - works[0].begun < MINUTE_S else EVERY_S
        if now - self._line_at < patience:
            return None
        self._line_at = now
        parts = []
        for work in works:
            work.announced = True
            facts = work.facts(now, innermost=work is works[-1])
            parts.append(": ".join(filter(None, (work.what, facts))))
        return "  ".join(filter(None, (": ".join(parts), works[-1].note)))

    def bars(self) -> Table | None:
        """The same for a terminal, a row each; None where nothing has lasted for `BAR_S`."""
        now = self.clock()
        works = [work for work in list(self._works) if now - work.begun >= BAR_S]
        if not works:
            return None
        rows = Table.grid(padding=(0, 1))
        rows.add_column(overflow="ellipsis", no_wrap=True)
        rows.add_column(width=20)
        rows.add_column(overflow="fold")
        for depth, work in enumerate(works):
            facts = work.facts(now, innermost=work is works[-1])
            bar = "" if work.total is None else ProgressBar(work.total, work.done, width=20)
            rows.add_row(Text("  " * depth + one_line(work.what)), bar, Text(facts))
            if work.note:
                rows.add_row("", "", Text(one_line(work.note), style="dim"))
        return rows

    def _show(self, over: threading.Event) -> None:
        """Show what is under way until it is over, from a thread of its own."""
        try:
            if sys.stderr.isatty() and not console.is_dumb_terminal:
                self._show_bars(over)
            elif hasattr(_shell(), "kernel"):
                self._show_in_notebook(over)
            else:
                while not over.wait(REFRESH_S):
                    if (line := self.line()) is not None:
                        say(line)
        except OSError:  # the terminal is gone; the work itself notices if that matters to it
            return

    def _show_bars(self, over: threading.Event) -> None:
        while not over.wait(REFRESH_S):
            if self.bars() is None:
                continue
            with Live(console=console, auto_refresh=False, transient=True) as live:
                while not over.wait(REFRESH_S) and (bars := self.bars()) is not None:
                    live.update(bars, refresh=True)

    def _show_in_notebook(self, over: threading.Event) -> None:
        """Bars in one output of a cell, which is emptied at the end."""
        place = None
        while not over.wait(NOTEBOOK_S):
            if (bars := self.bars()) is None:
                continue
            page = Console(file=io.StringIO(), record=True, width=100, force_jupyter=False)
            page.print(bars)
            html = page.export_html(inline_styles=True, code_format=HTML, clear=False)
            shown = {"text/html": html, "text/plain": page.export_text()}
            if place is None:
                place = sys.modules["IPython.display"].display(shown, raw=True, display_id=True)
            else:
                place.update(shown, raw=True)
        if place is not None:
            place.update({"text/plain": ""}, raw=True)


def _shell() -> Any:
    """IPython, where this process runs in it."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


_board = Board()
_silent = ContextVar("silent", default=False)


def hand_over() -> None:
    """Show nothing of what is under way here any more, as other processes go on with it."""
    with _board._changing:
        _board._works.clear()


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

    The arguments are those of `Work`, which it yields: the block says how far it is.
    """
    work = Work(what, total, unit, done, even, images, _board.clock)
    if not (enabled and is_first_here()):
        yield work
        return
    with _board.showing(work):
        yield work


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
    if _silent.get():
        return
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


def _span(seconds: float) -> str:
    """A length of time in words, to two digits or so."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
