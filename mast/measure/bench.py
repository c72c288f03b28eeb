"""The bench on which a protocol trains: its processes and its unfinished work."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mast.core.checkpoint import remove_checkpoint
from mast.core.display import doing
from mast.core.errors import UserError
from mast.core.launch import make_fabric, precision_of
from mast.core.loop import Losses, StepResult, Training
from mast.core.memory import keep_freed_memory
from mast.core.seeds import forked
from mast.measure.compute import Compute

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from mast.measure.frozen import FrozenEncoder
    from mast.measure.sets import EvaluationData, LearningData, ObjectData


class Bench:
    """Where protocols train, and resume after they were killed.

    Args:
        compute: Its device (the CPU if it names none), type and processes are those of a training.
        workspace: Folder for the state of unfinished work, from which it resumes, and for the
            other files of a protocol; None writes nothing.
        representations: Makes another representation of the same run from its name.
    """

    def __init__(
        self,
        compute: Compute | None = None,
        workspace: Path | None = None,
        representations: Callable[[str], FrozenEncoder] | None = None,
    ) -> None:
        self.compute = compute or Compute()
        self.workspace = workspace
        self._make_representation = representations
        self._representations: dict[str, FrozenEncoder] = {}
        self._unfinished: list[Path] = []

    @functools.cached_property
    def fabric(self) -> Fabric:
        """What trainings run through."""
        if self.compute.fabric is not None:
            return self.compute.fabric
        cuda = torch.device(self.compute.device or "cpu").type == "cuda"
        return make_fabric("cuda" if cuda else "cpu", precision=precision_of(self.compute.dtype))

    @property
    def has_method(self) -> bool:
        """Whether the encoder is that of a run, which learned something beside it."""
        return self._make_representation is not None

    def representation(self, name: str) -> FrozenEncoder:
        """Another representation of the run whose encoder is measured, made at the first call.

        Args:
            name: "ensemble" (the parts of a method side by side) or "embedding".

        Raises:
            UserError: Only the encoder is known.
        """
        if self._make_representation is None:
            raise UserError(
                f"the {name} needs a run folder of `mast`, without ignore, match and space; here "
                "is an encoder alone."
            )
        if name not in self._representations:
            self._representations[name] = self._make_representation(name)
        return self._representations[name]

    def unfinished(
        self,
        encoder: FrozenEncoder,
        protocol: Any,
        data: EvaluationData | LearningData | ObjectData,
        **details: Any,
    ) -> Path | None:
        """Where the state of a training is kept until its result is written.

        Args:
            encoder: What it starts from.
            protocol: The protocol with its settings.
            data: The sets.
            details: What tells this training from others of the protocol.

        Returns:
            A file whose name changes with all that the training depends on; None without a
            workspace.
        """
        if self.workspace is None:
            return None
        dtype = encoder.compute.dtype
        key = (protocol, data.fingerprints, data.size, dtype, encoder.identity, details)
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        path = self.workspace / "unfinished" / f"{name}.pt"
        self._unfinished.append(path)
        return path

    def finish(self) -> None:
        """Remove the state of all trainings so far: their results are written."""
        if self.compute.rank == 0:
            for path in self._unfinished:
                remove_checkpoint(path)
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

        A last checkpoint is kept until the protocol's result is written, so that whatever stops
        it before then does not cost the training. PyTorch's global generator is seeded for the
        training and restored afterwards.

        Args:
            training: What is trained; its checkpoint is that of `unfinished`.
            batches: As in `Training.run`.
            loss: As in `Training.run`.
            title: Of the progress bar.
            seed: Of what PyTorch draws itself, such as dropout.
            on_step: Called with every step.

        Raises:
            UserError: A loss that is not finite.
            Interrupted: A signal asked to stop.
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
