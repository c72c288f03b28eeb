"""What a run learns from: batches of canvases, and what is known of the images.

The order of batches is a pure function of seed, epoch and rank.

Legend: N images, B batch of one rank.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from mast.core.canvases import Canvases
from mast.core.errors import UserError
from mast.core.prefetch import Prefetcher
from mast.core.reading import Reading
from mast.data.canvas import CanvasSet, ResidentSet


@dataclass(frozen=True)
class Batch:
    """The canvases of one step.

    Attributes:
        canvases: B images, pinned for a GPU, or on the device of a resident set.
        index_B: int64, their indices in the set.
        label_B: int64, their classes, where the set has one kind of labels.
    """

    canvases: Canvases
    index_B: Tensor
    label_B: Tensor | None = None


class Feed(ABC):
    """Shuffled batches, all ranks together those of one.

    Args:
        name: What the user called the set.
        images: How many it has.
        batch_size: The global batch, all ranks together.
        world_size: Number of processes.

    Attributes:
        fingerprint: Hash of the images and their order.
        skipped: Reason by name of every broken file that was left out.
        classes: Names of classes by task; empty where there are no labels.
        reading: How the files are read.
        steps_per_epoch: Batches of an epoch; what does not fill one is left out.
        broken: Images that this process found broken since it began; others took their places.

    Raises:
        UserError: The set is smaller than one batch, or the ranks cannot share it equally.
    """

    counts_broken = False  # whether images may be found broken while a run trains
    fingerprint: str
    skipped: Mapping[str, str]
    classes: Mapping[str, tuple[str, ...]]
    reading: Reading

    def __init__(self, name: str, images: int, batch_size: int, world_size: int) -> None:
        if batch_size < 1 or batch_size % world_size:
            raise UserError(
                f"a batch of {batch_size} cannot be shared by {world_size} processes: set "
                f"batch_size to a multiple of {world_size}."
            )
        if images < batch_size:
            raise UserError(
                f"{name} has {images} images, fewer than one batch of {batch_size}: set "
                f"batch_size to {images} or less."
            )
        self.name = name
        self.images = images
        self.batch_size = batch_size
        self.world_size = world_size
        self.steps_per_epoch = images // batch_size
        self.broken = 0

    def __len__(self) -> int:
        return self.images

    @abstractmethod
    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of one epoch.

        Closing the iterator early, or dropping it, ends the background threads.

        Args:
            epoch: Which epoch, from 0.
            start_step: The first step to yield: a resumed run skips those it has done.

        Yields:
            One batch a step. What fails in the background is raised here.
        """

    @abstractmethod
    def watched(self) -> CanvasSet:
        """Images by which a run is watched while it trains."""

    @property
    def place(self) -> Any:
        """What a checkpoint keeps of the order beside the step; None where that is all."""
        return None

    @place.setter
    def place(self, saved: Any) -> None:
        if saved is not None:
            raise ValueError(f"this feed saves no position, got {saved}")

    def onto(self, device: torch.device, limit_gb: float) -> None:  # noqa: B027  # most cannot
        """Keep the images in a device's memory, where they are known to fit.

        Args:
            device: The device.
            limit_gb: The most they may take.
        """


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
