"""Estimate memory, disk space and time of a run from a few steps on this machine."""

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mast.config import PretrainConfig, change
from mast.core.display import silent
from mast.core.errors import OutOfMemoryError, UserError
from mast.core.launch import cores, find_device
from mast.core.run import RunFolder
from mast.core.stopping import Interrupted
from mast.data import BrokenImageError, Source
from mast.data.cache import expected_bytes
from mast.data.canvas import canvas_size
from mast.data.source import sampled
from mast.methods import METHODS
from mast.models.encoders import IMAGENET

SMALLEST_PART = 32  # images to estimate variances from
MEASURED_IMAGES = 64  # at most in a step that is measured on a CPU, and in a sample to decode
MEASURED_STEPS = 10  # per epoch; the second of two epochs counts
# A recipe's epochs suit so many images. Fewer images get more epochs, up to MOST_TIMES as many.
USUAL_IMAGES, MOST_TIMES = 50_000, 8


@dataclass(frozen=True)
class Cost:
    """A run and its cost.

    Attributes:
        config: The run, with the epochs and accumulation steps that fit.
        memory: GPU memory of the measured steps in bytes; None on a CPU.
        disk: Bytes of cached, resized images; 0 if they exceed the limit and are not cached.
        images_per_second: Training speed.
        decoding: Seconds to read and resize all images, once or, if they are not cached, in
            every epoch.
        images: Number of images.
    """

    config: PretrainConfig
    memory: int | None
    disk: float
    images_per_second: float
    decoding: float
    images: int

    @property
    def once(self) -> float:
        """Seconds before the first epoch."""
        return self.decoding if self.disk else 0.0

    @property
    def an_epoch(self) -> float:
        """Seconds per epoch; an incomplete last batch is dropped."""
        trained = self.images - self.images % self.config.batch_size
        return trained / self.images_per_second + self.decoding - self.once

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return self.once + self.config.epochs * self.an_epoch

    def of_epochs(self, epochs: int) -> "Cost":
        """The same run with another number of epochs."""
        return replace(self, config=replace(self.config, epochs=epochs))

    def within(self, hours: float) -> "Cost":
        """The same run with as many epochs as fit, up to eight times its own."""
        epochs = int((hours * 3600 - self.once) / self.an_epoch)
        if epochs < 1:
            first = (self.once + self.an_epoch) / 3600
            raise UserError(
                f"hours: expected {first:.2g} or more for one epoch of {self.images:,} images with "
                f"{self.config.recipe}, got {hours:g}"
            )
        return self.of_epochs(min(epochs, MOST_TIMES * self.config.epochs))

    def scaled(self) -> "Cost":
        """The same run with as many steps as on 50,000 images, up to eight times its epochs."""
        times = min(MOST_TIMES, USUAL_IMAGES / self.images)
        return self.of_epochs(max(1, round(self.config.epochs * times)))


def cost(
    config: PretrainConfig,
    source: Source,
    decoding: float,
    pretrain: Callable[[PretrainConfig], RunFolder],
) -> Cost:
    """Estimate the cost of a run.

    Args:
        config: The run; its batch is halved until the set fills it.
        decoding: Seconds to read and resize all images.
        pretrain: The training function, to measure speed with.

    Raises:
        UserError: The images have the wrong number of channels.
        OutOfMemoryError: A step does not fit, even with the most accumulation steps.
    """
    layout = config.data.find_reading(source.name, sampled(source)).layout
    images, batch_size = len(source), config.batch_size
    while batch_size > max(2, images):
        batch_size //= 2
    config, speed, memory = measured(replace(config, batch_size=batch_size), pretrain)
    disk = expected_bytes(source, config.data.canvas or canvas_size(config.size), layout)
    disk = disk if disk <= config.data.cache_limit_gb * 1e9 else 0.0
    return Cost(config, memory, disk, speed, decoding, images)


def decoding_seconds(source: Source, size: int) -> float:
    """Seconds to read and resize all images on this machine's cores, from a sample."""
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


def measured(
    config: PretrainConfig, pretrain: Callable[[PretrainConfig], RunFolder]
) -> tuple[PretrainConfig, float, int | None]:
    """Train a few steps: the run with the fewest accumulation steps, images/s and GPU bytes."""
    if METHODS[config.method].method.labelled:
        raise UserError(
            f"recipes: {config.recipe} needs labels, but speed is measured on generated images "
            "without them; plan vicreg5_small, whose steps take about as long"
        )
    parts = 1
    while True:
        config = replace(config, accumulate=parts)
        try:
            return config, *_steps(config, pretrain)
        except OutOfMemoryError:
            parts *= 2
            smaller, remainder = divmod(config.batch_size, parts)
            if config.objective.needs_whole_batch or remainder or smaller < SMALLEST_PART:
                raise


def _steps(
    config: PretrainConfig, pretrain: Callable[[PretrainConfig], RunFolder]
) -> tuple[float, int | None]:
    """Images per second and GPU bytes of a few steps; on a CPU a large batch is cut."""
    batch, device = config.batch_size // config.accumulate, find_device(config.device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    else:
        batch = min(batch, MEASURED_IMAGES)
    with tempfile.TemporaryDirectory() as folder:
        changes = {
            "data.spec": f"factors@train:{batch * MEASURED_STEPS}",
            "data.cache": str(Path(folder) / "cache"),
            "out": str(Path(folder) / "run"),
            "batch_size": batch,
            "accumulate": 1,
            "epochs": 2,
            "score_every": 2,
            # Generated images are RGB; only the first layer's cost depends on the channels.
            "data.channels": 3,
            "data.range": ("auto",),
            **{f"encoder.{name}": value for name, value in IMAGENET._asdict().items()},
            "log_every": MEASURED_STEPS,
        }
        try:
            with silent():
                lines = pretrain(change(config, changes)).read_metrics()
        except Interrupted as stopped:
            raise Interrupted(stopped.number, "stopped; nothing was saved") from None
    speeds = [line["images_per_second"] for line in lines if "loss" in line]
    memory = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None
    return float(speeds[-1]), memory
