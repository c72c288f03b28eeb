"""Train a run in processes that are stopped in the middle of their work, one after the other.

    python killed.py CONFIG

Prints, for each process, the moment, its exit code (less than 0: the signal that it died of), and
the step of the checkpoint.
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

import lightning_fabric
import timm
import torch
import torchvision
from torch.optim.optimizer import register_optimizer_step_post_hook

from mast.augment import Pipeline
from mast.cli import main as run_command
from mast.config import read
from mast.core import loop
from mast.core.canvases import Canvases
from mast.core.checkpoint import load_checkpoint, previous, replacing
from mast.core.run import RunFolder

HEAVY = (lightning_fabric, timm, torchvision)  # imported before the processes part


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_an_update(at: int) -> None:
    """The parameters have moved; the step is neither counted nor saved."""
    steps = iter(range(1, at + 1))
    register_optimizer_step_post_hook(lambda *_: die() if next(steps) == at else None)


def asked_by(number: int, times: int = 1) -> Callable[[int], None]:
    """A signal comes in the middle of a step, once or twice."""

    def asked(at: int) -> None:
        steps = iter(range(1, at + 1))

        def ask(*_: Any) -> None:
            if next(steps, 0) == at:
                for _ in range(times):
                    os.kill(os.getpid(), number)

        register_optimizer_step_post_hook(ask)

    asked.__name__ = f"{times} x {signal.Signals(number).name}"
    return asked


def in_a_checkpoint(at: int) -> None:
    """Half of the file is on disk."""
    save = loop.save_checkpoint

    def half(path: Path, state: dict[str, Any], keep: bool) -> None:
        if state["step"] < at:
            save(path, state, keep)
            return
        with replacing(path) as partial:
            torch.save(state, partial)
            os.truncate(partial, partial.stat().st_size // 2)
            die()

    loop.save_checkpoint = half


def between_two_names(at: int) -> None:
    """The last checkpoint has become the one before it, and nothing is in its place."""
    replace = Path.replace

    def half(self: Path, target: Path) -> Path:
        moved = replace(self, target)
        if Path(target).name == "last.previous.pt" and load_checkpoint(moved)["step"] >= at:
            die()
        return moved

    Path.replace = half  # type: ignore[method-assign]


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


# When, and how many minutes lie between checkpoints: those who are asked save what they have. The
# count of updates and signals is of their own process, the others' of steps of the run.
MOMENTS: tuple[tuple[Callable[[int], None], int, float], ...] = (
    (in_an_update, 5, 0.0),
    (asked_by(signal.SIGINT), 1, 60.0),
    (asked_by(signal.SIGTERM), 2, 60.0),
    (in_a_checkpoint, 9, 0.0),
    (asked_by(signal.SIGHUP), 1, 60.0),
    (asked_by(signal.SIGTERM, times=2), 1, 60.0),
    (between_two_names, 11, 0.0),
    (in_a_line_of_the_log, 13, 0.0),
)


def main() -> None:
    config = read(Path(sys.argv[1]))
    torch.set_num_threads(1)
    pipeline = Pipeline(config.preset, 16)  # whose kernels are loaded once
    canvas_BHWC = torch.zeros(16, 16, 16, 3, dtype=torch.uint8)
    pipeline.views(Canvases.of(canvas_BHWC, torch.ones(16)), pipeline.draw(16, torch.Generator()))
    for prepare, at, minutes in MOMENTS:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)  # after a fork threads race for PyTorch's pool
                prepare(at)
                words = ["pretrain", "--config", sys.argv[1], f"checkpoint_minutes={minutes}"]
                code = run_command(words)
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        last = RunFolder(config.folder()).last
        step = load_checkpoint(last if last.is_file() else previous(last))["step"]
        print(json.dumps([prepare.__name__, os.waitstatus_to_exitcode(status), step]))


if __name__ == "__main__":
    main()
