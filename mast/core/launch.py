"""Processes and devices, through Lightning Fabric; torchrun's environment wins over options."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from mast.core.errors import UserError, unknown
from mast.core.processes import has_started, is_started

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MOST_THREADS = 256  # more than this, and than there are cores, may fail to start

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "32-true", "bf16-mixed"]


def find_device(name: Device) -> torch.device:
    """The kind of device that a name stands for: "auto" takes a GPU where there is one.

    Raises:
        UserError: A GPU is asked for, and there is none.
    """
    if name not in get_args(Device):
        raise unknown("device", name, get_args(Device))
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but PyTorch sees no GPU; give device as cpu or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def resolve(precision: Precision, device: torch.device) -> Literal["32-true", "bf16-mixed"]:
    """What "auto" stands for: bf16-mixed on CUDA, 32-true elsewhere."""
    if precision != "auto":
        return precision
    return "bf16-mixed" if device.type == "cuda" else "32-true"


def type_of(precision: Precision, device: torch.device) -> torch.dtype:
    """The type in which a network takes images."""
    return torch.float32 if resolve(precision, device) == "32-true" else torch.bfloat16


def precision_of(dtype: torch.dtype) -> Precision:
    """The precision of a type: mixed for bfloat16, which keeps weights in float32."""
    return "32-true" if dtype is torch.float32 else "bf16-mixed"


def check_threads(threads: int | None) -> None:
    """Refuse a number of CPU threads that cannot be started.

    Raises:
        UserError: There are fewer than one, or too many; None is PyTorch's choice.
    """
    if threads is not None and threads < 1:
        raise UserError(f"threads must be 1 or more, got {threads}")
    most = max(MOST_THREADS, cores())
    if threads is not None and threads > most:
        raise UserError(f"threads is {threads}, and there are {cores()} CPU cores: at most {most}")


def cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def local_processes(fabric: "Fabric") -> int:
    """How many processes of a fabric share this machine, launched or not."""
    return getattr(fabric.strategy, "num_processes", 1)


def all_processes(fabric: "Fabric") -> int:
    """How many processes a fabric has on all machines, launched or not."""
    return local_processes(fabric) * getattr(fabric.strategy, "num_nodes", 1)


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

    Args:
        device: auto, cpu or cuda.
        devices: Processes on this node, unless torchrun says otherwise.
        nodes: Nodes, likewise.
        precision: See `resolve`.
        loggers: Fabric loggers.
        same_graph: Whether every step of a training has the same graph and its batch is computed
            whole; of parts, PyTorch would add up the gradients wrongly (its issue 143580).

    Raises:
        UserError: A GPU is asked for, and there is none; more processes than a CPU has cores; or
            several nodes, which nothing has started.
    """
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    kind = find_device(device)
    if devices < 1 or nodes < 1:
        raise UserError(f"devices and nodes must be at least 1, got {devices} and {nodes}")
    if kind.type == "cpu" and devices > max(2, cores()):
        raise UserError(
            f"devices is {devices}, and there are {cores()} CPU cores: give at most that many"
        )
    started = int(os.environ["WORLD_SIZE"]) if is_started() or has_started() else None
    if started is not None and devices * nodes != started:
        raise UserError(f"this program already runs in {started} processes: give devices {started}")
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", devices))
    nodes = int(os.environ.get("WORLD_SIZE", devices * nodes)) // devices
    # gradients lie in the buffers that are summed: a copy less of each
    several = DDPStrategy(gradient_as_bucket_view=True, static_graph=same_graph)
    fabric = Fabric(
        accelerator=kind.type,
        devices=devices,
        num_nodes=nodes,
        strategy=several if devices * nodes > 1 else "auto",
        precision=resolve(precision, kind),
        loggers=list(loggers),
    )
    environment = getattr(fabric.strategy, "cluster_environment", None)
    if nodes > 1 and type(environment) is LightningEnvironment and "MASTER_ADDR" not in os.environ:
        raise UserError(
            f"nodes is {nodes}, and nothing says where the others are: start them by torchrun or "
            "srun, or set MASTER_ADDR, MASTER_PORT and NODE_RANK"
        )
    return fabric
