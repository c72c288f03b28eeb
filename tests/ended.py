"""Train a run on two processes, of which one ends early, again and again; then it and one whole.

    python ended.py CONFIG FOLDER

Prints, for each moment, the exit code, the seconds from the event until both processes had ended,
and what they said. The processes are forked from one that has imported everything, so that they
start at once, and the second from the first, in place of `processes._start`.
"""

import atexit
import ctypes
import errno
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import lightning_fabric
import tensorboard.compat.proto.event_pb2
import tensorboard.summary.writer.record_writer
import timm
import torch
import torchvision
from torch.optim.optimizer import register_optimizer_step_post_hook

from mast.augment import Pipeline
from mast.cli import main as run_command
from mast.commands import pretrain
from mast.config import read
from mast.core import processes
from mast.core.canvases import Canvases

# Imported before the processes part.
HEAVY = (lightning_fabric, pretrain, tensorboard, timm, torchvision)
AT = 3  # updates of this process until the event
PR_SET_CHILD_SUBREAPER = 36  # from <sys/prctl.h>: an orphan's exit is seen here


class Forked:
    """What `processes._start` returns, as far as it is used."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self.lock = threading.Lock()

    def poll(self) -> int | None:
        with self.lock:
            if self.code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.code = os.waitstatus_to_exitcode(status) if pid else None
            return self.code

    def wait(self, timeout: float = 60.0) -> None:
        until = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.01)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def fork(local_rank: int, words: str) -> Forked:
    """In place of `processes._start`."""
    first = os.getpid()
    if child := os.fork():
        return Forked(child)
    os.setsid()
    processes._first = None
    atexit._clear()  # what the first process does at its end
    os.environ["LOCAL_RANK"] = str(local_rank)
    processes._STARTER, processes._LAST_WORDS = str(first), words
    return work()


def work() -> NoReturn:
    """What a process of the command does, and nothing of what it was forked from."""
    code = 70
    try:
        torch.set_num_threads(1)  # after a fork threads race for PyTorch's pool
        if os.environ.get("LOCAL_RANK") == "1":
            if os.environ["EVENT"] == "killed_as_it_starts":
                happen(killed)
            if os.environ["EVENT"] == "killed_as_it_joins":
                processes._Started.meet = meet_and_die  # type: ignore[method-assign]
        code = run_command()
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def happen(event: Callable[[], None]) -> None:
    Path(os.environ["SINCE"]).write_text(str(time.time()))
    event()


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def disk_is_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere/file")


def bug() -> None:
    raise KeyError("a bug")


def asked() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def killed_as_it_starts() -> None:
    """See `work`."""


def killed_as_it_joins() -> None:
    """The first process then waits for it in PyTorch; see `work`."""


def meet_and_die(
    self: processes._Started, meet: Callable[[processes._Started], None] = processes._Started.meet
) -> None:
    meet(self)
    time.sleep(0.5)
    happen(killed)


EVENTS: tuple[tuple[Callable[[], None], tuple[int, ...]], ...] = (
    (killed, (1,)),
    (killed, (0,)),
    (disk_is_full, (1,)),
    (bug, (1,)),
    (disk_is_full, (0,)),
    (asked, (0, 1)),
    (killed_as_it_starts, ()),
    (killed_as_it_joins, ()),
)


def train(
    config: str, folder: Path, out: str, event: Callable[[], None], ranks: tuple[int, ...]
) -> list:
    """The exit code, the seconds and what was said."""
    said, since = folder / "said", folder / "since"
    since.unlink(missing_ok=True)
    first = os.fork()
    if first == 0:
        os.dup2(os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 2)
        os.environ |= {"SINCE": str(since), "EVENT": event.__name__}
        processes._start = fork  # type: ignore[assignment]
        processes.GRACE_S = 2.0
        steps = iter(range(1, AT + 1))

        def look(*_: object) -> None:
            if next(steps, 0) == AT and int(os.environ["LOCAL_RANK"]) in ranks:
                happen(event)

        register_optimizer_step_post_hook(look)
        words = ["pretrain", "--config", config, "--devices", "2", "--out", str(folder / out)]
        sys.argv = ["mast", *words]
        work()
    codes = {}
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            break
        codes[pid] = os.waitstatus_to_exitcode(status)
    seconds = time.time() - float(since.read_text()) if since.exists() else 0.0
    return [codes[first], seconds, said.read_text()]


def main() -> None:
    torch.set_num_threads(1)
    pipeline = Pipeline(read(sys.argv[1]).preset, 16)  # whose kernels are loaded once
    canvases = Canvases.of(torch.zeros(16, 16, 16, 3, dtype=torch.uint8))
    pipeline.views(canvases, pipeline.draw(16, torch.Generator()))
    assert threading.active_count() == 1, "no process parts from one with threads"
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    folder = Path(sys.argv[2])
    for event, ranks in EVENTS:
        print(json.dumps(train(sys.argv[1], folder, "ended", event, ranks)))
    for out in ("ended", "whole"):
        print(json.dumps(train(sys.argv[1], folder, out, print, ())))


if __name__ == "__main__":
    main()
