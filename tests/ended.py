"""The command line, of which one process meets an event after three updates of a training.

    EVENT=killed RANK_OF_EVENT=1 SINCE=FILE python ended.py pretrain …

The file has the time of the event. The launcher starts this file again for each process.
"""

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook

from mast.cli import main

AT = 3  # updates of this process until the event


def disk_is_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere/file")


EVENTS: dict[str, Callable[[], None]] = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "launcher killed": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "disk is full": disk_is_full,
    "asked": lambda: os.kill(os.getppid(), signal.SIGINT),
    "none": lambda: None,
}

if __name__ == "__main__":
    steps = iter(range(1, AT + 1))

    def look(*_: object) -> None:
        if next(steps, 0) == AT and os.environ["LOCAL_RANK"] == os.environ["RANK_OF_EVENT"]:
            Path(os.environ["SINCE"]).write_text(str(time.time()))
            EVENTS[os.environ["EVENT"]]()

    register_optimizer_step_post_hook(look)
    sys.exit(main())
