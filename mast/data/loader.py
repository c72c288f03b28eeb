"""Batches of canvases for training, from a cached set or streamed shards.

The order of a cached set is a pure function of seed and epoch; that of shards is in
`mast.data.shards.sampler`.

Legend: N images, B batch of one rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from mast.core.canvases import Canvases
from mast.core.errors import UserError, counted
from mast.core.launch import cores
from mast.core.threads import prefetched
from mast.data.canvas import CanvasSet, DataConfig, cache_of, canvas_size, open_canvas
from mast.data.pieces import split_cut
from mast.data.shards.source import Shards
from mast.data.shards.stream import ShardStream
from mast.data.source import SHARDS


@dataclass(frozen=True)
class Batch:
    """The canvases of one step.

    Attributes:
        canvases: B images, pinned for a GPU, or on the device of a resident set.
        index_B: int64, their indices in the set.
        label_B: int64, their classes, if the set has one kind of labels.
    """

    canvases: Canvases
    index_B: Tensor
    label_B: Tensor | None = None


CPU = torch.device("cpu")


@final
class Loader:
    """Shuffled batches, prepared ahead in a background thread.

    An epoch of a cached set is a permutation drawn from (seed, epoch), cut into global batches;
    each rank takes a contiguous part of each batch, so all ranks together see what one process
    would. An incomplete batch at the end of an epoch is dropped.

    Args:
        images: A set in the cache, or shards.
        batch_size: The global batch, all ranks together.
        seed: Seed of the order.
        device: Where the batches are used.

    Attributes:
        name: The user's name of the set.
        fingerprint: Hash of the images and their order.
        skipped: Reason by name of every broken file that was skipped.
        classes: Names of classes by task; empty where there are no labels.
        reading: Mapping of file values to pixels.
        steps_per_epoch: Batches of an epoch.
        resident: The canvases on the device, if they were copied there.
    """

    def __init__(
        self,
        images: CanvasSet | ShardStream,
        batch_size: int,
        seed: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device = CPU,
    ) -> None:
        assert 0 <= rank < world_size, (rank, world_size)
        if batch_size < 1 or batch_size % world_size:
            raise UserError(
                f"batch_size: expected a multiple of {world_size}, the number of processes, got "
                f"{batch_size}"
            )
        count = len(images)
        if count < batch_size:
            most = count - count % (2 * world_size)  # at least two images per process
            lower = f"set batch_size to {most} or less, or " if most else ""
            raise UserError(
                f"{images.name} has {counted(count, 'image')}, fewer than one batch of "
                f"{batch_size}: {lower}give more images."
            )
        self.images, self.batch_size, self.seed, self.device = images, batch_size, seed, device
        self.name, self.fingerprint = images.name, images.fingerprint
        self.skipped, self.reading = images.skipped, images.reading
        self._targets = images.targets
        self.classes = {task: images.classes[task] for task in self._targets}
        self.steps_per_epoch = count // batch_size
        self.resident: Canvases | None = None
        share = batch_size // world_size
        self._part = slice(rank * share, (rank + 1) * share)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def broken(self) -> int | None:
        """Broken images found and replaced during training; None if counted before."""
        return self.images.broken if isinstance(self.images, ShardStream) else None

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of one epoch (from 0), from a step on; raises errors of the background.

        Closing the iterator early, or dropping it, ends the background threads.
        """
        return prefetched(self._batches(epoch, start_step))

    def watched(self) -> CanvasSet:
        """Images for online scores."""
        return self.images.watched() if isinstance(self.images, ShardStream) else self.images

    def onto(self, device: torch.device, limit_gb: float) -> None:
        """Copy the images to a device's memory, if they fit below a limit."""
        if isinstance(self.images, CanvasSet):
            self.resident = self.images.resident(device, limit_gb)

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        for canvases, index_B in self._canvases(epoch, start):
            labels = list(self._targets.values())
            label_B = torch.from_numpy(labels[0][index_B]) if len(labels) == 1 else None
            yield Batch(canvases.pinned(self.device), torch.from_numpy(index_B), label_B)

    def _canvases(self, epoch: int, start: int) -> Iterator[tuple[Canvases, np.ndarray]]:
        """Indices of this rank's images for each step."""
        if isinstance(self.images, ShardStream):
            place = self.batch_size, self.seed, epoch, start, self._part
            yield from self.images.batches(*place)
            return
        order_N = np.random.default_rng((self.seed, epoch)).permutation(len(self))
        for step in range(start, self.steps_per_epoch):
            index_B = order_N[step * self.batch_size : (step + 1) * self.batch_size][self._part]
            if self.resident is not None:
                yield self.resident[torch.from_numpy(index_B)], index_B
            else:
                yield self.images.batch(index_B), index_B


def open_loader(
    config: DataConfig,
    view_size: int,
    batch_size: int,
    seed: int,
    *,
    rank: int,
    world_size: int,
    local: int,
    device: torch.device,
) -> Loader:
    """Opens the images of a run.

    Args:
        view_size: Side in pixels of the views to be cut from the canvases.
        batch_size: The global batch size, over all ranks.
        seed: Seed of the order.
        local: Number of processes that share this machine's cores.
        device: Device that uses the batches.
    """
    images: CanvasSet | ShardStream
    if config.spec.startswith(SHARDS):
        spec, cut = split_cut(config.spec)
        if options := (cut.suffix + config.cut.suffix).strip("#"):
            raise UserError(
                f"{options}: shards are streamed, so {spec} cannot be tiled or filtered; do it "
                f"while writing them: mast shard 'FOLDER#{options}'"
            )
        side, workers = config.canvas or canvas_size(view_size), max(1, cores() // local)
        source = Shards(spec, cache_of(config))
        images = ShardStream(source, config, side, config.workers or workers)
    else:
        images = open_canvas(config, view_size, local)
    return Loader(images, batch_size, seed, rank=rank, world_size=world_size, device=device)
