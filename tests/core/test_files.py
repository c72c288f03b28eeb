"""Files that are whole or absent, and the run folder."""

import errno
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from tiny import Attack

from mast.core.checkpoint import (
    load_checkpoint,
    save_checkpoint,
    saved,
    write_atomically,
    write_json,
    write_text,
)
from mast.core.errors import UserError
from mast.core.files import locked
from mast.core.loggers import TensorBoardLogger, WandbLogger
from mast.core.run import RunFolder
from mast.data import DataConfig, open_canvas


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    def half(partial: Path) -> None:
        partial.write_text("half")
        raise error

    path = tmp_path / "file"
    path.write_text("old")
    expected = UserError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match="No space left" if expected is UserError else None):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_checkpoint_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, {"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(UserError, match="File too large"):
            save_checkpoint(path, {"weights": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert load_checkpoint(path) == {"step": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.pt"]


def test_a_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    def private(partial: Path) -> None:
        partial.unlink()
        partial.touch(mode=0o600)  # as safetensors does

    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", private)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    (tmp_path / "file").chmod(0o600)
    write_text(tmp_path / "file", "mine")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600  # what is replaced keeps its own


def test_two_processes_write_one_file_and_every_read_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, texts = tmp_path / "file", [100_000 * "0", 100_000 * "1"]
    monkeypatch.setattr(os, "fsync", lambda number: None)  # which would be most of the time
    write_text(path, texts[0])

    def write(text: str) -> None:
        for _ in range(20):
            write_text(path, text)

    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    found = []
    while any(writer.is_alive() for writer in writers):
        found.append(path.read_text())
    assert set(found) == set(texts)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_is_not(
    tmp_path: Path,
) -> None:
    yesterday = time.time() - 25 * 3600
    for name in ("killed", "living"):
        left = tmp_path / f".mast-{name}.partial"
        left.mkdir()
        (left / "new").write_text("half")
        os.utime(left, (yesterday, yesterday))
    os.utime(tmp_path / ".mast-killed.partial" / "new", (yesterday, yesterday))
    write_text(tmp_path / "file", "whole")
    assert sorted(os.listdir(tmp_path)) == [".mast-living.partial", "file"]


def test_what_is_no_file_is_not_replaced_and_a_link_is_followed(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    for taken in (pipe, tmp_path):
        with pytest.raises(UserError, match="is not a regular file"):
            write_text(taken, "text")
    link.symlink_to(tmp_path / "deep" / "file")
    for value in (1, 2):
        write_json(link, {"a": value})
    assert link.is_symlink()
    assert link.read_text() == '{\n  "a": 2\n}\n'
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(link, float("nan"))


def test_a_checkpoint_never_executes_code(tmp_path: Path) -> None:
    target, path = tmp_path / "executed", tmp_path / "last.pt"
    torch.save({"step": Attack(target)}, path)
    with pytest.raises(UserError, match="not a readable checkpoint"):
        load_checkpoint(path)
    assert saved(path) == {}
    assert not target.exists()


CONFIG = {"size": 32, "device": "cpu", "data": {"spec": "photos", "cache": None}, "views": "mast5"}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A folder that was opened with CONFIG."""
    folder = RunFolder(tmp_path / "run")
    folder.open(CONFIG)
    return folder


def test_a_folder_of_something_else_is_no_run(tmp_path: Path) -> None:
    empty, theirs = tmp_path / "empty", tmp_path / "theirs"
    (empty / ".mast-killed.partial").mkdir(parents=True)  # by the process that was to make it
    RunFolder(empty).open(CONFIG)
    (theirs / "thesis.tex").mkdir(parents=True)
    with pytest.raises(UserError, match="pretrain` wrote"), RunFolder(theirs).held():
        pass
    with pytest.raises(UserError, match=r"no config\.yaml"):
        RunFolder(theirs).require()
    assert os.listdir(theirs) == ["thesis.tex"]


def test_a_folder_is_held_by_one_process(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    with run.held():
        run.open(CONFIG)
        with pytest.raises(UserError, match="in use by another process"), run.held():
            pass
    with RunFolder(run.path).held():
        assert run.config.is_file()


def test_a_file_system_without_locks_is_worked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Such as a network disk."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr("fcntl.flock", refused)
    run = RunFolder(tmp_path / "run")
    with run.held():
        run.open(CONFIG)
    assert "file system without locks" in caplog.records[0].message
    with locked(tmp_path / "cache.lock") as held:  # which only saves work
        assert not held


def test_a_log_on_a_full_disk_and_what_tensorboard_reads(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in ((1, 2, 3), (2,)):  # the second process goes on from an earlier checkpoint
        logger = TensorBoardLogger(tmp_path / "tensorboard")
        for step in steps:
            logger.log_metrics({"loss": 1 / step, "lr": 0.5}, step)
    read = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(1, 1.0), (2, 0.5)]
    run = RunFolder(tmp_path)
    run.metrics.symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"metrics\.jsonl: No space left on device"):
        run.append_metrics({"step": 1})


def test_a_log_is_rewound_and_a_half_written_line_is_left_out(run: RunFolder) -> None:
    run.rewind_metrics(0)
    assert run.read_metrics() == []
    for step in (1, 2, 3):
        run.append_metrics({"step": step, "loss": step / 2})
    with run.metrics.open("a") as file:
        file.write('{"step": 4, "lo')
    assert [record["step"] for record in run.read_metrics()] == [1, 2, 3]
    run.rewind_metrics(2)
    run.append_metrics({"step": 3})
    assert [record["step"] for record in run.read_metrics()] == [1, 2, 3]


def test_a_run_is_continued_at_wandb_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", stub)
    for name in ("one/mast", "other/mast", "one/mast"):
        folder = RunFolder(tmp_path / name).path
        folder.mkdir(parents=True, exist_ok=True)
        WandbLogger("project", folder).log_metrics({"loss": 1.0}, step=1)
    first, second, third = (call.kwargs["id"] for call in stub.init.call_args_list)
    assert first == third != second
    assert stub.init.call_args.kwargs["reinit"] == "create_new"


def test_home_is_what_a_tilde_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_canvas(DataConfig("toys@test:4", cache=Path("~/cache")), 16)
    assert (tmp_path / "cache").is_dir()
