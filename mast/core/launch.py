"""Devices and processes, through Lightning Fabric; torchrun or srun starts several."""

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch

from mast.core.errors import UserError
from mast.core.kinds import Device, Precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TORCHRUN = "TORCHELASTIC_RUN_ID"  # which torchrun sets
MOST_THREADS = 256  # more threads than this (and than cores) may fail to start


def find_device(name: Device) -> torch.device:
    """The device of a name; "auto" takes a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device: expected cpu or auto, as PyTorch sees no GPU, got cuda")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def resolve(precision: Precision, device: torch.device) -> Literal["float32", "bfloat16"]:
    """The precision of "auto": bfloat16 on CUDA, float32 elsewhere."""
    if precision != "auto":
        return precision
    return "bfloat16" if device.type == "cuda" else "float32"


def type_of(precision: Precision, device: torch.device) -> torch.dtype:
    """The dtype of a network's input."""
    return torch.float32 if resolve(precision, device) == "float32" else torch.bfloat16


def cores() -> int:
    """Cores available to this process; in a container, fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_threads(threads: int | None) -> None:
    """Refuse too many CPU threads; None is PyTorch's choice."""
    most = max(MOST_THREADS, cores())
    if threads is not None and not 1 <= threads <= most:
        raise UserError(f"threads: expected 1 to {most} for {cores()} CPU cores, got {threads}")


def started() -> tuple[int, int]:
    """Processes per machine, and machines, as started by torchrun or srun; else 1 and 1."""
    if TORCHRUN in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        return devices, int(os.environ["WORLD_SIZE"]) // devices
    # In a batch script, SLURM sets the number of tasks without having started any.
    tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    nodes = int(os.environ.get("SLURM_STEP_NUM_NODES", os.environ.get("SLURM_NNODES", "1")))
    return (tasks // nodes, nodes) if tasks > 1 else (1, 1)


def make_fabric(
    device: Device = "auto",
    precision: Precision = "auto",
    loggers: Sequence[Any] = (),
    *,
    same_graph: bool = False,
) -> "Fabric":
    """A fabric of the processes that torchrun or srun started, or of this one; not launched yet.

    `same_graph` tells DDP that every step has the same graph; only valid without gradient
    accumulation, for which PyTorch would sum gradients wrongly (issue 143580).
    """
    kind = find_device(device)
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    # Fabric logs its precision and recommends TF32, which is off on purpose (`core.compute`)
    logging.getLogger("lightning_fabric.utilities.rank_zero").setLevel(logging.WARNING)
    devices, nodes = started()
    # saves a copy of each gradient
    several = DDPStrategy(gradient_as_bucket_view=True, static_graph=same_graph)
    return Fabric(
        accelerator=kind.type,
        devices=devices,
        num_nodes=nodes,
        strategy=several if devices * nodes > 1 else "auto",
        precision="32-true" if resolve(precision, kind) == "float32" else "bf16-mixed",
        loggers=list(loggers),
        plugins=[LightningEnvironment()] if devices * nodes == 1 else [],  # not SLURM's
    )


@contextmanager
def launch_processes(fabric: "Fabric", remedy: Callable[[], str]) -> Iterator[None]:
    """Launch a fabric for the block; raises a clear error if another process ended.

    The launcher ends the others. `remedy` says what the same command will do next.
    """
    from torch.distributed import DistError

    try:
        fabric.launch()
        if fabric.global_rank > 0:  # all processes find the same; only the first prints it
            logging.getLogger("mast").setLevel(logging.ERROR)
        yield
    except RuntimeError as error:
        # gloo's errors have no type of their own
        if fabric.world_size == 1 or not (isinstance(error, DistError) or "gloo" in str(error)):
            raise
        reason = re.sub(r"^\[\S+\] ", "", str(error)).partition("\n")[0].partition(". ")[0][:200]
        raise UserError(
            f"another process ended or cannot be reached ({reason}); {remedy()}"
        ) from error
