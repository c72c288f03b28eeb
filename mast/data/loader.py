"""Batches of canvases in an order that is a pure function of seed, epoch and rank.

Legend: N images, B batch of one rank, H = W side of the canvas, C channels.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from mast.core.ahead import ahead
from mast.core.errors import UserError
from mast.core.transfer import pinned
from mast.data.canvas import CanvasSet, ResidentSet

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Batch:
    """The canvases of one step.

    Attributes:
        canvas_BHWC: uint8, pinned for a GPU, or on the device of a resident set.
        aspect_B: float32, width / height of the originals; on the CPU.
        index_B: int64, their indices in the set.
    """

    canvas_BHWC: Tensor
    aspect_B: Tensor
    index_B: Tensor


@final
class Loader:
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
        if batch_size < 1 or batch_size % world_size:
            raise UserError(
                f"a batch of {batch_size} cannot be shared by {world_size} processes: set "
                f"batch_size to a multiple of {world_size}."
            )
        if len(canvas_set) < batch_size:
            raise UserError(
                f"{canvas_set.name} has {len(canvas_set)} images, fewer than one batch of "
                f"{batch_size}: set batch_size to {len(canvas_set)} or less."
            )
        self.canvas_set = canvas_set
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self.resident: ResidentSet | None = None
        self.steps_per_epoch = len(canvas_set) // batch_size

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
        """The batches of one epoch.

        Closing the iterator early, or dropping it, ends the background thread.

        Args:
            epoch: Which epoch, from 0.
            start_step: The first step to yield: a resumed run skips those it has done.

        Yields:
            One batch a step. What fails in the background is raised here.
        """
        return ahead(self._batches(epoch, start_step))

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
        if self.resident is not None:
            return Batch(*self.resident.batch(index_B), torch.from_numpy(index_B))
        canvas_BHWC, aspect_B = self.canvas_set.batch(index_B)
        return Batch(pinned(canvas_BHWC, self.device), aspect_B, torch.from_numpy(index_B))
