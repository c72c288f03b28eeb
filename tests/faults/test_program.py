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
from faults import strangers
from faults.case import Case
from faults.process import Outcome, run, start
from faults.world import CANARY, Runs


def refuses() -> int:
    print("warning: something else\nerror: no such run", file=sys.stderr)
    return 2


def raises() -> int:
    raise ValueError("nobody expected this")


def says_nothing() -> int:
    return 2


def is_a_fault_in_one_line() -> int:
    print("error: ValueError: nobody expected this", file=sys.stderr)
    return 1


def dies() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def answers() -> int:
    print("84.3")
    return 0


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (answers, None),
        (refuses, None),
        (raises, "traceback"),
        (says_nothing, "traceback"),
        (is_a_fault_in_one_line, "traceback"),
        (dies, "traceback"),
    ],
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


# ---------------------------------------------------------------------------------------- strangers
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


def test_a_table_and_a_card_in_which_text_acts(tmp_path: Path) -> None:
    assert strangers.table_acts("name\n=1+canary()\n")
    assert strangers.table_acts('name\n"\uff1d1"\n')
    assert not strangers.table_acts("name,score\n'=1+1,-0.5\n")
    assert strangers.card_acts("A run of [x](javascript:canary()).")
    assert strangers.card_acts("<img src=x onerror=canary()>")
    assert not strangers.card_acts("A run of `[x](javascript:canary())`, \\[x\\](canary)")
    (tmp_path / "told.csv").write_text("@SUM(1)\n")
    assert strangers.acts(tmp_path) == "told.csv"
