"""Images with their objects as detectors take them, in training and in testing.

Images are uint8 (3, H, W). Targets are torchvision's: "boxes" (N, 4), "labels" (N,) from 1 as 0 is
the background, and "masks" (N, H, W) uint8 where masks are wanted. N objects of one image, B images
of this process in a batch, G of all processes, M images that can be trained on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.core.threads import prefetched
from mast.core.transfer import pinned
from mast.data.decode import BrokenImageError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from paper.annotated import Annotated, Objects, Segmentation

Target = dict[str, Tensor]

_log = logging.getLogger("mast")


@final
class ObjectBatch:
    """This process's part of a step: B images and what is to be found in each.

    No tuple and no dataclass, on purpose: in mixed precision Fabric would look into one and round
    the boxes to bfloat16, by up to four pixels of a thousand.
    """

    def __init__(self, images: list[Tensor], targets: list[Target]) -> None:
        self.images = images
        self.targets = targets


class TrainingObjects:
    """Batches of images; each is a pure function of the seed and the step.

    The images come in one shuffled order after another, across which batches may reach, and
    half of them are mirrored. Crowds are not trained on, difficult objects are, as in detectron2;
    images without an object are left out. The images of the next steps are decoded in a background
    thread. `batch_size` is G, over all processes.
    """

    def __init__(
        self, source: Annotated, *, batch_size: int, seed: int, masks: bool, flip: bool = True
    ) -> None:
        self.source = source
        self.batch_size = batch_size
        self.seed = seed
        self.masks = masks
        self.flip = flip
        self._broken: set[str] = set()
        trained_on = [~source.objects(index).crowd_N for index in range(len(source))]
        self.usable_M = np.array([at for at, some_N in enumerate(trained_on) if some_N.any()], int)
        if len(self.usable_M) == 0:
            raise UserError(
                f"none of the {len(source)} images of {source.name} has an object to train on: "
                "expected boxes that are not of crowds."
            )
        if masks:
            require_masks(source)

    def batches(self, fabric: Fabric, start: int, stop: int) -> Iterator[ObjectBatch]:
        """This process's batches of the steps from `start` until before `stop`, on the device.

        An image that cannot be decoded is logged and replaced by another.
        """
        steps = (self.batch(fabric, step) for step in range(start, stop))
        for batch in prefetched(steps):
            yield ObjectBatch(fabric.to_device(batch.images), fabric.to_device(batch.targets))

    def batch(self, fabric: Fabric, step: int) -> ObjectBatch:
        """This process's batch of one step, on the CPU, pinned where a GPU is to have it."""
        count = len(self.usable_M)
        places_G = range(step * self.batch_size, (step + 1) * self.batch_size)
        orders = {
            turn: np.random.default_rng((self.seed, turn)).permutation(self.usable_M)
            for turn in {place // count for place in places_G}
        }
        flip_G = np.random.default_rng((self.seed, step, 1)).random(self.batch_size) < 0.5
        share = self.batch_size // fabric.world_size
        first = fabric.global_rank * share
        images, targets = [], []
        for place, flipped in zip(
            places_G[first : first + share], flip_G[first : first + share], strict=True
        ):
            image_CHW, target = self._readable(orders[place // count], place % count)
            if self.flip and flipped:
                image_CHW, target = mirrored(image_CHW, target)
            images.append(pinned(image_CHW, fabric.device))
            targets.append({key: pinned(value, fabric.device) for key, value in target.items()})
        return ObjectBatch(images, targets)

    def _readable(self, order_M: np.ndarray, place: int) -> tuple[Tensor, Target]:
        """The image at a place of an order, or the next one behind it that can be decoded."""
        for index in np.roll(order_M, -place):
            try:
                return self._sample(int(index))
            except BrokenImageError as error:
                if str(error) not in self._broken:
                    self._broken.add(str(error))
                    _log.warning("%s; trained on another one in its place", error)
        raise UserError(f"none of the {len(order_M)} images of {self.source.name} can be decoded")

    def _sample(self, index: int) -> tuple[Tensor, Target]:
        objects = self.source.objects(index)
        target = as_target(self.source, index, objects.select(~objects.crowd_N), self.masks)
        return read_image(self.source, index), target


def mirrored(image_CHW: Tensor, target: Target) -> tuple[Tensor, Target]:
    """An image and its objects, left and right exchanged."""
    width = image_CHW.shape[-1]
    left_N, top_N, right_N, bottom_N = target["boxes"].unbind(dim=1)
    boxes_N4 = torch.stack([width - right_N, top_N, width - left_N, bottom_N], dim=1)
    target = {**target, "boxes": boxes_N4}
    if "masks" in target:
        target["masks"] = target["masks"].flip(-1)
    return image_CHW.flip(-1), target


def read_image(source: Annotated, index: int) -> Tensor:
    """One image at its full size, (3, H, W) uint8."""
    return torch.from_numpy(source.load(index).copy()).permute(2, 0, 1).contiguous()


def as_target(source: Annotated, index: int, objects: Objects, masks: bool) -> Target:
    """What is to be found in an image, of all its objects or some."""
    target = {
        "boxes": torch.from_numpy(objects.boxes_N4),
        "labels": torch.from_numpy(objects.labels_N) + 1,
    }
    if masks:
        size = source.size(index)
        masks_NHW = np.empty((len(objects), *size), np.uint8)
        for number, mask in enumerate(objects.masks):
            assert mask is not None, "require_masks was not called"
            try:
                masks_NHW[number] = rasterise(mask, *size)
            except (ValueError, RuntimeError) as error:  # COCO's tools raise both
                raise UserError(
                    f"the mask of object {number + 1} of {len(objects)} in {source.path(index)} "
                    f"cannot be drawn ({error}): mend it in {source.name}"
                ) from error
        target["masks"] = torch.from_numpy(masks_NHW)
    return target


def rasterise(mask: Segmentation, height: int, width: int) -> np.ndarray:
    """The pixels of a segmentation as COCO writes it, (H, W) uint8 of 0 and 1."""
    from faster_coco_eval.core import mask as tools

    if isinstance(mask, list):
        runs = tools.merge(tools.frPyObjects(mask, height, width))
    elif isinstance(mask["counts"], list):
        runs = tools.frPyObjects(mask, height, width)
    else:
        runs = mask
    pixels_HW: np.ndarray = tools.decode(runs)
    if pixels_HW.shape != (height, width):
        raise ValueError(
            f"it is of {pixels_HW.shape[0]} × {pixels_HW.shape[1]} pixels (height × width) in "
            f"an image of {height} × {width}"
        )
    return pixels_HW


def require_masks(source: Annotated) -> None:
    lacking = [
        source.identifier(index)
        for index in range(len(source))
        if any(mask is None for mask in source.objects(index).masks)
    ]
    if lacking:
        raise UserError(
            f"segmentation needs a mask for every object, but in {source.name} {len(lacking)} of "
            f"{len(source)} images have objects without, the first is {lacking[0]}. Use the "
            "protocol detection, or a set with masks such as COCO's."
        )
