"""Processes and devices, through Lightning Fabric; torchrun's environment wins over options."""

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from mast.core.errors import UserError, unknown
from mast.core.kinds import Device, Precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TORCHRUN = "TORCHELASTIC_RUN_ID"  # which torchrun sets
MOST_THREADS = 256  # more than this, and than there are cores, may fail to start

FABRIC: dict[str, Any] = {
    "float32": "32-true",
    "bfloat16": "bf16-mixed",
}  # mixed: weights stay in float32


def find_device(name: Device) -> torch.device:
    """The kind of device that a name stands for: "auto" takes a GPU where there is one."""
    if name not in get_args(Device):
        raise unknown("device", name, get_args(Device))
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but PyTorch sees no GPU; give device as cpu or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def resolve(precision: Precision, device: torch.device) -> Literal["float32", "bfloat16"]:
    """What "auto" stands for: bfloat16 on CUDA, float32 elsewhere."""
    if precision != "auto":
        return precision
    return "bfloat16" if device.type == "cuda" else "float32"


def type_of(precision: Precision, device: torch.device) -> torch.dtype:
    """The type in which a network takes images."""
    return torch.float32 if resolve(precision, device) == "float32" else torch.bfloat16


# ---------------------------------------------------------------------------------- threads


def cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_threads(threads: int | None) -> None:
    """Refuse a number of CPU threads that cannot be started; None is PyTorch's choice."""
    most = max(MOST_THREADS, cores())
    if threads is not None and not 1 <= threads <= most:
        raise UserError(f"threads: expected 1 to {most} for {cores()} CPU cores, got {threads}")


# -------------------------------------------------------------------------------- processes


def local_processes(fabric: "Fabric") -> int:
    """How many processes of a fabric share this machine, launched or not."""
    return getattr(fabric.strategy, "num_processes", 1)


def make_fabric(
    device: Device = "auto",
    devices: int = 1,
    nodes: int = 1,
    precision: Precision = "auto",
    loggers: Sequence[Any] = (),
    *,
    same_graph: bool = False,
) -> "Fabric":
    """Devices, precision and loggers; not launched yet.

    With `same_graph` every step of a training has the same graph and its batch is computed whole:
    of parts, PyTorch would add up the gradients wrongly (its issue 143580).
    """
    kind = find_device(device)
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    # Fabric logs its precision, and advises TF32, which is off on purpose (`core.entry`)
    logging.getLogger("lightning_fabric.utilities.rank_zero").setLevel(logging.WARNING)
    if devices < 1 or nodes < 1:
        raise UserError(f"devices and nodes must be at least 1, got {devices} and {nodes}")
    if kind.type == "cpu" and devices > max(2, cores()):
        raise UserError(
            f"devices is {devices}, and there are {cores()} CPU cores: give at most that many"
        )
    by_torchrun = TORCHRUN in os.environ
    if by_torchrun:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    # In a batch script SLURM says how many tasks there may be, and has started none of them.
    tasks = 1 if by_torchrun else int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    if tasks not in (1, devices * nodes):
        raise UserError(
            f"devices {devices} x nodes {nodes} are not the {tasks} processes that srun started: "
            "give as many devices as --ntasks-per-node, and as many nodes"
        )
    if nodes > 1 and tasks == 1 and not by_torchrun:
        raise UserError(
            f"nodes is {nodes}, and nothing says where the others are: start them by torchrun or "
            "srun"
        )
    # gradients lie in the buffers that are summed: a copy less of each
    several = DDPStrategy(gradient_as_bucket_view=True, static_graph=same_graph)
    return Fabric(
        accelerator=kind.type,
        devices=devices,
        num_nodes=nodes,
        strategy=several if devices * nodes > 1 else "auto",
        precision=FABRIC[resolve(precision, kind)],
        loggers=list(loggers),
        plugins=[] if by_torchrun or tasks > 1 else [LightningEnvironment()],  # no batch script's
    )
