"""How a run uses its device: what is compiled, and what is replayed, where nobody says."""

import torch

from mast.augment import Pipeline
from mast.augment.pipeline import has_triton
from mast.config import PretrainConfig
from mast.core.errors import UserError
from mast.core.launch import type_of
from mast.methods import Method
from mast.methods.replay import Replay, worth_replaying


def compiles(config: PretrainConfig, device: torch.device) -> bool:
    """Whether the parts of a method are compiled: by default on a GPU where Triton works."""
    if config.compile is not None:
        return config.compile
    if not has_triton(device):
        return False
    from mast.augment.fused import works_on

    return works_on(device)


def replay_of(
    config: PretrainConfig,
    method: Method,
    pipeline: Pipeline,
    device: torch.device,
    processes: int,
) -> Replay | None:
    """Steps as CUDA graphs; None where they are not wanted, or cannot be.

    Raises:
        UserError: They are asked for, and the run is not on one GPU.
    """
    alone = device.type == "cuda" and processes == 1 and config.accumulate == 1
    if config.cuda_graphs and not alone:
        raise UserError(
            f"cuda_graphs is for one process on a GPU, and this run has {processes} on "
            f"{device.type}: leave it out"
        )
    small = worth_replaying(config.batch_size, pipeline.sizes)
    if not alone or config.cuda_graphs is False or not (config.cuda_graphs or small):
        return None
    return Replay(method, type_of(config.precision, device), asked=bool(config.cuda_graphs))
