"""The processes of a command on this machine: started, watched, and ended together.

The first process starts the others, watches them, and speaks for all: what another one has to say
before it ends is left in a file for it. Where torchrun or SLURM started the processes, that
launcher ends them, and each speaks for itself.
"""

import atexit
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn, final

from mast.core.errors import UserError, one_line

if TYPE_CHECKING:  # `mast.cli` comes here before it answers signals, so what takes time waits
    import subprocess

    from lightning_fabric import Fabric

POLL_S = 0.25
# How long a process may take to end by itself when another one is gone. A collective fails at once
# with gloo; with NCCL it waits for many minutes.
GRACE_S = 10.0
PATIENCE_S = 30.0  # how long the others may take to end after the first one's work is done

_STARTED_BY = "MAST_STARTED_BY"  # of a process that another one started: that one's id, and a file
# Taken out, so that what this process starts is not taken for one of them.
_STARTER, _, _LAST_WORDS = os.environ.pop(_STARTED_BY, "").partition(":")
_READY = ".ready"  # after the name of that file, of another that is there when it has started


class ProcessEndedError(UserError):
    """Another process of this command ended; the message says why and what is kept.

    Args:
        message: The line.
        code: Exit code of a process that ends by it.
    """

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


def is_first_here() -> bool:
    """Whether this process is the first of its command on this machine."""
    return os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")) == "0"


def is_started() -> bool:
    """Whether another process started this one; it is `together` that does."""
    return bool(_STARTER)


def has_started() -> bool:
    """Whether this process started others, which go on with it until its end."""
    return _first is not None


def leave_word(message: str) -> bool:
    """Leave a message for the process that started this one, which says it when this one ended.

    Returns:
        Whether there is one; otherwise this process speaks for itself.
    """
    if not _STARTER:
        return False
    said = message.encode(errors="backslashreplace")
    with suppress(OSError), open(_LAST_WORDS, "wb") as file:  # such as on a full disk
        file.write(said)
    return True


def end_now(line: str, code: int) -> NoReturn:
    """End this process and those that it started at once, from a thread or a signal's handler.

    Args:
        line: What is said before, by the operating system alone; empty: nothing.
        code: The exit code.
    """
    try:
        if _first is not None:
            _first.end()
        if line:  # a progress bar hides the cursor
            shown = "\r\x1b[?25h" if os.isatty(2) else ""
            os.write(2, f"{shown}{one_line(line)}\n".encode(errors="backslashreplace"))
    finally:  # also where the terminal is gone
        os._exit(code)


@contextmanager
def together(fabric: "Fabric", kept: Callable[[], str]) -> Iterator[None]:
    """Launch a fabric for the block; where one of its processes ends before, so do all.

    Processes that another launcher started are not watched, but the failure of a collective is
    said in the same line.

    Args:
        fabric: Not launched yet. The first block of a command starts its processes, which run the
            same command, and later ones use them.
        kept: Says what the same command does after an early end.

    Raises:
        ProcessEndedError: Another process ended. Where this one does not notice by itself, because
            it waits for that one, it is ended with the same line after `GRACE_S` seconds.
    """
    watch = _Watch(kept)
    try:
        watch = _watch(fabric, kept)
        with watch.watching():
            watch.meet()
            fabric.launch()
            if fabric.global_rank > 0:  # all find the same; the first one says it
                import logging

                logging.getLogger("mast").setLevel(logging.ERROR)
            yield
    except RuntimeError as error:
        if fabric.world_size == 1 or not _is_of_a_collective(error):
            watch.stop()
            raise
        raise watch.why(error) from error
    except BaseException:
        watch.stop()
        raise


class _Watch:
    """Of processes that another launcher started, which watches them itself."""

    def __init__(self, kept: Callable[[], str]) -> None:
        self.kept = kept
        self.over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch in the background during the block."""
        self.over = threading.Event()
        threading.Thread(target=self.look, name="mast-processes", daemon=True).start()
        try:
            yield
        finally:
            self.over.set()

    def meet(self) -> None:
        """Wait for the others, and answer signals; PyTorch, which then waits too, answers none."""

    def look(self) -> None:
        """Look after the other processes until the block is over."""

    def why(self, error: RuntimeError) -> ProcessEndedError:
        """What to say when a collective failed."""
        said = re.sub(r"^\[\S+\] ", "", str(error)).partition("\n")[0].partition(". ")[0][:200]
        return ProcessEndedError(
            f"another process ended or cannot be reached ({said}); {self.kept()}"
        )

    def stop(self) -> None:
        """End the others, as this process ends early."""


@final
class _Started(_Watch):
    """Of a process that the first one started."""

    def meet(self) -> None:
        with suppress(OSError), open(_LAST_WORDS + _READY, "wb"):
            pass

    def look(self) -> None:
        while not self.over.wait(POLL_S):
            self.end_without_the_first()

    def why(self, error: RuntimeError) -> ProcessEndedError:
        until = time.monotonic() + GRACE_S  # in which the first process ends this one, or is gone
        while time.monotonic() < until:
            self.end_without_the_first()
            time.sleep(POLL_S)
        return super().why(error)

    def end_without_the_first(self) -> None:
        """End this process if the first one is gone; the next one says so.

        On Windows the parent is not always the process that started this one.
        """
        if os.name != "nt" and os.getppid() != int(_STARTER):
            if os.environ["LOCAL_RANK"] == "1":
                _remove(os.path.dirname(_LAST_WORDS))
            said = f"error: the first process ended: it was killed; {self.kept()}"
            end_now(said if os.environ["LOCAL_RANK"] == "1" else "", 2)


@final
class _First(_Watch):
    """Of the first process, which started the others.

    Args:
        children: The others, by their rank.
        folder: Of their last words.
        kept: As in `together`.
    """

    def __init__(
        self, children: dict[int, "subprocess.Popen[bytes]"], folder: str, kept: Callable[[], str]
    ) -> None:
        super().__init__(kept)
        self.children = children
        self.folder = folder

    def meet(self) -> None:
        words = [os.path.join(self.folder, str(rank)) for rank in self.children]
        while not all(os.path.exists(file + _READY) for file in words):
            if any(child.poll() is not None for child in self.children.values()):
                raise self.error() or super().why(RuntimeError("it did not start"))
            time.sleep(0.05)

    def look(self) -> None:
        while not self.over.wait(POLL_S):
            if any(child.poll() for child in self.children.values()):
                if not self.over.wait(GRACE_S):  # the main thread waits for the one that is gone
                    ended = self.error()
                    assert ended is not None
                    self.stop()
                    end_now(f"error: {ended}", ended.code)
                return

    def why(self, error: RuntimeError) -> ProcessEndedError:
        until = time.monotonic() + GRACE_S
        while (ended := self.error()) is None and time.monotonic() < until:
            time.sleep(POLL_S)
        self.stop()
        return ended or super().why(error)

    def error(self) -> ProcessEndedError | None:
        """What to say of the first that failed, if one did."""
        for rank, child in self.children.items():
            if code := child.poll():
                words = os.path.join(self.folder, str(rank))
                if os.path.isfile(words):
                    with open(words, encoding="utf-8") as file:
                        said = file.read().rstrip(".")
                elif code < 0:
                    said = f"it was killed by {_name_of(-code)}"
                else:
                    said = f"exit code {code}"
                return ProcessEndedError(
                    f"process {rank} ended: {said}; {self.kept()}", 1 + (code != 1)
                )
        return None

    def stop(self) -> None:
        self.end()
        for child in self.children.values():
            child.wait()

    def end(self) -> None:
        """End the others without waiting; they hold nothing: the first process alone writes."""
        for child in self.children.values():
            child.kill()
        _remove(self.folder)

    def wait(self) -> None:
        """Let the others end, as this process's work is done."""
        from subprocess import TimeoutExpired

        until = time.monotonic() + PATIENCE_S
        for child in self.children.values():
            with suppress(TimeoutExpired):
                child.wait(max(0.0, until - time.monotonic()))
        self.stop()


_first: _First | None = None  # of this process, once it started others


def _watch(fabric: "Fabric", kept: Callable[[], str]) -> _Watch:
    """What watches the processes of a fabric, which are started if nobody else does."""
    global _first  # noqa: PLW0603  # a process starts others once
    from tempfile import mkdtemp

    environment = getattr(fabric.strategy, "cluster_environment", None)
    if environment is None:  # a single process
        return _Watch(kept)
    if _STARTER:
        return _Started(kept)
    if _first is not None:
        _first.kept = kept
        return _first
    if environment.creates_processes_externally:
        return _Watch(kept)
    processes: int = fabric.strategy.num_processes  # type: ignore[attr-defined]
    if fabric.strategy.num_nodes == 1:  # type: ignore[attr-defined]
        for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "GROUP_RANK"):  # of other programs
            os.environ.pop(name, None)
    before = environment.node_rank() * processes
    os.environ |= {  # Lightning then takes all processes for started
        "MASTER_ADDR": environment.main_address,
        "MASTER_PORT": str(environment.main_port),
        "NODE_RANK": str(environment.node_rank()),
        "WORLD_SIZE": str(processes * fabric.strategy.num_nodes),  # type: ignore[attr-defined]
        "LOCAL_RANK": "0",
    }
    _first = _First({}, mkdtemp(prefix="mast-"), kept)
    atexit.register(_first.wait)
    for rank in range(1, processes):  # one by one, so that whatever ends this one knows of them
        words = os.path.join(_first.folder, str(before + rank))
        _first.children[before + rank] = _start(rank, words)
    return _first


def _start(local_rank: int, words: str) -> "subprocess.Popen[bytes]":
    """Run the command of this process once more.

    In a session of its own, so that what a terminal sends to all reaches the first process alone.
    """
    import subprocess

    own = {"LOCAL_RANK": str(local_rank), _STARTED_BY: f"{os.getpid()}:{words}"}
    return subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        env=os.environ | own, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def _remove(folder: str) -> None:
    from shutil import rmtree

    rmtree(folder, ignore_errors=True)


def _is_of_a_collective(error: RuntimeError) -> bool:
    """Whether an error is of the connection between processes; gloo's have no type of their own."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo" in str(error)


def _name_of(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
