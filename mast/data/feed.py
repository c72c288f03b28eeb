"""What a run learns from: batches of canvases, and what is known of the images.

Legend: B batch of one rank.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mast.core.canvases import Canvases
from mast.core.errors import UserError
from mast.core.reading import Reading
from mast.data.canvas import CanvasSet


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
