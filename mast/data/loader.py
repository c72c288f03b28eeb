"""Batches of a set of canvases in shuffled order, and the feed of whatever the user names.

The order of batches is a pure function of seed, epoch and rank.

Legend: N images, B batch of one rank.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import final

import numpy as np
import torch

from mast.core.errors import UserError
from mast.core.launch import cores
from mast.core.threads import Prefetcher
from mast.data.canvas import CanvasSet, DataConfig, ResidentSet, canvas_size, open_canvas
from mast.data.feed import Batch, Feed
from mast.data.pieces import split_cut
from mast.data.shards import open_index
from mast.data.shards.stream import ShardLoader
from mast.data.source import SHARDS
from mast.data.sources import default_cache

CPU = torch.device("cpu")


@final
class Loader(Feed):
    """Shuffled batches, the next ones prepared in a background thread.

    An epoch is one permutation of the set, drawn from (seed, epoch) and cut into global batches;
    a rank takes its contiguous part of each, so all ranks together see what one alone would. What
    does not fill a batch at the end of an epoch is left out.

    Args:
        canvas_set: The images.
        batch_size: The global batch, all ranks together.
        seed: Seed of the order.
        rank: This process, from 0.
        world_size: Number of processes.
        device: Which wants the batches.

    Attributes:
        resident: The same canvases on the device that wants the batches, if they are there.

    Raises:
        UserError: If the set is smaller than one batch or the ranks cannot share it equally.
    """

    def __init__(
        self,
        canvas_set: CanvasSet,
        batch_size: int,
        seed: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device = CPU,
    ) -> None:
        assert 0 <= rank < world_size, (rank, world_size)
        super().__init__(canvas_set.name, len(canvas_set), batch_size, world_size)
        self.fingerprint = canvas_set.fingerprint
        self.skipped = canvas_set.skipped
        self.classes = {task: canvas_set.classes[task] for task in canvas_set.targets}
        self.reading = canvas_set.reading
        self.canvas_set = canvas_set
        self.seed = seed
        self.rank = rank
        self.device = device
        self.resident: ResidentSet | None = None

    def indices(self, epoch: int, step: int) -> np.ndarray:
        """This rank's samples of one step.

        Args:
            epoch: Which permutation.
            step: Which batch of it, below `steps_per_epoch`.

        Returns:
            index_B, int64.
        """
        return self._share(self._order(epoch), step)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        return Prefetcher(self._batches(epoch, start_step))

    def watched(self) -> CanvasSet:
        return self.canvas_set

    def onto(self, device: torch.device, limit_gb: float) -> None:
        self.resident = self.canvas_set.resident(device, limit_gb)

    def _batches(self, epoch: int, start_step: int) -> Iterator[Batch]:
        order_N = self._order(epoch)
        for step in range(start_step, self.steps_per_epoch):
            yield self._batch(self._share(order_N, step))

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self.seed, epoch)).permutation(len(self.canvas_set))

    def _share(self, order_N: np.ndarray, step: int) -> np.ndarray:
        share = self.batch_size // self.world_size
        first = step * self.batch_size + self.rank * share
        return order_N[first : first + share]

    def _batch(self, index_B: np.ndarray) -> Batch:
        labels = list(self.canvas_set.targets.values())
        label_B = torch.from_numpy(labels[0][index_B]) if len(labels) == 1 else None
        if self.resident is not None:
            return Batch(self.resident.batch(index_B), torch.from_numpy(index_B), label_B)
        canvases = self.canvas_set.batch(index_B).pinned(self.device)
        return Batch(canvases, torch.from_numpy(index_B), label_B)


def open_feed(
    config: DataConfig,
    view_size: int,
    batch_size: int,
    seed: int,
    *,
    rank: int,
    world_size: int,
    local: int,
    device: torch.device,
) -> Feed:
    """Opens the images of a run.

    Args:
        config: Which they are.
        view_size: Side in pixels of the views that will be cut from the canvases.
        batch_size: The global batch, all ranks together.
        seed: Of the order.
        rank: This process, from 0.
        world_size: Number of processes.
        local: How many of them share this machine's cores.
        device: Which wants the batches.

    Raises:
        UserError: There is no such set, it cannot be read, or it makes no batch.
    """
    if not config.spec.startswith(SHARDS):
        canvases = open_canvas(config, view_size, local)
        return Loader(canvases, batch_size, seed, rank=rank, world_size=world_size, device=device)
    spec, cut = split_cut(config.spec)
    if said := cut.suffix + config.cut.suffix:
        raise UserError(
            f"{spec} is read in order, each image as it lies there: give {said.strip('#')} to mast "
            "shard, which writes such images"
        )
    folder = Path(config.cache) if config.cache is not None else default_cache()
    return ShardLoader(
        open_index(config.spec, folder),
        config.canvas or canvas_size(view_size),
        batch_size,
        seed,
        rank=rank,
        world_size=world_size,
        device=device,
        width=config.shuffle,
        readers=config.readers,
        workers=config.workers or max(1, cores() // local),
        max_broken=config.max_broken,
        read=config.find_reading,
    )
