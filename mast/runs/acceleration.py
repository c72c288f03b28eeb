"""How a run uses its device by default: what is compiled and kept there.

And what shrinks a run whose memory ran out.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mast.augment.pipeline import is_fused
from mast.config import PretrainConfig
from mast.core.errors import OutOfMemoryError, UserError, is_out_of_memory

FOR_IMAGES = 0.25  # share of a GPU's free memory that the images of a set may take


def compiles(config: PretrainConfig, device: torch.device, processes: int) -> bool:
    """Whether the parts of a method are compiled: by default on a GPU where Triton works."""
    if config.cuda_graphs:
        if processes > 1:
            raise UserError(f"cuda_graphs is for one process, and there are {processes}")
        if device.type != "cuda":
            raise UserError(f"cuda_graphs is for a GPU, and this run is on {device}: leave it out")
        return True
    if config.compile is not None:
        return config.compile
    return is_fused(device)


@contextmanager
def fitting(config: PretrainConfig, device: torch.device) -> Iterator[None]:
    """If memory runs out in the block, say in an `OutOfMemoryError` what shrinks the run."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        helps = ["a smaller batch_size", "a smaller size", "a smaller encoder.name"]
        if config.objective.needs_whole_batch is None:
            helps.insert(0, f"accumulate {2 * config.accumulate}")
        if device.type == "cuda" and config.data.resident_gb != 0:
            helps += ["data.resident_gb 0"]
        why = str(error).partition("\n")[0].partition(". ")[0][:200]
        raise OutOfMemoryError(f"out of memory ({why}). What helps: {', '.join(helps)}") from error
