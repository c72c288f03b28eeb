"""Train a run on two processes, of which one ends early, again and again; then it and one whole.

    python ended.py CONFIG FOLDER

Prints, for each moment, the exit code, the seconds from the event until all processes had ended,
and what they said. The processes are forked from one that has imported everything, so that they
start at once, and the launcher's from it in place of running the command.
"""

import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import lightning_fabric
import timm
import torch
import torchvision
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils import tensorboard

from mast.augment import Pipeline
from mast.cli import main as run_command
from mast.config import read
from mast.core import display, stopping
from mast.core.canvases import Canvases
from mast.runs import pretraining

# Imported before the processes part.
HEAVY = (lightning_fabric, pretraining, tensorboard, timm, torchvision)
AT = 3  # updates of this process until the event
PR_SET_CHILD_SUBREAPER = 36  # from <sys/prctl.h>: an orphan's exit is seen here


class Forked:
    """A process of the launcher's, as far as it uses `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("fork", timeout)
            time.sleep(0.01)


def fork(handler: SubprocessHandler, words: tuple[str, ...], env: dict[str, str]) -> Forked:
    """In place of starting a process of the launcher."""
    if child := os.fork():
        return Forked(child)
    os.setsid()
    os.environ.update(env)
    stopping._error_file, stopping._launcher = env["TORCHELASTIC_ERROR_FILE"], os.getppid()
    display._board = display.Board()
    return work()


def work() -> NoReturn:
    """What a process of the command does, and nothing of what it was forked from."""
    code = 70
    try:
        torch.set_num_threads(1)  # after a fork threads race for PyTorch's pool
        if os.environ["EVENT"] == "killed_as_it_starts" and os.environ.get("LOCAL_RANK") == "1":
            happen(killed)
        code = run_command()
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
    os.kill(os.getppid(), signal.SIGINT)


def launcher_killed() -> None:
    os.kill(os.getppid(), signal.SIGKILL)


def killed_as_it_starts() -> None:
    """See `work`."""


EVENTS: tuple[tuple[Callable[[], None], int | None], ...] = (
    (killed, 1),
    (launcher_killed, 0),
    (disk_is_full, 1),
    (bug, 0),
    (asked, 0),
    (killed_as_it_starts, None),
)


def train(config: str, folder: Path, out: str, event: Callable[[], None], rank: int | None) -> list:
    """The exit code, the seconds and what was said."""
    said, since = folder / "said", folder / "since"
    since.unlink(missing_ok=True)
    first = os.fork()
    if first == 0:
        os.dup2(os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 2)
        os.environ |= {"SINCE": str(since), "EVENT": event.__name__}
        SubprocessHandler._popen = fork  # type: ignore[assignment]
        steps = iter(range(1, AT + 1))

        def look(*_: object) -> None:
            if next(steps, 0) == AT and os.environ["LOCAL_RANK"] == str(rank):
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
    for event, rank in EVENTS:
        print(json.dumps(train(sys.argv[1], folder, "ended", event, rank)))
    for out in ("ended", "whole"):
        print(json.dumps(train(sys.argv[1], folder, out, print, None)))


if __name__ == "__main__":
    main()
