"""Pretrainings side by side are those that follow one another."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import configure

import mast
from mast.commands import together
from mast.commands.together import pretrain_together
from mast.core.errors import UserError
from mast.core.run import RunFolder


@pytest.fixture
def configs(photos: Path, tmp_path: Path) -> dict[str, mast.PretrainConfig]:
    recipes = {"ours": "mast5_small", "theirs": "vicreg5_small"}
    return {
        name: configure(photos, tmp_path / name, recipe, device="cpu")
        for name, recipe in recipes.items()
    }


def test_together_equals_one_after_the_other(configs, tmp_path, monkeypatch):
    monkeypatch.setattr(together, "cores", lambda: 2)
    runs = pretrain_together(configs)
    assert [run.path for run in runs.values()] == [tmp_path / name for name in configs]
    for name, config in configs.items():
        alone = mast.pretrain(replace(config, out=str(tmp_path / f"{name} alone"), threads=1))
        expected = load_file(alone.encoder)
        for key, value in load_file(runs[name].encoder).items():
            assert torch.equal(value, expected[key]), (name, key)


def test_a_run_that_fails_is_named_with_its_reason(configs, tmp_path, monkeypatch):
    """The reason is that of the process which pretrains; here nothing was wrong before."""
    monkeypatch.setattr(together, "cores", lambda: 2)
    configs["theirs"] = replace(configs["theirs"], batch_size=64)
    reason = "has 48 images, fewer than one batch of 64"
    with pytest.raises(UserError, match=rf"^theirs, {tmp_path / 'theirs'}: .* {reason}"):
        pretrain_together(configs)


@pytest.fixture
def children(monkeypatch, photos: Path, tmp_path: Path):
    """A function that lets each of two runs execute lines of Python in place of a pretraining."""
    monkeypatch.setattr(together, "cores", lambda: 2)
    monkeypatch.setattr(together, "_prepared", lambda config: 1)

    def run(**lines: str) -> None:
        text = "\n".join(f"if {name!r} in open(sys.argv[1]).read():\n    {line}"
                         for name, line in lines.items())  # fmt: skip
        monkeypatch.setattr(together, "CHILD", f"import os, sys, time\n{text}\n")
        pretrain_together({
            name: configure(photos, tmp_path / name, "vicreg5_small", device="cpu")
            for name in lines
        })  # fmt: skip

    return run


def test_a_bug_is_no_error_of_the_user(children):
    with pytest.raises(RuntimeError, match=r"(?s)bug_run, .*Traceback.*ZeroDivisionError"):
        children(fine_run="pass", bug_run="1 / 0")


def test_a_kill_is_said_and_the_others_are_stopped(children):
    begun = time.monotonic()
    with pytest.raises(UserError, match=r"dead_run, .*killed by signal 9"):
        children(long_run="time.sleep(60)", dead_run="os.kill(os.getpid(), 9)")
    assert time.monotonic() - begun < 30


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="reads /proc")
def test_children_end_with_their_parent():
    head = together.CHILD.split("from mast")[0]  # what watches the parent
    script = (
        "import subprocess, sys, time\n"
        f"child = {head + 'import time; time.sleep(60)'!r}\n"
        "process = subprocess.Popen([sys.executable, '-c', child], stdin=subprocess.PIPE)\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
    assert any(has_ended(child) for _ in range(100))


def has_ended(process: int) -> bool:
    """Whether a process is no more, or only waits to be collected, after a tenth of a second."""
    time.sleep(0.1)
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_on_one_core_they_follow_one_another(configs, monkeypatch):
    monkeypatch.setattr(together, "cores", lambda: 1)
    monkeypatch.setattr(together, "pretrain", lambda config: RunFolder(config.folder()))
    assert [run.path.name for run in pretrain_together(configs).values()] == ["ours", "theirs"]
