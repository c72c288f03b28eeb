"""What is shown of long work: what a line says, and what a pipe and a terminal receive."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mast.core import display


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A time that the test moves."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(display._bars, "get_time", lambda: clock.now)
    return clock


def test_a_line_says_what_how_far_how_fast_and_how_long_yet(clock: SimpleNamespace) -> None:
    with display.doing("reading photos", 1361, "images") as work:
        for _ in range(64):
            clock.now += 1
            work.advance(10)
        assert display.line() == "reading photos: 640 of 1,361 images, 10 images/s, 73 s left"
    assert display.line() == ""


def test_nested_work_is_one_line_from_the_outermost(clock: SimpleNamespace) -> None:
    with (
        display.doing("evaluate"),
        display.doing("", 3, "protocols", even=False) as protocols,
        display.doing("linear") as linear,
    ):
        clock.now += 4
        protocols.advance()
        linear.update(0, "a note")
        assert display.line() == "evaluate: 1 of 3 protocols: linear: a note"


PROGRAM = """
import sys, time
from mast.core import display
display.LINE_S, display.EVERY_S = 0.1, 0.1
display.say("begun")
with display.doing("evaluate"):
    for _ in display.track(range(10), "features", 10, "images"):
        time.sleep(0.03)
print("result")
"""


def test_other_processes_than_the_first_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, line in (("1", ""), ("0", "evaluate")):
        monkeypatch.setenv("LOCAL_RANK", rank)
        with display.doing("evaluate"):
            assert display.line() == line


def test_a_pipe_receives_plain_lines() -> None:
    call = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(call, capture_output=True, check=True, text=True)
    assert ended.stdout == "result\n"
    assert not set(ended.stderr) & {"\r", "\x1b"}
    begun, *said = ended.stderr.splitlines()
    assert begun == "begun"
    assert len(said) >= 2
    assert re.fullmatch(r"evaluate: features: \d+ of 10 images, \d+ images/s, \d s left", said[0])


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
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
