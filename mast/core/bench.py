"""Where protocols train, and resume after the process was killed."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from mast.core.checkpoint import previous
from mast.core.compute import Compute
from mast.core.display import doing
from mast.core.kinds import Precision
from mast.core.memory import keep_freed_memory
from mast.core.seeds import forked

if TYPE_CHECKING:
    from pathlib import Path

    from lightning_fabric import Fabric

    from mast.core.loop import Losses, StepResult, Training


class Bench:
    """Where protocols train, and resume after a kill.

    Args:
        compute: Its device (the CPU if it names none), type and processes are those of a training.
        workspace: Folder for the state of unfinished work, from which it resumes, and for the
            other files of a protocol; None writes nothing.
    """

    def __init__(self, compute: Compute | None = None, workspace: Path | None = None) -> None:
        self.compute = compute or Compute()
        self.workspace = workspace
        self._unfinished: list[Path] = []

    @functools.cached_property
    def fabric(self) -> Fabric:
        """What trainings run through."""
        if self.compute.fabric is not None:
            return self.compute.fabric
        from mast.core.launch import make_fabric

        cuda = torch.device(self.compute.device or "cpu").type == "cuda"
        precision: Precision = "float32" if self.compute.dtype is torch.float32 else "bfloat16"
        return make_fabric("cuda" if cuda else "cpu", precision=precision)

    def unfinished(self, *key: object) -> Path | None:
        """File for the state of a training until its result is written; None without a workspace.
        Its name depends on the key, which identifies all that the training depends on.
        """
        if self.workspace is None:
            return None
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        path = self.workspace / "unfinished" / f"{name}.pt"
        self._unfinished.append(path)
        return path

    def finish(self) -> None:
        """Remove the states of all trainings so far, once their results are written."""
        if self.compute.rank == 0:
            for path in self._unfinished:
                path.unlink(missing_ok=True)
                previous(path).unlink(missing_ok=True)
        self._unfinished.clear()

    def fit(
        self,
        training: Training,
        batches: Callable[[int, int], Iterator[Any]],
        loss: Callable[[Any, Any, int, int], Losses],
        title: str,
        seed: int,
        on_step: Callable[[StepResult], object] | None = None,
    ) -> None:
        """Train to the end, from the checkpoint of a killed process if there is one.

        The last checkpoint stays until the protocol's result is written. PyTorch's global generator
        is seeded for the training and restored afterwards.
        """
        fabric = self.fabric
        if fabric.device.type == "cpu":
            keep_freed_memory()
        with forked(fabric.device):
            training.resume(seed)
            chief = fabric.is_global_zero
            shown = doing(title, training.steps, "steps", training.step, enabled=chief)
            with shown as work, training.stop.listening():
                for step in training.run(fabric, batches, loss):
                    if on_step is not None:
                        on_step(step)
                    terms = [f"{name} {value:.3f}" for name, value in (step.metrics or {}).items()]
                    work.update(step.step, "  ".join(terms) if step.due else None)
        if training.checkpoint is not None:
            training.save()
        fabric.barrier()
