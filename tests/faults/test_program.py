"""The program behind `make faults` sees what must not be."""

import json
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from faults import __main__ as program
from faults import lies, strangers
from faults.case import Case
from faults.files import DAMAGES
from faults.process import Outcome, run, start
from faults.world import CANARY, Runs

from mast.core.errors import UserError
from mast.core.files import read_markup, signed
from mast.core.tensors import DIGEST, digest, read_tensors, write_tensors


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
    monkeypatch.setattr("mast.cli.main", command)
    outcome = run(["report"], tmp_path)
    assert outcome.fault == fault
    assert outcome.printed == ("84.3\n" if command is answers else "")


def test_a_command_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.cli.main", lambda: time.sleep(60))
    outcome = start(["report"], tmp_path).end(0.2)
    assert (outcome.code, outcome.fault) == (None, "hang")
    running = start(["report"], tmp_path)
    assert running.wait(0.1) is None
    running.ask(signal.SIGTERM)
    assert running.end().code == -signal.SIGTERM


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_changes_a_file(how: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    content = bytes(range(256)) * 4
    file.write_bytes(content)
    DAMAGES[how](file, random.Random(0))
    assert not file.is_file() or file.read_bytes() != content


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


def test_a_call_ends_as_a_command(tmp_path: Path) -> None:
    def refused() -> str:
        raise UserError("no such run")

    answered = run((), tmp_path, call=lambda: 84.3)
    assert (answered.fault, answered.printed) == (None, "84.3\n")
    outcome = run((), tmp_path, call=refused)
    assert (outcome.fault, outcome.code, outcome.summary) == (None, 2, "error: no such run")
    assert run((), tmp_path, call=lambda: 1 / 0).fault == "traceback"


# --------------------------------------------------------------------------------------------- lies
def numbers() -> dict[str, torch.Tensor]:
    return {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(2)}


def before(name: str, folder: Path) -> Path:
    """A file of the kind that a lie rewrites, as small as can be."""
    (folder / "bin").mkdir()
    (folder / "bin" / "gs").touch()
    file = folder / Path(lies.LIES[name].files).name.replace("*", "x")
    if file.suffix == ".safetensors":
        write_tensors(file, numbers(), {"encoder": {}, "classifier": {}, "normalization": {}})
    elif file.suffix == ".npz":
        np.savez(file, first=np.ones(3), second=np.zeros((2, 2)))
    elif file.suffix == ".pt":
        group = {"lr": 1.0, "betas": (0.9, 0.99), "peak_lr": 1.0}
        torch.save({"module": numbers(), "step": 3, "kept": {},
                    "optimizer": {"param_groups": [group]}}, file)  # fmt: skip
    elif file.suffix == ".yaml":
        fields = ("optimizer", "objective", "encoder", "data")
        file.write_text(yaml.safe_dump({field: {} for field in fields}))
    elif file.suffix == ".svg":
        file.write_text(signed('<svg width="9"><g/></svg>'))
    elif file.suffix == ".png":
        file.write_bytes(b"pixels")
    elif file.suffix == ".jsonl":
        file.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    elif file.suffix == ".json":
        document: dict[str, Any] = {name: [{}] for name in ("images", "annotations", "categories")}
        document |= {"shardlist": [{"url": "x.tar"}], "targets": {"class": 1}}
        file.write_text(json.dumps(document | {DIGEST: digest({}, document)}))
    return file


@pytest.mark.parametrize("name", [name for name in lies.LIES if name != "shard"])
def test_a_lie_changes_what_is_said_and_keeps_the_digest(name: str, tmp_path: Path) -> None:
    file = before(name, tmp_path)
    content = file.read_bytes()
    assert lies.LIES[name].tell(file, random.Random(0))
    assert file.read_bytes() != content
    if file.suffix == ".safetensors":
        read_tensors(file)  # which verifies it
    elif file.suffix == ".svg":
        assert "canary" in read_markup(file)
    elif file.suffix == ".json":
        document = json.loads(file.read_text())
        assert document.pop(DIGEST) == digest({}, document)
    assert not (tmp_path / CANARY).exists()


# -------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize("markup", strangers.MARKUP)
def test_a_page_in_which_markup_acts(markup: str) -> None:
    assert strangers.page_acts(f"<html><body><svg>{markup}</svg></body></html>")
    escaped = markup.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    assert not strangers.page_acts(f'<p title="{escaped}">{escaped}</p>')


def test_a_table_and_a_card_in_which_text_acts(tmp_path: Path) -> None:
    assert strangers.table_acts("name\n=1+canary()\n")
    assert strangers.table_acts('name\n"\uff1d1"\n')
    assert not strangers.table_acts("name,score\n'=1+1,-0.5\n")
    assert strangers.card_acts("A run of [x](javascript:canary()).")
    assert strangers.card_acts("<img src=x onerror=canary()>")
    assert not strangers.card_acts("A run of `[x](javascript:canary())`, \\[x\\](canary)")
    (tmp_path / "told.csv").write_text("@SUM(1)\n")
    assert strangers.acts(tmp_path) == "told.csv"


@pytest.mark.parametrize(
    ("said", "wrong"),
    [("dusk", 0), ("\x1b[31mred", 1), ("\u202egnp", 1), ("a\nerror: forged", 1), ("rich", 1),
     ("[red]rich[/red]", 0), ("\x9b31m", 1), ("a\\x1b", 0)],
)  # fmt: skip
def test_what_a_terminal_would_obey(said: str, wrong: int) -> None:
    assert len(list(strangers.printed(Outcome(0, said, "", 0.1)))) == wrong


# --------------------------------------------------------------------------------- ambient, hostile
