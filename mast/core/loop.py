"""The training loop of pretraining and of every protocol that trains a network.

The caller chooses network, data and loss; the order of a step, the learning rate, checkpoints and
the stop on non-finite losses are here, once. A checkpoint contains only finite numbers: all losses
up to it, and its weights, have been checked.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from mast.core.checkpoint import load_checkpoint, previous, save_checkpoint
from mast.core.collectives import rank
from mast.core.errors import DivergedError, UserError
from mast.core.optim import load_state, set_learning_rate
from mast.core.stopping import Interrupted, StopRequest
from mast.core.transfer import numbers

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_log = logging.getLogger("mast")

Losses = dict[str, Tensor]  # "loss", which is minimized, and other values to log


class StepResult(NamedTuple):
    """The result of one optimizer step.

    Attributes:
        step: Number of optimizer steps so far, this one included.
        share: The learning rate, as a share of its peak.
        metrics: The losses, means over the parts of the batch and, if `due`, over processes;
            None if they were not read from the device.
        due: Whether to log: every `log_every` steps, and at the end of each epoch.
        last_of_epoch: Whether this step ended an epoch.
    """

    step: int
    share: float
    metrics: dict[str, float] | None
    due: bool
    last_of_epoch: bool


@dataclass
class Training:
    """A training: its network, length and progress.

    Attributes:
        module: Called by `loss` in `run`; wrapped as a whole for several processes.
        optimizer: Its groups carry "peak_lr".
        epochs: Passes over the data.
        steps_per_epoch: Optimizer steps in an epoch.
        rate: Maps the completed share of the run, after the step, to the learning rate as a share
            of its peak.
        accumulate: Gradient-accumulation steps per batch.
        clip: Largest gradient norm; None for no clipping.
        log_every: Steps between logged ones.
        frozen: Maps the completed share of the run, before the step, to the parameters not to
            update; the optimizer ignores parameters without a gradient.
        checkpoint: File for the state; None saves nothing.
        checkpoint_minutes: Minutes between checkpoints.
        advice: Advice if the loss becomes non-finite.
        extra: Further content of a checkpoint; the caller may change it at any step.
        stop: Whether a signal requested a stop; the caller decides when to listen.
        step: Completed steps.
    """

    module: nn.Module
    optimizer: torch.optim.Optimizer
    epochs: int
    steps_per_epoch: int
    rate: Callable[[float], float]
    accumulate: int = 1
    clip: float | None = None
    log_every: int = 10
    frozen: Callable[[float], Iterable[nn.Parameter]] = lambda progress: ()
    checkpoint: Path | None = None
    checkpoint_minutes: float = 2.0
    advice: str = "Lower the learning rate."
    extra: dict[str, Any] = field(default_factory=dict)
    stop: StopRequest = field(default_factory=StopRequest)
    step: int = 0
    _begun: float = field(default_factory=time.monotonic)
    _whole: bool = True  # whether the checkpoint, if any, is usable
    _unread: list[tuple[int, Losses]] = field(default_factory=list)  # on the device

    @property
    def steps(self) -> int:
        """Steps of the whole training."""
        return self.epochs * self.steps_per_epoch

    @property
    def seconds(self) -> float:
        """Seconds spent, summed over interrupted and resuming processes."""
        return time.monotonic() - self._begun

    def resume(self, seed: int) -> None:
        """Resume from the checkpoint if there is one; else seed PyTorch's generator.

        If the last checkpoint is damaged, uses the one before it, with a warning.
        """
        files = () if self.checkpoint is None else (self.checkpoint, previous(self.checkpoint))
        found = [file for file in files if file.is_file()]
        if not found:
            torch.manual_seed(seed)
        for file in found:
            try:
                self._load(file)
                return
            except UserError as error:
                if file is found[-1]:
                    raise
                _log.warning("%s The one before it is used.", error)
                self._whole = False

    def _load(self, file: Path) -> None:
        """Load the state of a checkpoint."""
        state = load_checkpoint(file)
        try:
            if bad := self._not_finite_of(state["module"], state["optimizer"]):
                raise UserError(f"{file} cannot be used: {bad[0]} in it is not finite.")
            self.module.load_state_dict(state["module"])
            load_state(self.optimizer, state["optimizer"])
            torch.set_rng_state(state["rng"])
            for gpu, generator in enumerate(state["rng_cuda"][: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(generator, gpu)
            self.step, self.extra = state["step"], self.extra | state["kept"]
            self._begun = time.monotonic() - state["seconds"]
        except (KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise UserError(
                f"{file} is not a checkpoint of this training. Delete it to start again."
            ) from error

    def save(self) -> None:
        """Write the checkpoint, from the first process."""
        assert self.checkpoint is not None
        self._read_losses()
        if rank() > 0:
            return
        state: dict[str, Any] = {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "rng_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            "step": self.step,
            "kept": self.extra,
            "seconds": self.seconds,
        }
        # an update may overflow although the loss was finite
        if bad := self._not_finite_of(state["module"], state["optimizer"]):
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            raise self._stopped(self.step, f"its update left {bad[0]}{more} not finite")
        save_checkpoint(self.checkpoint, state, keep=self._whole)
        self._whole = True

    def run(
        self,
        fabric: "Fabric",
        batches: Callable[[int, int], Iterator[Any]],
        loss: Callable[[Any, Any, int, int], Losses],
    ) -> Iterator[StepResult]:
        """Train to the end, yielding after every step.

        Args:
            fabric: A launched fabric; moves the module, and wraps it for several processes.
            batches: Maps an epoch and its first part to yield to this process's batches, one
                per part.
            loss: Maps the wrapped module, a batch, the completed steps and the part to the
                losses of this process.

        Yields:
            One result per step. Checkpoints are written after the caller's turn, and so include
            its changes to the module and to `extra`.

        Raises:
            DivergedError: A loss, or a weight to save, is not finite; the last good checkpoint
                stays.
            Interrupted: A signal requested a stop; the steps so far are saved.
        """
        module, optimizer = fabric.setup(self.module, self.optimizer)
        # Fabric moves the weights alone
        self.optimizer.load_state_dict(self.optimizer.state_dict())
        module.train()
        chief = fabric.is_global_zero
        saved_at, begun = time.monotonic(), self.step
        while self.step < self.steps:
            epoch, start = divmod(self.step, self.steps_per_epoch)
            parts = iter(batches(epoch, start * self.accumulate))
            for _ in range(start, self.steps_per_epoch):
                # -------------------------------------------------------------------- step
                share = self.rate((self.step + 1) / self.steps)
                set_learning_rate(optimizer, share)
                optimizer.zero_grad(set_to_none=True)
                outputs = []
                for part in range(self.accumulate):
                    # the state is inconsistent within a step
                    batch = self._next(parts, chief and part == 0, begun)
                    last_part = part == self.accumulate - 1
                    with fabric.no_backward_sync(module, enabled=not last_part):
                        output = loss(module, batch, self.step, part)
                        fabric.backward(output["loss"] / self.accumulate)
                    outputs.append({name: value.detach() for name, value in output.items()})
                    del output  # frees its graph before the next
                for parameter in self.frozen(self.step / self.steps):
                    parameter.grad = None
                if self.clip is not None:  # non-finite losses are found when they are read
                    bounds: Any = {"max_norm": self.clip, "error_if_nonfinite": False}
                    fabric.clip_gradients(module, optimizer, **bounds)
                optimizer.step()
                self.step += 1

                # ---------------------------------------------------------- check its losses
                last_of_epoch = self.step % self.steps_per_epoch == 0
                due = self.step % self.log_every == 0 or last_of_epoch
                losses = _mean(outputs)
                if due:
                    losses = cast(Losses, fabric.all_reduce(losses))
                self._unread.append((self.step, losses))
                # reading a number makes a GPU wait
                metrics = self._read_losses() if due or fabric.device.type == "cpu" else None
                yield StepResult(self.step, share, metrics, due, last_of_epoch)

                # ------------------------------------------------------------------- save
                # the other processes end with the first, for which they wait at the next step
                if not chief:
                    continue
                minutes, number = (time.monotonic() - saved_at) / 60, self.stop.number
                to_save = number is not None or minutes >= self.checkpoint_minutes
                if to_save and self.checkpoint is not None:
                    self.save()
                    saved_at = time.monotonic()
                if number is not None:
                    raise self._interrupted(number)
            del parts  # ends reading ahead before the next epoch

    def _next(self, parts: Iterator[Any], may_end: bool, begun: int) -> Any:
        """The next batch. A signal may interrupt the wait; steps since `begun` are then saved."""
        self.stop.waiting = may_end
        try:
            return next(parts)
        except Interrupted as stopped:
            if not may_end:
                raise
            if self.checkpoint is not None and self.step > begun:
                self.save()
            raise self._interrupted(stopped.number) from None
        finally:
            self.stop.waiting = False

    def _read_losses(self) -> dict[str, float]:
        """Check all unread losses; returns those of the last step as numbers."""
        unread, self._unread, metrics = self._unread, [], {}
        values = iter(numbers(value for _, losses in unread for value in losses.values()))
        for step, losses in unread:
            metrics = dict(zip(losses, values, strict=False))
            bad = [name for name, value in metrics.items() if not math.isfinite(value)]
            if bad:
                raise self._stopped(step, f"{', '.join(bad)} is not finite")
        return metrics

    def _not_finite_of(self, module: dict[str, Tensor], optimizer: dict[str, Any]) -> list[str]:
        """Names of non-finite tensors of a state."""
        tensors: dict[str, Any] = dict(module)
        for index, state in optimizer["state"].items():
            for name, value in state.items():
                tensors[f"the optimizer's {name} of parameter {index}"] = value
        return [
            name
            for name, value in tensors.items()
            if isinstance(value, Tensor) and not value.isfinite().all()
        ]

    def _interrupted(self, number: int) -> Interrupted:
        kept = "nothing was saved"
        if self.checkpoint is not None and self.step > 0:
            kept = "which was saved; the same command resumes"
        return Interrupted(number, f"stopped after step {self.step} of {self.steps}, {kept}")

    def _stopped(self, step: int, reason: str) -> DivergedError:
        exists = self.checkpoint is not None and self.checkpoint.is_file()
        last = f" The last good checkpoint is {self.checkpoint}." if exists else ""
        return DivergedError(f"stopped at step {step}: {reason}. {self.advice}{last}")


def _mean(outputs: list[Losses]) -> Losses:
    """Means over the parts of a batch."""
    if len(outputs) == 1:
        return outputs[0]
    return {name: torch.stack([part[name] for part in outputs]).mean() for name in outputs[0]}
