"""Stopping when a signal asks to: after the step that is being made, with all of it saved.

Outside a training a signal ends a command by an exception, and before and after its work at once.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from mast.core.errors import one_line

# What a user, a scheduler or a closed terminal sends; Windows has not all of them.
SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
)

LAUNCHED = "mast"  # how a launch by `mast.core.processes` is called
# Of a process that was launched so: where it leaves a message, and what launched it. The first is
# taken out, so that what this process starts is not taken for one of them.
_launched = os.environ.get("TORCHELASTIC_RUN_ID") == LAUNCHED
_error_file = os.environ.pop("TORCHELASTIC_ERROR_FILE", None) if _launched else None
_launcher = os.getppid()


def is_first_here() -> bool:
    """Whether this process is the first of its command on this machine."""
    return os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")) == "0"


def is_launched() -> bool:
    """Whether another process of this command started this one, and is still there."""
    return _error_file is not None and os.getppid() == _launcher


def leave_message(message: str) -> bool:
    """Leave a message for the process that launched this one; false where there is none."""
    if _error_file is None or not is_launched():
        return False
    with suppress(OSError), open(_error_file, "w") as file:
        json.dump({"message": message, "timestamp": int(time.time())}, file)
    return True


class Interrupted(KeyboardInterrupt):
    """A signal ended the work; the message says what of it is kept.

    Attributes:
        code: The exit code of a process that ends by it: 128 and the signal's number.
    """

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"{signal.Signals(number).name}: {what}")
        self.code = 128 + number


def end_by_signals() -> None:
    """Have signals end this process at once, in one line, as long as nothing else handles them.

    An exception would not do: one that comes while modules are imported may show as anything, and
    one that comes in a destructor or a callback is printed with its traceback and forgotten.
    """
    if is_launched():
        end_silently()
        return
    _handle(_end)
    shown = sys.unraisablehook

    def look(unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, Interrupted):
            _end(unraisable.exc_value.code - 128)
        shown(unraisable)

    sys.unraisablehook = look


def end_silently() -> None:
    """Have signals end this process, for which the one that launched it speaks."""
    _handle(signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[None]:
    """Have the first signal end the block by `Interrupted`, and the second the process.

    Nothing changes but where signals end the process (`end_by_signals`).
    """
    received: list[int] = []

    def interrupted() -> Interrupted:
        return Interrupted(received[0], "stopped; the same command continues from what was saved")

    def ask(number: int, frame: FrameType | None) -> None:
        if received:
            _end(number)
        received.append(number)
        raise interrupted()

    before = _handle(ask, instead_of=_end)
    try:
        yield
    except Exception as error:
        if received:
            raise interrupted() from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopRequest:
    """Whether a signal has asked this process to stop: its `number`, or None."""

    def __init__(self) -> None:
        self.number: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note the first signal, and raise `Interrupted` at the second.

        Also where another process ended first that was asked to stop as well: the collective that
        both were in then fails. Signals that the process ignores, as under `nohup`, stay ignored.
        Outside the main thread, to which Python delivers signals, nothing changes.
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
            raise Interrupted(number, "stopped at once; what was saved before is kept")
        self.number = number
        # Not by print, which the signal may have interrupted.
        if is_first_here() and not is_launched():
            with suppress(OSError):  # of a terminal that is gone, and is why this was asked
                os.write(2, b"\nstopping after this step; a second signal (Ctrl-C) stops now\n")


def _handle(
    handler: Callable[[int, FrameType | None], Any] | signal.Handlers, instead_of: Any = None
) -> dict[int, Any]:
    """Handle the signals that the process does not ignore, from the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = {
        number: old
        for number, old in before.items()
        if old not in (None, signal.SIG_IGN) and instead_of in (None, old)
    }
    for number in ours:
        signal.signal(number, handler)
    return ours


def _end(number: int, frame: FrameType | None = None) -> NoReturn:
    """End this process at once, with a line of the operating system's alone."""
    line = f"{signal.Signals(number).name}: stopped at once; what was saved before is kept"
    try:
        if is_first_here():  # a progress bar hides the cursor
            shown = "\r\x1b[?25h" if os.isatty(2) else ""
            os.write(2, f"{shown}{one_line(line)}\n".encode())
    finally:  # also where the terminal is gone
        os._exit(128 + number)
