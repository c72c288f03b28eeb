"""Stop on signals: training finishes its step and saves, other work ends at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

# Signals of users, schedulers and closed terminals; Windows lacks some.
SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
)


def is_first_here() -> bool:
    """Whether this process has local rank 0."""
    return os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")) == "0"


class Interrupted(KeyboardInterrupt):
    """A signal ended the work; the message says what was saved.

    Attributes:
        number: Number of the signal.
        code: The exit code: 128 plus the signal's number.
    """

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"{signal.Signals(number).name}: {what}")
        self.number, self.code = number, 128 + number


received: list[Interrupted] = []  # for the command line, in case a library wrapped the error


def answer_signals(raising: bool = False) -> None:
    """Make signals end this process with one line, or with `raising` raise `Interrupted`."""
    _handle(_interrupt if raising else _end)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if received:
        _end(number)
    received.append(Interrupted(number, "stopped; the same command resumes"))
    raise received[0]


def _end(number: int, frame: FrameType | None = None) -> NoReturn:
    """End this process at once, writing a line by system calls only."""
    line = f"{signal.Signals(number).name}: stopped at once; earlier results stay saved\n"
    try:
        if is_first_here():  # a progress bar hides the cursor
            os.write(2, ("\r\x1b[?25h" * os.isatty(2) + line).encode())
    finally:  # also where the terminal is gone
        os._exit(128 + number)


class StopRequest:
    """Whether a signal requested a stop: its `number`, or None.

    While the process is `waiting`, the first signal is raised as `Interrupted`.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.waiting = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the first signal, and raise `Interrupted` at the second.

        Also raises if another process stopped first, in which case the current collective fails.
        Signals that the process ignores, as under `nohup`, stay ignored. Has no effect outside the
        main thread, to which Python delivers signals.
        """
        before = _handle(self._note)
        try:
            yield
        except RuntimeError:
            from torch import distributed

            alone = not (distributed.is_available() and distributed.is_initialized())
            if self.number is None or alone:
                raise
            raise Interrupted(self.number, "stopped with the other processes") from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise Interrupted(number, "stopped at once; earlier results stay saved")
        self.number = number
        # Not by print, which the signal may have interrupted.
        if is_first_here():
            with suppress(OSError):  # the terminal is gone, which may have caused the signal
                os.write(2, b"\nstopping after this step; a second signal (Ctrl-C) stops now\n")
        if self.waiting:
            raise Interrupted(number, "stopped")


def _handle(handler: Callable[[int, FrameType | None], Any]) -> dict[int, Any]:
    """Handle signals that the process does not ignore, in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}
    for number in ours:
        signal.signal(number, handler)
    return ours
