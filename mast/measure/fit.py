"""Training inside a protocol: shown, resumed, on as many processes as there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mast.core.display import TrainingDisplay
from mast.core.loop import Done, Losses, Training
from mast.core.memory import keep_freed_memory
from mast.measure.frozen import FrozenEncoder


def fit(
    encoder: FrozenEncoder,
    training: Training,
    batches: Callable[[int, int], Iterator[Any]],
    loss: Callable[[Any, Any, int, int], Losses],
    what: str,
    seed: int,
    seen: Callable[[Done], object] | None = None,
) -> None:
    """Train to the end, from the checkpoint of a killed process if there is one.

    A last checkpoint is kept until the protocol's result is written, so that nothing that stops it
    before costs the training. PyTorch's global generator is seeded for the training and put back
    as it was.

    Args:
        encoder: Says on which devices.
        training: What is trained.
        batches: As in `Training.run`.
        loss: As in `Training.run`.
        what: What the progress bar says.
        seed: Of what PyTorch draws itself, such as dropout.
        seen: Called with every step.

    Raises:
        UserError: A loss that is not finite.
    """
    fabric = encoder.fabric
    if fabric.device.type == "cpu":
        keep_freed_memory()
    with torch.random.fork_rng():
        training.resume(seed)
        chief = fabric.is_global_zero
        display = TrainingDisplay(what, training.steps, training.step, enabled=chief)
        shown_at, shown = time.monotonic(), training.step
        with display.running():
            for done in training.run(fabric, batches, loss):
                if seen is not None:
                    seen(done)
                if done.due and done.metrics is not None:
                    now = time.monotonic()
                    speed = (done.step - shown) / (now - shown_at)
                    shown_at, shown = now, done.step
                    terms = "  ".join(f"{name} {value:.3f}" for name, value in done.metrics.items())
                    display.update(done.step, terms, f"{speed:.2f} steps/s")
    if chief and training.checkpoint is not None:
        training.save()
    fabric.barrier()
