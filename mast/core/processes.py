"""The processes of a command on this machine, which PyTorch's elastic launcher starts and ends.

A process that is to be several starts its own command once more in each of them, as torchrun does,
and waits. Where torchrun or SLURM started the processes, that launcher ends them.
"""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from mast.core.errors import UserError
from mast.core.stopping import (
    LAUNCHED,
    SIGNALS,
    Interrupted,
    answer_signals,
    is_launched,
    leave_message,
)

if TYPE_CHECKING:  # `mast.cli` comes here before PyTorch is needed
    from lightning_fabric import Fabric

# How long a process waits to be ended when a collective fails, as another process is the cause.
GRACE_S = 10.0
POLL_S = 0.25
PATIENCE_S = 30.0  # as PyTorch's launcher has, between both signals by which it ends a process
LAST_STEP_S = 3600  # that a step and its checkpoint may take after a signal


class ProcessEndedError(UserError):
    """A process of this command ended early; `code` is the exit code of the command."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def launch_processes(fabric: "Fabric", remedy: Callable[[], str]) -> Iterator[None]:
    """Launch a fabric for the block; where one of its processes ends early, all end.

    If no launcher started its processes, this program is started again in each of them, and this
    process ends (SystemExit) when they have ended. `remedy` says what the same command does after
    that.
    """
    environment = getattr(fabric.strategy, "cluster_environment", None)
    if environment is not None and not environment.creates_processes_externally:
        _launch(fabric.strategy.num_processes, remedy)  # type: ignore[attr-defined]
    if is_launched():
        answer_signals()  # also of a script that is not the command line
        threading.Thread(target=_end_without_launcher, daemon=True).start()
    try:
        fabric.launch()
        if fabric.global_rank > 0:  # all find the same; the first one says it
            import logging

            logging.getLogger("mast").setLevel(logging.ERROR)
        yield
    except (UserError, RuntimeError) as error:
        line = str(error)
        if not isinstance(error, UserError):
            if fabric.world_size == 1 or not _is_of_a_collective(error):
                raise
            if is_launched():
                time.sleep(GRACE_S)  # the launcher sees the process that ended, and ends this one
            reason = re.sub(r"^\[\S+\] ", "", line).partition("\n")[0].partition(". ")[0][:200]
            line = f"another process ended or cannot be reached ({reason}); {remedy()}"
        if leave_message(line):
            raise SystemExit(2) from error
        raise error if isinstance(error, UserError) else ProcessEndedError(line) from error


def _launch(processes: int, remedy: Callable[[], str]) -> NoReturn:
    """Start this program in some processes on this machine, and end when they have."""
    import logging
    from tempfile import TemporaryDirectory

    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from mast.core.display import hand_over
    from mast.core.launch import cores

    if hasattr(sys, "ps1") or sys.argv[0] in ("", "-"):  # a script on stdin is used up
        raise UserError("several processes need a script in a file or a command: give devices 1")
    elastic = logging.getLogger("torch.distributed.elastic")
    elastic.propagate = False  # this program prints what failed
    elastic.addHandler(logging.NullHandler())
    before = {number: signal.getsignal(number) for number in SIGNALS}
    passed_on = (number.name for number in SIGNALS if before[number] is not signal.SIG_IGN)
    # Older releases pass on SIGINT, SIGTERM and SIGHUP, and end what lasts 30 s after one of them.
    newer = {"signals_to_handle": ",".join(passed_on), "shutdown_timeout": LAST_STEP_S}
    known: dict[str, Any] = LaunchConfig.__dataclass_fields__
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))
    hand_over()
    try:
        with TemporaryDirectory(prefix="mast-") as folder:
            config = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=processes,
                logs_specs=DefaultLogsSpecs(folder),
                run_id=LAUNCHED,
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",
                local_addr="localhost",
                max_restarts=0,
                **{name: value for name, value in newer.items() if name in known},  # type: ignore[arg-type]
            )
            elastic_launch(config, sys.executable)(*sys.orig_argv[1:])
    except SignalException as stopped:
        raise Interrupted(stopped.sigval, f"stopped; {remedy()}") from None
    except ChildFailedError as ended:
        rank, failure = ended.get_first_failure()
        message, code = failure.error_file_data["message"], failure.exitcode
        if message == "<NONE>":  # it left no file
            why = f"it was killed by {failure.signal_name()}" if code < 0 else f"exit code {code}"
            message = f"process {rank} ended: {why}; {remedy()}"
        raise ProcessEndedError(message, 1 if code == 1 else 2) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    raise SystemExit(0)


def _end_without_launcher() -> None:
    """End this process, after its step, when the one that launched it was killed."""
    while is_launched():
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_S)  # it may wait in a collective, where Python answers no signal
    os.kill(os.getpid(), signal.SIGKILL)


def _is_of_a_collective(error: RuntimeError) -> bool:
    """Whether an error is of the connection between processes; gloo's have no type of their own."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo" in str(error)
