"""The program behind `make faults` sees what must not be."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.case import Case
from faults.commands import COMMANDS
from faults.files import DAMAGES
from faults.process import run, start


def refuses() -> int:
    print("warning: something else\nerror: no such run", file=sys.stderr)
    return 2


def refuses_at_length() -> int:
    print(
        f"error: run/config.yaml: unknown field. Choose from {', '.join('x' * 999)}",
        file=sys.stderr,
    )
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
        (refuses_at_length, None),
        (raises, "traceback"),
        (says_nothing, "traceback"),
        (is_a_fault_in_one_line, "traceback"),
        (dies, "traceback"),
    ],
)
def test_how_a_command_ends(
    command: Callable[[], int],
    fault: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mast.cli.main", command)
    outcome = run(["report"], tmp_path)
    assert outcome.fault == fault
    assert outcome.printed == ("84.3\n" if command is answers else "")
    case = Case.of("options", ["report"], "", outcome.fault or "refused", outcome)
    assert command is not refuses_at_length or case.said.startswith("error: run/config.yaml:")
    assert bool(case.more) == (fault is not None and bool(outcome.said))


def test_a_command_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.cli.main", lambda: time.sleep(60))
    outcome = start(["report"], tmp_path).end(0.2)
    assert (outcome.code, outcome.fault) == (None, "hang")


def test_a_command_is_told_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.cli.main", lambda: time.sleep(60))
    running = start(["report"], tmp_path)
    assert running.wait(0.1) is None
    running.ask(signal.SIGTERM)
    assert running.end().code == -signal.SIGTERM


def test_an_answer_has_all_that_counts_and_no_times(tmp_path: Path) -> None:
    command = COMMANDS["pretrain"]
    (tmp_path / "new").mkdir()
    weights, log = tmp_path / "new" / "encoder.safetensors", tmp_path / "new" / "metrics.jsonl"
    weights.write_bytes(b"weights")
    log.write_text('{"step": 1, "loss": 2.0, "seconds": 3.0}\n')
    before = command.answer(tmp_path, "")
    log.write_text('{"step": 1, "loss": 2.0, "seconds": 4.0}\n')
    assert command.answer(tmp_path, "") == before
    log.write_text('{"step": 1, "loss": 2.1, "seconds": 4.0}\n')
    assert command.answer(tmp_path, "") != before
    command.forget(tmp_path)
    assert command.answer(tmp_path, "") == {}


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_changes_a_file(how: str, tmp_path: Path) -> None:
    import random

    file = tmp_path / "config.yaml"
    content = bytes(range(256)) * 4
    file.write_bytes(content)
    DAMAGES[how](file, random.Random(0))
    assert not file.is_file() or file.read_bytes() != content
