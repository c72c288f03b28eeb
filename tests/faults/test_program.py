"""The program behind `make faults` sees what must not be."""

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faults import __main__ as program
from faults.case import Case
from faults.process import Outcome, run, start
from faults.world import CANARY, Runs


def refuses() -> int:
    print("warning: something else\nerror: no such run", file=sys.stderr)
    return 2


def raises() -> int:
    raise ValueError("nobody expected this")


def dies() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def answers() -> int:
    print("84.3")
    return 0


@pytest.mark.parametrize(
    ("command", "fault"),
    [(answers, None), (refuses, None), (raises, "traceback"), (dies, "traceback")],
)
def test_how_a_command_ends(
    command: Callable[[], int], fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast.cli.main", lambda program: command())
    outcome = run(["report"], tmp_path)
    assert outcome.fault == fault
    assert outcome.printed == ("84.3\n" if command is answers else "")


def test_a_command_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.cli.main", lambda program: time.sleep(60))
    outcome = start(["report"], tmp_path).end(0.2)
    assert (outcome.code, outcome.fault) == (None, "hang")
    running = start(["report"], tmp_path)
    assert running.wait(0.1) is None
    running.ask(signal.SIGTERM)
    assert running.end().code == -signal.SIGTERM


def test_what_ran_code_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was answered; the last line counts it."""
    case = Case.of("lies", ["report"], "", "refused", Outcome(2, "", "error: x", 0.1))
    for ran in (False, True):
        world: Any = SimpleNamespace(ran_code=ran)
        monkeypatch.setitem(program.TURNS, "lies", (1, lambda world, draw: case))
        found = program.attack(world, 0, 0, ["lies"])
        assert found.verdict == ("code" if ran else "refused")
    pickle.loads(pickle.dumps(Runs(tmp_path / CANARY)))
    assert (tmp_path / CANARY).exists()
