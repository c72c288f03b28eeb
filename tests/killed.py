"""Train a run in processes that die by SIGKILL in the middle of their work, one after the other.

    python killed.py CONFIG

Prints, for each process, the moment, the signal it died of, and the last step of the checkpoint.
The processes are forked from one that has imported everything, so that they start at once.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning_fabric.loggers.tensorboard
import timm
import torch
import torchvision
from torch.optim.optimizer import register_optimizer_step_post_hook

import mast
from mast.config import read
from mast.core import loop
from mast.core.checkpoint import load_checkpoint
from mast.core.run import RunFolder

HEAVY = (lightning_fabric, timm, torchvision)  # imported before the processes part


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_an_update(at: int) -> None:
    """The parameters have moved; the step is neither counted nor saved."""
    steps = iter(range(1, at + 1))
    register_optimizer_step_post_hook(lambda *_: die() if next(steps) == at else None)


def in_a_checkpoint(at: int) -> None:
    """Half of the file is on disk."""
    save = loop.save_checkpoint

    def half(path: Path, state: dict[str, Any]) -> None:
        if state["step"] < at:
            save(path, state)
            return
        partial = path.with_name(path.name + ".partial")
        torch.save(state, partial)
        os.truncate(partial, partial.stat().st_size // 2)
        die()

    loop.save_checkpoint = half


def in_a_line_of_the_log(at: int) -> None:
    """Half of it is written, and the step is not saved."""
    append = RunFolder.append_metrics

    def half(self: RunFolder, record: dict[str, Any]) -> None:
        if record["step"] < at:
            append(self, record)
            return
        line = json.dumps(record)
        with self.metrics.open("a") as file:
            file.write(line[: len(line) // 2])
        die()

    RunFolder.append_metrics = half  # type: ignore[method-assign]


# The count of the first is of updates of its own process, the others' of steps of the run.
MOMENTS: tuple[tuple[Callable[[int], None], int], ...] = (
    (in_an_update, 5),
    (in_a_checkpoint, 8),
    (in_a_line_of_the_log, 13),
)


def main() -> None:
    config = read(Path(sys.argv[1]))
    torch.set_num_threads(1)
    for prepare, at in MOMENTS:
        child = os.fork()
        if child == 0:
            try:
                prepare(at)
                mast.pretrain(config)
            except BaseException:
                traceback.print_exc()
            os._exit(1)  # it lived
        _, status = os.waitpid(child, 0)
        step = load_checkpoint(RunFolder(config.folder()).last)["step"]
        print(json.dumps([prepare.__name__, os.WTERMSIG(status), step]))


if __name__ == "__main__":
    main()
