"""What is shown of long work: when a line is due and what it says, and what a pipe receives."""

import os
import re
import subprocess
import sys
import warnings
from contextlib import ExitStack

import pytest

from mast.core import display
from mast.core.display import APART_S, EVERY_S, LINE_S, MINUTE_S, Board, Work


class Clock:
    """A time that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Board:
    """A board whose lines are asked for by the test alone."""
    board = Board(clock)
    monkeypatch.setattr(board, "_show", lambda over: None)
    monkeypatch.setattr("mast.core.display.LINE_S", LINE_S)  # of which conftest makes "never"
    return board


def lines(board: Board, clock: Clock, seconds: float, work: Work, count: float) -> list[str]:
    """The lines of some seconds in which work is done, `count` per second."""
    said = []
    for _ in range(round(4 * seconds)):
        clock.now += 0.25
        before = work.done
        done = int((clock.now - work.begun) * count)
        if done > before:
            work.update(done)
        if (line := board.line()) is not None:
            said.append((clock.now, line))
    return said


def test_a_line_says_what_how_far_how_fast_and_how_long_yet(board: Board, clock: Clock) -> None:
    work = Work("reading photos", 1361, "images", clock=clock)
    with board.showing(work):
        said = lines(board, clock, 64, work, 10)
    times = [time - 1000 for time, _ in said]
    assert times == [LINE_S + EVERY_S * at for at in range(5)]
    assert said[0][1] == "reading photos: 30 of 1,361 images, 10 images/s, 2 min left"
    assert said[4][1] == "reading photos: 630 of 1,361 images, 10 images/s, 73 s left"
    assert board.line() is None


def test_the_speed_is_that_of_the_last_minute(board: Board, clock: Clock) -> None:
    work = Work("training", 1000, "steps", done=100, images=32, clock=clock)
    with board.showing(work):
        for step in range(101, 111):  # the first ones take ten times as long
            clock.now += 10
            work.update(step)
        for step in range(111, 211):
            clock.now += 1
            work.update(step, "loss 0.5")
        line = board.line()
    assert line == "training: 210 of 1,000 steps, 32 images/s, 13 min left  loss 0.5"


def test_a_single_long_step_gives_a_sign(board: Board, clock: Clock) -> None:
    work = Work("training", 10, "steps", clock=clock)
    with board.showing(work):
        clock.now += 20
        assert board.line() == "training: 0 of 10 steps, 20 s so far"
        work.advance()
        clock.now += 40
        assert board.line() == "training: 1 of 10 steps, 3 min left, the last one 40 s ago"
        clock.now += EVERY_S - 1
        assert board.line() is None
        clock.now += 1
        assert board.line() is not None


def test_nested_work_is_one_line_from_the_outermost(board: Board, clock: Clock) -> None:
    outer, between = (
        Work("evaluate", clock=clock),
        Work("", 3, "protocols", even=False, clock=clock),
    )
    with ExitStack() as stack:
        for work in (outer, between, Work("linear", clock=clock)):
            stack.enter_context(board.showing(work))
        between.advance()
        clock.now += 4
        assert board.line() == "evaluate: 1 of 3 protocols: linear: 4 s so far"
        with board.showing(features := Work("features of photos", 8, "images", clock=clock)):
            assert lines(board, clock, LINE_S - 0.25, features, 2) == []
            (early,) = lines(board, clock, APART_S, features, 1)  # other work: sooner
            assert early[1].startswith("evaluate: 1 of 3 protocols: linear: features of photos: ")
        clock.now += MINUTE_S
        board.line()
        with board.showing(features := Work("features of more", 99, "images", clock=clock)):
            ((time, _),) = lines(board, clock, EVERY_S, features, 1)  # later no more often
            assert time - features.begun == EVERY_S


PROGRAM = """
import sys, time
from mast.core import display
display.LINE_S, display.APART_S, display.EVERY_S, display.REFRESH_S = 0.1, 0.1, 0.2, 0.02
display.BAR_S = 0.1
display.say("begun")
with display.doing("evaluate"):
    for _ in display.track(range(10), "features", 10, "images"):
        time.sleep(0.03)
    with display.doing("a single step") as work:
        work.update(0, "a note")
        time.sleep(0.6)
print("result")
"""


def test_other_processes_than_the_first_show_nothing(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "_board", board)
    for rank, shown in (("1", False), ("0", True)):
        monkeypatch.setenv("LOCAL_RANK", rank)
        with display.doing("evaluate"):
            assert bool(board._works) is shown


def test_a_pipe_receives_plain_lines() -> None:
    call = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(call, capture_output=True, check=True, text=True)
    assert ended.stdout == "result\n"
    assert not set(ended.stderr) & {"\r", "\x1b"}
    begun, *said = ended.stderr.splitlines()
    assert begun == "begun"
    assert re.fullmatch(r"evaluate: features: \d+ of 10 images, \d+ images/s, \d s left", said[0])
    assert sum("evaluate: a single step: " in line for line in said) >= 2


def test_a_notebook_has_one_bar_and_errors_of_one_line() -> None:
    client, formats = pytest.importorskip("nbclient"), pytest.importorskip("nbformat.v4")
    error = "from mast.core.errors import UserError\nraise UserError('size must be 1, got 0')"
    program = PROGRAM.replace("BAR_S = 0.1", "BAR_S = display.NOTEBOOK_S = 0.1")
    notebook = formats.new_notebook(cells=[*map(formats.new_code_cell, (program, error))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries warn of what they deprecate
        client.NotebookClient(notebook, timeout=120, allow_errors=True).execute()
    shown, failed = (cell.outputs for cell in notebook.cells)
    line, bar, result = (of.get("data", {}).get("text/plain", of.get("text")) for of in shown)
    assert (line, bar, result) == ("begun\n", "", "result\n")  # the bar is emptied at the end
    assert failed[0]["traceback"] == ["error: size must be 1, got 0"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_a_terminal_shows_bars() -> None:
    import pty

    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "90"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the other end was closed
            pass
        assert process.wait() == 0
    os.close(ours)
    text = shown.decode()
    assert re.search("features +.*━+.* of 10 images, .* images/s", text)
    assert "a single step" in text
    assert "a note" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
