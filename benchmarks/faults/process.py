"""One command in a process of its own, forked from one that has imported everything."""

import fcntl
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from mast.core.errors import UserError

sys.path.append(str(Path(__file__).parents[2]))  # of `paper`

HANGS_AFTER = 120  # seconds; the commands of a case take one to five
HOLDS = 1 << 20  # bytes that a command may write to stdout, and to stderr
ROOM = 6 << 30  # bytes of addresses that a command may take beyond what is imported


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        code: Its exit code; less than 0, the signal that it died of; None if it was still there
            after `HANGS_AFTER` seconds.
        printed: What it wrote to stdout.
        said: What it wrote to stderr.
        seconds: How long it took.
    """

    code: int | None
    printed: str
    said: str
    seconds: float

    @property
    def fault(self) -> str | None:
        """What is wrong with it whatever was asked for: "traceback" or "hang"."""
        if self.code is None:
            return "hang"
        stopped = {
            128 + number
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        }
        if self.code not in {0, 2, *stopped} or "Traceback (most recent" in self.said:
            return "traceback"
        if self.code == 2 and f"\n{self.said}".count("\nerror: ") != 1:
            return "traceback"
        return None

    @property
    def summary(self) -> str:
        """Its error, or else the last line that it said."""
        said = f"\n{self.said.rstrip()}"
        return (
            said[said.rfind("\nerror: ") :][:400].strip() if self.code == 2 else said[-400:].strip()
        )


def start(
    words: Sequence[str],
    folder: Path,
    prepare: Callable[[], object] | None = None,
    call: Callable[[], object] | None = None,
) -> "Running":
    """Start a command.

    Args:
        words: What follows `mast`, or `python -m paper` for what only that has.
        folder: Where it works; its caches lie in `cache` there, and programs that it finds first in
            `bin`.
        prepare: Called in its process before it.
        call: In place of the command: what it returns is printed, and a `UserError` said.
    """
    from mast.cli import main
    from mast.core import display
    from paper.__main__ import PROGRAM

    pipes = [os.pipe(), os.pipe()]  # which no limit on the size of files concerns
    for _, end in pipes:
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, HOLDS)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            os.chdir(folder)
            for number, (_, end) in enumerate(pipes, 1):
                os.dup2(end, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout, sys.stderr = (os.fdopen(number, "w") for number in (1, 2))
            os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
            os.environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
            room = _addresses() + ROOM
            resource.setrlimit(resource.RLIMIT_AS, (room, room))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if prepare is not None:
                prepare()
            display.LINE_S = float("inf")  # lines of progress depend on how fast it goes
            torch.set_num_threads(1)  # before there are threads: after a fork they race for a pool
            sys.argv = ["mast", *words]
            sys.orig_argv = [sys.executable, "-m", "mast.cli", *words]  # of a run's other processes
            of_paper = [*words[:1]] == ["study"] or any(
                of.startswith(("coco:", "voc:")) for of in words
            )
            program = PROGRAM if of_paper else None
            code = main(program=program) if call is None else _called(call)
        except BaseException:  # what a user would see
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except OSError:
                    code = code or 1
            os._exit(code)
    for _, end in pipes:
        os.close(end)
    return Running(child, [reading for reading, _ in pipes])


class Running:
    """A command that was started.

    Args:
        process: Its process.
        pipes: Where what it writes to stdout and stderr is read.
    """

    def __init__(self, process: int, pipes: Sequence[int]) -> None:
        self.process = process
        self._pipes = pipes
        self._since = time.monotonic()
        self._code: int | None = None

    def wait(self, seconds: float) -> int | None:
        """Its exit code if it ends within so many seconds."""
        until = time.monotonic() + seconds
        while self._code is None:
            ended, status = os.waitpid(self.process, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= until:
                break
            else:
                time.sleep(0.005)
        return self._code

    def end(self, seconds: float = HANGS_AFTER) -> Outcome:
        """How it ends; what takes longer is killed, with the processes that it started."""
        code = self.wait(seconds)
        took = time.monotonic() - self._since
        with suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        if code is None:
            os.waitpid(self.process, 0)
        printed, said = (_everything(pipe) for pipe in self._pipes)
        return Outcome(code, printed, said, took)

    def ask(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.process, number)


def run(
    words: Sequence[str],
    folder: Path,
    prepare: Callable[[], object] | None = None,
    call: Callable[[], object] | None = None,
) -> Outcome:
    """Run a command to its end; see `start`."""
    return start(words, folder, prepare, call).end()


def _called(call: Callable[[], object]) -> int:
    """The exit code that a command would have."""
    try:
        print(call())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _everything(pipe: int) -> str:
    with open(pipe, "rb") as file:
        return file.read().decode("utf-8", errors="replace")


def _addresses() -> int:
    """Bytes of addresses of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
