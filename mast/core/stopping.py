"""Stopping when a signal asks to: after the step that is being made, with all of it saved."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# What a user, a scheduler or a closed terminal sends; Windows has no SIGHUP.
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Interrupted(KeyboardInterrupt):
    """A signal ended the work; the message says what of it is kept.

    Args:
        number: The signal.
        what: What it did, and what is kept.

    Attributes:
        code: The exit code of a process that ends by it: 128 and the signal's number.
    """

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"{signal.Signals(number).name}: {what}")
        self.code = 128 + number


class StopRequest:
    """Whether a signal has asked this process to stop.

    Attributes:
        number: The signal; None: not asked.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note the first signal, and stop at the second.

        Signals that the process ignores, as under `nohup`, stay ignored. Outside the main thread,
        to which Python delivers signals, nothing changes.

        Raises:
            Interrupted: By the second signal, or where another process ended first that was asked
                to stop as well: the collective that both were in then fails.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        ours = [number for number in SIGNALS if before[number] not in (None, signal.SIG_IGN)]
        for number in ours:
            signal.signal(number, self._note)
        try:
            yield
        except RuntimeError:
            if self.number is None:
                raise
            raise Interrupted(self.number, "stopped with the other processes") from None
        finally:
            for number in ours:
                signal.signal(number, before[number])

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise Interrupted(number, "stopped at once; what was saved before is kept")
        self.number = number
        # Not by print, which the signal may have interrupted.
        os.write(2, b"\nstopping after this step; once more stops at once\n")
