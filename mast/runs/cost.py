"""What a run costs: memory, disk and time, measured here or computed from stated rates."""

import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from mast.augment import Pipeline
from mast.config import PretrainConfig, build_method, change
from mast.core.errors import UserError
from mast.core.launch import cores
from mast.core.memory import memory_of
from mast.core.optim import moments
from mast.core.run import RunFolder
from mast.data import BrokenImageError, Source, canvas_size, expected_bytes
from mast.data.source import sampled
from mast.methods import METHODS, StepNeeds, step_flops, step_needs
from mast.models.encoders import IMAGENET
from mast.runs.memory import COUNTED, needs_of

# Share of a GPU's peak that a run is taken to reach; none has been measured.
REACHED = 0.3
SMALLEST_PART = 32  # images, of which variances are taken
MEASURED_IMAGES = 64  # at most in a step that is measured, and in a sample that is decoded
MEASURED_STEPS = 3  # of each of two epochs, the second of which counts
# A recipe's epochs are for so many images. Fewer are seen more often, but not as many times more.
USUAL_IMAGES, MOST_TIMES = 50_000, 8


@dataclass(frozen=True)
class Gpu:
    """A GPU as its maker describes it.

    Attributes:
        memory: Bytes.
        flops: Operations a second in bfloat16, dense, that it can reach at most.
    """

    memory: float
    flops: float


# NVIDIA's data sheets: the SXM versions of H200, H100 and A100, and the GeForce RTX 4090.
GpuName = Literal["H200", "H100", "A100", "RTX4090"]
GPUS: dict[GpuName, Gpu] = {
    "H200": Gpu(memory=141e9, flops=989e12),
    "H100": Gpu(memory=80e9, flops=989e12),
    "A100": Gpu(memory=80e9, flops=312e12),
    "RTX4090": Gpu(memory=24e9, flops=165e12),
}


@dataclass(frozen=True)
class Cost:
    """A run and what it costs.

    Attributes:
        config: The run, with epochs and parts of a batch that fit.
        memory: Bytes that a step needs, from what can be counted; 0 where nothing can be.
        room: Bytes that there are; None where that is not known.
        disk: Bytes of the resized images that are kept; 0 where they are too many to be.
        images_per_second: Speed of the training.
        decoding: Seconds in which all images are read and resized, once or, where they are not
            kept, in every epoch.
        measured: Whether the speed was measured here.
        images: How many there are.
    """

    config: PretrainConfig
    memory: float
    room: float | None
    disk: float
    images_per_second: float
    decoding: float
    measured: bool
    images: int

    @property
    def seconds(self) -> float:
        """Time of the whole run."""
        once = self.decoding if self.disk else 0.0
        return once + self.config.epochs * _seconds_an_epoch(self)

    @property
    def fits(self) -> bool:
        """Whether there is as much memory as it needs."""
        return self.room is None or self.memory <= self.room


def cost(
    config: PretrainConfig,
    source: Source,
    decoding: float,
    gpu: Gpu | None,
    device: torch.device,
    hours: float | None,
    pretrain: Callable[[PretrainConfig], RunFolder],
) -> Cost:
    """What a run of a recipe on some images costs.

    Args:
        config: The run; a batch of more images than there are is halved.
        source: The images.
        decoding: Seconds in which all of them are read and resized.
        gpu: Where it is to be trained; None: here.
        device: Where, here.
        hours: That it may take; its epochs are then as many as fit, up to eight times as many. If
            not given, they stay as they are.
        pretrain: Trains a run, with which the speed here is measured.

    Raises:
        UserError: The images have other channels, not even an epoch fits into the hours, or for a
            GPU the operations of a step cannot be counted.
    """
    place = torch.device("cuda") if gpu is not None else device
    layout = config.data.find_reading(source.name, sampled(source)).layout
    config = replace(config, batch_size=_batch(config.batch_size, len(source)))
    config, needs = _in_parts(config, place, gpu.memory if gpu else memory_of(place))
    flops = flops_an_image(config) if gpu is not None else 0.0
    if gpu is not None and flops == 0:
        raise UserError(
            f"what a step of {config.recipe} takes cannot be counted for {config.encoder.name}: "
            "measure it on the machine that will train, without gpu"
        )
    speed = _measured(config, pretrain) if gpu is None else REACHED * gpu.flops / flops
    images, disk = (
        len(source),
        expected_bytes(source, config.data.canvas or canvas_size(config.size), layout),
    )
    cost = Cost(
        config=config,
        memory=needs.least(config.accumulate, again=True) / COUNTED,
        room=gpu.memory if gpu is not None else memory_of(place),
        disk=disk if disk <= config.data.cache_limit_gb * 1e9 else 0.0,
        images_per_second=speed,
        decoding=decoding,
        measured=gpu is None,
        images=images,
    )
    epochs = config.epochs if hours is None else epochs_in(cost, hours)
    if not epochs:
        first = _seconds_an_epoch(cost) + (decoding if cost.disk else 0.0)
        raise UserError(
            f"an epoch of {images:,} images takes {first / 3600:.2g} hours by {config.recipe}, and "
            f"{hours:g} are given"
        )
    return replace(cost, config=replace(config, epochs=epochs))


def flops_an_image(config: PretrainConfig) -> float:
    """Operations of a training step, forward and backward, for each image; 0 if not countable."""
    count = config.batch_size // config.accumulate
    pipeline = Pipeline(config.preset, config.size)
    return step_flops(partial(build_method, config), pipeline, count) / count


def flops_a_second(
    configs: Sequence[PretrainConfig],
    gpu: Gpu | None,
    pretrain: Callable[[PretrainConfig], RunFolder],
) -> float:
    """Operations a second of a training: of a GPU as taken, or here as measured on a run.

    Args:
        configs: Runs; of the first that needs no labels a few steps are trained here.
        gpu: Where they are to be trained; None: here.
        pretrain: Trains a run.

    Raises:
        UserError: All of them learn from labels.
    """
    if gpu is not None:
        return REACHED * gpu.flops
    unlabelled = (each for each in configs if not METHODS[each.method].method.labelled)
    config = next(unlabelled, configs[0])
    return _measured(config, pretrain) * flops_an_image(config)


def kept_bytes(config: PretrainConfig) -> int:
    """Bytes that a run leaves on the disk: two checkpoints and its weights."""
    needs = step_needs(
        partial(build_method, config), Pipeline(config.preset, config.size), 1,
        torch.device("cpu"), torch.float32, moments=moments(config.optimizer), compiled=True,
    )  # fmt: skip
    return 3 * needs.weights + 2 * needs.state


def decoding_seconds(source: Source, size: int) -> float:
    """Seconds in which all images are read and resized on the cores here, from a few of them.

    Args:
        source: The images.
        size: Side of the views in pixels.
    """
    chosen = list[int]()
    for index in random.Random(0).sample(range(len(source)), min(MEASURED_IMAGES, len(source))):
        if len(chosen) < MEASURED_IMAGES:
            chosen += source.together(index)
    begun = time.perf_counter()
    for index in chosen:
        try:
            source.canvas(index, canvas_size(size))
        except BrokenImageError:  # is left out of a training, too
            continue
    return (time.perf_counter() - begun) / len(chosen) * len(source) / cores()


def _batch(batch_size: int, images: int) -> int:
    """The batch, halved until there are as many images."""
    while batch_size > max(2, images):
        batch_size //= 2
    return batch_size


def _of_an_epoch(cost: Cost) -> int:
    """Images of an epoch, which leaves out those that fill no batch."""
    return cost.images - cost.images % cost.config.batch_size


def scaled(cost: Cost) -> Cost:
    """The same run with as many epochs as its own would be of 50,000 images, up to eight times."""
    epochs = max(1, round(cost.config.epochs * min(MOST_TIMES, USUAL_IMAGES / cost.images)))
    return replace(cost, config=replace(cost.config, epochs=epochs))


def epochs_in(cost: Cost, hours: float) -> int:
    """The epochs that fit into some hours, 0 or more, up to eight times those of the run."""
    left = hours * 3600 - (cost.decoding if cost.disk else 0.0)
    return min(max(0, int(left / _seconds_an_epoch(cost))), MOST_TIMES * cost.config.epochs)


def _seconds_an_epoch(cost: Cost) -> float:
    """Time of an epoch, without what is done once."""
    reading = 0.0 if cost.disk else cost.decoding
    return _of_an_epoch(cost) / cost.images_per_second + reading


def _in_parts(
    config: PretrainConfig, device: torch.device, room: float | None
) -> tuple[PretrainConfig, StepNeeds]:
    """The run in as few parts of a batch as fit, or as there can be, and what a part needs."""
    parts = 1
    while True:
        needs = needs_of(config, device, parts)
        fits = room is None or needs.least(parts, again=True) / COUNTED <= room
        smaller, remainder = divmod(config.batch_size, 2 * parts)
        whole = METHODS[config.method].method.needs_whole_batch is not None
        if fits or remainder or smaller < SMALLEST_PART or whole:
            return replace(config, accumulate=parts), needs
        parts *= 2


def _measured(config: PretrainConfig, pretrain: Callable[[PretrainConfig], RunFolder]) -> float:
    """Images a second of a few steps on generated images, with a smaller batch if it is large."""
    if METHODS[config.method].method.labelled:
        raise UserError(
            f"{config.recipe} learns from labels, and what is measured are generated images "
            "without one kind of them: plan vicreg5_small, whose steps take about as long"
        )
    batch = min(config.batch_size // config.accumulate, MEASURED_IMAGES)
    with tempfile.TemporaryDirectory() as folder:
        few = change(
            config,
            {
                "data.spec": f"factors@train:{batch * MEASURED_STEPS}",
                "data.cache": os.path.join(folder, "cache"),
                "out": os.path.join(folder, "run"),
                "batch_size": batch,
                "accumulate": 1,
                "epochs": 2,
                "score_every": 2,
                # They are RGB: all but the first layer costs as much as of other channels.
                "data.channels": 3,
                "data.range": ("auto",),
                **{f"encoder.{name}": value for name, value in IMAGENET._asdict().items()},
                "log_every": MEASURED_STEPS,
            },
        )
        lines = pretrain(few).read_metrics()
    speeds = [line["images_per_second"] for line in lines if "loss" in line]
    assert math.isfinite(speeds[-1])
    return float(speeds[-1])


def free_space(path: Path) -> int:
    """Bytes that are free where a folder is or will be."""
    while not path.exists():
        path = path.parent
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
