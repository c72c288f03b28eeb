"""Whether a run fits into the memory that there is, and what it leaves of a GPU's."""

from bisect import bisect_left
from functools import partial

import torch

from mast.augment import Pipeline
from mast.config import PretrainConfig, build_method
from mast.core.errors import UserError
from mast.core.launch import type_of
from mast.core.memory import memory_of
from mast.core.optim import OF_ALL_GRADIENTS, moments
from mast.methods import METHODS, StepNeeds, step_needs

# Bytes that a process shares with no other before it trains, from below: half of what it held with
# PyTorch 2.15 for CUDA 13 (RssAnon after all imports: 0.51 GB), as other builds hold less.
LIBRARIES = 250_000_000
# Of usual encoders 69 to 86 % of what a step needs can be counted before it (docs/log.md).
COUNTED = 0.69
USUAL_GB = 2.0  # of images in a GPU's memory where it is not known what a step needs
MOST_PARTS = 4096  # of a batch, among which the fewest are looked for that fit


def check_memory(config: PretrainConfig, device: torch.device, processes: int, local: int) -> None:
    """Refuse a run of which a step needs more memory than there is, before any is asked for.

    What it needs is a lower bound (`step_needs`): what is refused cannot run.

    Args:
        config: The run.
        device: Where this process trains.
        processes: Of the run, on all machines.
        local: Of these, those on this machine.

    Raises:
        UserError: It says how much is needed, how much there is and what helps.
    """
    there = memory_of(device)
    if there is None:
        return
    on_cpu = device.type == "cpu"
    compiled = config.compile or (config.compile is None and not on_cpu)

    def step(parts: int) -> StepNeeds:
        return needs_of(config, device, parts, processes, compiled)

    def needed(step: StepNeeds, parts: int) -> int:
        one = step.least(parts, again=config.epochs > 1)
        return local * (LIBRARIES + one) if on_cpu else one

    # ----------------------------------------------------------------------- what it needs
    whole, parts = step(config.accumulate), config.accumulate
    if needed(whole, parts) <= there:
        return
    size, what = whole.largest
    text = (
        f"a training step needs at least {_gigabytes(needed(whole, parts))} of memory"
        + (f" in {local} processes" if on_cpu and local > 1 else "")
        + f", of which {_gigabytes(size)}{' each' if on_cpu and local > 1 else ''} are {what}, "
        f"and {'this machine' if on_cpu else 'the GPU'} has {_gigabytes(there)}"
    )

    # ------------------------------------------------------------------------- what helps
    helps = ["a smaller encoder.name", "a narrower objective.projector (hidden, dim)"]
    without_images = needed(whole._replace(views=0, activations=0), parts)
    if without_images <= there or what == "views":
        more = [
            parts
            for parts in range(config.accumulate + 1, MOST_PARTS + 1)
            if config.batch_size % (parts * processes) == 0
            and config.batch_size >= 2 * parts * processes
        ]
        at = bisect_left(more, True, key=lambda parts: needed(step(parts), parts) <= there)
        helps = ["a smaller batch_size", "a smaller size", *helps]
        if more[at:] and METHODS[config.method].method.needs_whole_batch is None:
            helps = [f"accumulate {more[at]} or more", *helps]
        if type_of(config.precision, device) is torch.float32:
            helps += ["precision bf16-mixed"]
    alone = config.shard_optimizer or config.optimizer.name in OF_ALL_GRADIENTS
    if processes > 1 and not alone:
        helps += ["shard_optimizer"]
    if on_cpu and local > 1:
        helps += ["fewer devices"]
    raise UserError(f"{text}. What helps: {', '.join(helps)}.")


def free_for_images(config: PretrainConfig, device: torch.device, processes: int) -> float:
    """GB of a GPU that images may take: half of what a step leaves free of it.

    Args:
        config: The run.
        device: The GPU.
        processes: Of the run, on all machines.
    """
    step = needs_of(config, device, config.accumulate, processes)
    if not step.activations:  # not known
        return USUAL_GB
    free = torch.cuda.mem_get_info(device)[0]
    return max(0.0, (free - step.least(config.accumulate, again=True) / COUNTED) / 2e9)


def needs_of(
    config: PretrainConfig,
    device: torch.device,
    parts: int,
    processes: int = 1,
    compiled: bool = False,
) -> StepNeeds:
    """What a step needs in one of some processes, which computes its share in equal parts.

    See `step_needs`.
    """
    needs = step_needs(
        partial(build_method, config),
        Pipeline(config.preset, config.size),
        config.batch_size // (parts * processes),
        device,
        type_of(config.precision, device),
        moments=moments(config.optimizer),
        channels=config.encoder.channels,
        channels_last=config.channels_last,
        compiled=compiled,
    )
    return needs._replace(state=needs.state // processes) if config.shard_optimizer else needs


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
