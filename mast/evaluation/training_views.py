"""Augmented views of labelled images, for the protocols that train on them.

B images of this process in a batch, G of all processes, K operators, N images in the pool.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mast.augment import Pipeline, Preset, View, draw_subsets, draw_views
from mast.core.canvases import Canvases
from mast.core.threads import prefetched

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from mast.data.canvas import CanvasSet

CROP_AND_FLIP = Preset(("random_resized_crop", "horizontal_flip"), (View(),))


class LabelledBatch(NamedTuple):
    """This process's part of a step: views in [0, 1] and the positions of their images in the pool,
    on the device; and `total`, the images of all processes, by which local sums are divided.
    """

    images_BCHW: Tensor
    positions_B: Tensor
    total: int


class TrainingViews:
    """Batches of augmented views; each is a pure function of the seed, the epoch and the step.

    As in pretraining, everything is drawn for the batch of all processes, and a process draws the
    pixels of its part. The canvases of the next steps are gathered in a background thread.

    Args:
        pool: Sets whose images are numbered one after the other; canvases may differ in size.
        positions_N: Those that are trained on.
        size: Side of the views in pixels.
        batch_size: Images of a step, over all processes.
        seed: Of order and augmentation.
        preset: Its first view is drawn.
        compose: Number of operators per image in addition to crop and flip; None for all.
        whole: Whether to leave out what does not fill a batch, unless it is the only one.
        dtype: In which the network takes images.
    """

    def __init__(
        self,
        pool: tuple[CanvasSet, ...],
        positions_N: Tensor,
        size: int,
        *,
        batch_size: int,
        seed: int,
        preset: Preset = CROP_AND_FLIP,
        compose: int | None = None,
        whole: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.pool = pool
        self.starts = np.cumsum([0, *map(len, pool)])
        self.positions_N = positions_N.numpy()
        preset = preset.of_channels(pool[0].reading.layout.channels)
        one_view = replace(preset, views=(View(preset.views[0].overrides),))
        self.pipeline = Pipeline(one_view, size)
        self.batch_size = min(batch_size, len(positions_N))
        self.seed = seed
        self.compose = compose
        self.dtype = dtype
        count = len(positions_N) / self.batch_size
        self.steps_per_epoch = math.floor(count) if whole else math.ceil(count)

    def epoch(self, fabric: Fabric, epoch: int, start: int) -> Iterator[LabelledBatch]:
        """This process's batches of an epoch (from 0), from the step `start` on."""
        order = np.random.default_rng((self.seed, epoch)).permutation(self.positions_N)
        steps = range(start, self.steps_per_epoch)
        canvases = (self._canvases(fabric, order, step) for step in steps)
        choose = None if self.compose is None else self._chosen
        for step, (own, first, last, count) in zip(steps, prefetched(canvases), strict=True):
            views = draw_views(
                self.pipeline,
                own.to(fabric.device),
                (self.seed, epoch, step),
                choose,
                start=first,
                total=count,
                dtype=self.dtype,
            )
            positions = torch.from_numpy(self._part(order, step)[first:last])
            yield LabelledBatch(views.images[0], fabric.to_device(positions), count)

    def _part(self, order: np.ndarray, step: int) -> np.ndarray:
        """The positions of all processes in a step, those of one set after those of another."""
        return np.sort(order[step * self.batch_size : (step + 1) * self.batch_size])

    def _canvases(
        self, fabric: Fabric, order: np.ndarray, step: int
    ) -> tuple[Canvases, int, int, int]:
        """This process's canvases, where its part starts and ends, and of how many."""
        part = self._part(order, step)
        count, rank, world = len(part), fabric.global_rank, fabric.world_size
        first, last = count * rank // world, count * (rank + 1) // world
        own = part[first:last]
        parts: list[Canvases] = []
        for canvas_set, start in zip(self.pool, self.starts, strict=False):
            inside = own[(own >= start) & (own < start + len(canvas_set))]
            parts.append(canvas_set.batch(inside - start))
        return Canvases.cat(parts).pinned(fabric.device), first, last, count

    def _chosen(self, count: int, generator: torch.Generator) -> Tensor:
        """Which operators may act on an image, chosen_GK: crop, flip and some of the others."""
        assert self.compose is not None
        always = [name in CROP_AND_FLIP.operators for name in self.pipeline.names]
        rest = [at for at, is_always in enumerate(always) if not is_always]
        chosen_GK = torch.tensor(always).repeat(count, 1)
        compose = min(self.compose, len(rest))
        chosen_GK[:, rest] = draw_subsets(count, len(rest), compose, generator)
        return chosen_GK
