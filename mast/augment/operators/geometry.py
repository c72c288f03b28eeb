"""Crop, flip, shear, translate and rotate, composed into one warp a view.

Every geometric operator is a 3x3 matrix that takes a position in the view after it to the position
before it; their product takes a view pixel straight to the image, which is resampled once.
Positions are normalised: (0, 0) is the top-left corner and (1, 1) the bottom-right one, of the view
as of the image: the aspect ratio enters where a box is chosen, and nowhere else.

Legend: B samples, C channels, H and W pixels, V view pixels along an axis, P image pixels along it.
Images are in [0, 1]. A pixel whose centre lies outside the image takes the image's mean color.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

import torch
from torch import Tensor

from mast.augment.operator import (
    Operator,
    Parameters,
    Record,
    Stage,
    between,
    hide,
    operator,
    uniform,
)
from mast.augment.warp import (
    Warp,
    affine,
    box_matrices,
    center_boxes,
    resize_boxes,
    warp_affine,
)
from mast.core.transfer import to_device

CROP_TRIES = 10  # torchvision's, before it falls back to a centre crop


@dataclass(frozen=True)
class GeometricOperator(Operator):
    """An operator that moves pixels: it yields matrices, and the pipeline warps once for all."""

    axis_aligned: ClassVar[bool] = True
    keeps_frame: ClassVar[bool] = True  # the view shows nothing that it hid before
    horizontal: ClassVar[bool] = False  # a view and a mirrored one show the sum of two magnitudes
    bicubic = False  # how pixels are interpolated where it crops

    @abstractmethod
    def matrices(self, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        """matrices_B33: positions (x, y, 1) after the operator to those before it, normalised.

        `aspect_B`, width / height of the original images, also sets the device.
        """

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        count, side = len(images_BCHW), images_BCHW.shape[-1]
        square_B = torch.ones(count, device=images_BCHW.device)
        size_B2 = torch.full((count, 2), side)
        matrices_B33 = self.matrices(parameters, square_B)
        if not self.axis_aligned:
            step_B2 = torch.ones(count, 2)
            return warp_affine(images_BCHW, size_B2, matrices_B33, side, step_B2, size_B2)
        bounded_B = torch.full((count,), self.keeps_frame, device=images_BCHW.device)
        return resize_boxes(images_BCHW, size_B2, matrices_B33, side, bounded_B, self.bicubic)

    @classmethod
    def difference(cls, change_BT: Tensor, records: Sequence[Record]) -> Tensor:
        difference_BT = super().difference(change_BT, records)
        return hide(difference_BT, one_mirrored(records)) if cls.horizontal else difference_BT


@operator("random_resized_crop", "position", Stage.WARP,
          within={"scale": (0, 1), "ratio": (0.01, 100)})  # fmt: skip
class RandomResizedCrop(GeometricOperator):
    """Crop a random box of the original image and resize it to the view.

    The box has a share `scale` of the area and a ratio drawn log-uniformly from `ratio`; of ten
    candidates the first that fits in the image is taken, else the largest centred box of an allowed
    ratio. Parameters are drawn without the image, so all candidates are stored, and one is chosen
    by the aspect ratio.

    Args:
        scale: Range of the share of the image's area; by default .08 to 1, or .2 to 1 up to 96 px.
        ratio: Range of width / height of the box.
        bicubic: Whether pixels are interpolated by cubics, in views without a crop, too, where
            nothing is turned or sheared; bilinearly by default.

    Reference: torchvision `RandomResizedCrop.get_params`, without its rounding to whole pixels.
    """

    probability: float = 1.0
    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    bicubic: bool = False

    @property
    def range_of_area(self) -> tuple[float, float]:
        """Smallest and largest share of the image's area."""
        return self.scale or ((0.2, 1.0) if self.size <= 96 else (0.08, 1.0))

    def magnitudes(self) -> dict[str, Any]:
        return super().magnitudes() | {"scale": self.range_of_area}

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        tries = n * CROP_TRIES
        log_ratio = uniform(tries, (log(self.ratio[0]), log(self.ratio[1])), generator)
        return {
            "area": uniform(tries, self.range_of_area, generator).view(n, CROP_TRIES),
            "ratio": log_ratio.exp().view(n, CROP_TRIES),
            "left": uniform(n, (0.0, 1.0), generator),
            "top": uniform(n, (0.0, 1.0), generator),
            "narrowest": torch.tensor(self.ratio[0]).expand(n),
            "widest": torch.tensor(self.ratio[1]).expand(n),
        }

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        low, high = self.range_of_area
        area = between(magnitude, (high, low), parameters["area"])
        return parameters | {"area": area, "ratio": torch.ones_like(parameters["ratio"])}

    def matrices(self, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        return box_matrices(crop_boxes(parameters, aspect_B))

    @classmethod
    def effect(cls, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        left_B, top_B, width_B, height_B = crop_boxes(parameters, aspect_B).unbind(1)
        *_, whole_width_B, whole_height_B = center_boxes(aspect_B).unbind(1)
        area_B = width_B * height_B / (whole_width_B * whole_height_B)
        center = [left_B + width_B / 2 - 0.5, top_B + height_B / 2 - 0.5]
        return torch.stack([*center, area_B.log() / 2], dim=1)

    @classmethod
    def difference(cls, change_BT: Tensor, records: Sequence[Record]) -> Tensor:
        """Of the centre and half the log of the area, as the views show them.

        Two mirrored views show x the other way round; of one that is mirrored and one that is not,
        no view shows which is which.
        """
        x_B1, rest_B2 = change_BT.split((1, 2), dim=1)
        first_B, second_B = map(mirrored, records)
        both_B1 = (first_B & second_B).to(x_B1.device, non_blocking=True)[:, None]
        x_B1 = hide(torch.where(both_B1, -x_B1, x_B1), one_mirrored(records))
        return torch.cat([x_B1, rest_B2], dim=1)


@operator("horizontal_flip", "orientation", Stage.WARP)
class HorizontalFlip(GeometricOperator):
    """Mirror left and right."""

    def matrices(self, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        return affine(aspect_B, xx=-1.0, x=1.0)

    @classmethod
    def difference(cls, change_BT: Tensor, records: Sequence[Record]) -> Tensor:
        """Whether the views differ; which of them is the mirrored one no view shows."""
        return change_BT.abs()


@dataclass(frozen=True)
class Shear(GeometricOperator):
    """Shift lines of pixels in proportion to their distance from the top-left corner.

    Args:
        shear: Range of the shift at the far side, as a share of the side.

    Reference: torchvision `RandAugment`, "ShearX" and "ShearY".
    """

    axis_aligned: ClassVar[bool] = False
    keeps_frame: ClassVar[bool] = False
    horizontal: ClassVar[bool] = True
    entry: ClassVar[str]  # of the matrix

    shear: tuple[float, float] = (-0.3, 0.3)

    def matrices(self, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        return affine(aspect_B, **{self.entry: parameters["shear"]})


@operator("shear_x", "orientation", Stage.WARP, entry="xy", drawn={"shear": 0.0}, two_sided=True)
class ShearX(Shear):
    """Shift rows to the left where positive."""


@operator("shear_y", "orientation", Stage.WARP, entry="yx", drawn={"shear": 0.0}, two_sided=True)
class ShearY(Shear):
    """Shift columns up where positive."""


@dataclass(frozen=True)
class Translate(GeometricOperator):
    """Move the content along one axis.

    Args:
        shift: Range of the shift, as a share of the side.

    Reference: torchvision `RandAugment`, "TranslateX" and "TranslateY", without its rounding to
        whole pixels.
    """

    keeps_frame: ClassVar[bool] = False
    axis: ClassVar[str]

    shift: tuple[float, float] = (-0.45, 0.45)

    def matrices(self, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        return affine(aspect_B, **{self.axis: -parameters["shift"]})


@operator("translate_x", "position", Stage.WARP, axis="x",
          drawn={"shift": 0.0}, two_sided=True, within={"shift": (-1, 1)},
          horizontal=True)  # fmt: skip
class TranslateX(Translate):
    """Move the content to the right where positive."""


@operator("translate_y", "position", Stage.WARP, axis="y",
          drawn={"shift": 0.0}, two_sided=True, within={"shift": (-1, 1)})  # fmt: skip
class TranslateY(Translate):
    """Move the content down where positive."""


@operator("rotate", "orientation", Stage.WARP, drawn={"angle": 0.0}, two_sided=True)
class Rotate(GeometricOperator):
    """Turn about the centre, counter-clockwise where positive.

    Args:
        angle: Range in degrees.

    Reference: torchvision `F.rotate`.
    """

    axis_aligned: ClassVar[bool] = False
    keeps_frame: ClassVar[bool] = False

    angle: tuple[float, float] = (-30.0, 30.0)

    def matrices(self, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        radians_B = torch.deg2rad(parameters["angle"])
        cos_B, sin_B = radians_B.cos(), radians_B.sin()
        return affine(
            aspect_B,
            xx=cos_B,
            xy=-sin_B,
            x=0.5 - 0.5 * cos_B + 0.5 * sin_B,
            yx=sin_B,
            yy=cos_B,
            y=0.5 - 0.5 * sin_B - 0.5 * cos_B,
        )

    @classmethod
    def effect(cls, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        return torch.deg2rad(parameters["angle"])[:, None]

    @classmethod
    def difference(cls, change_BT: Tensor, records: Sequence[Record]) -> Tensor:
        """Sine and cosine of the turn; a view and a mirrored one show the sum of the angles."""
        angle_B2 = torch.cat([change_BT.sin(), change_BT.cos() - 1], dim=1)
        return hide(angle_B2, one_mirrored(records))


def mirrored(record: Record) -> Tensor:
    """bool (B,): which views were flipped; a flip acts after the crop and before all else."""
    return record.applied(HorizontalFlip.name)


def one_mirrored(records: Sequence[Record]) -> Tensor:
    """bool (B,): whether one of two views was flipped and the other was not."""
    first, second = records
    return mirrored(first) ^ mirrored(second)


def crop_boxes(parameters: Parameters, aspect_B: Tensor) -> Tensor:
    """Choose the first candidate box that fits in each image, or the centred fallback.

    Args:
        parameters: area and ratio (B, tries), left and top (B,), all shares; narrowest and widest
            (B,), the range of width / height of the fallback.
        aspect_B: Width / height of the original images.

    Returns:
        boxes_B4: left, top, width, height as shares of the image's width and height.
    """
    device = aspect_B.device
    moved = {key: to_device(values.float(), device) for key, values in parameters.items()}
    width_BT = (moved["area"] * moved["ratio"] / aspect_B[:, None]).sqrt()
    height_BT = (moved["area"] / moved["ratio"] * aspect_B[:, None]).sqrt()
    fits_BT = (width_BT <= 1) & (height_BT <= 1)
    first_B1 = fits_BT.float().argmax(1, keepdim=True)
    fits_B = fits_BT.gather(1, first_B1)[:, 0]
    allowed_B = aspect_B.clamp(moved["narrowest"], moved["widest"])
    width_B = torch.where(
        fits_B, width_BT.gather(1, first_B1)[:, 0], (allowed_B / aspect_B).clamp(max=1.0)
    )
    height_B = torch.where(
        fits_B, height_BT.gather(1, first_B1)[:, 0], (aspect_B / allowed_B).clamp(max=1.0)
    )
    left_B = torch.where(fits_B, moved["left"], 0.5) * (1 - width_B)
    top_B = torch.where(fits_B, moved["top"], 0.5) * (1 - height_B)
    return torch.stack([left_B, top_B, width_B, height_B], dim=1)


def compose(operators: Sequence[GeometricOperator], record: Record, aspect_B: Tensor) -> Warp:
    """Multiply the matrices of the operators, in their order, that each sample drew.

    Where no crop was drawn, the view is the centre of the image. The matrices are on the device of
    `aspect_B`, width / height of the original images.
    """
    device = aspect_B.device
    boxes_B4 = center_boxes(aspect_B)
    extent_B2 = boxes_B4[:, 2:]
    aligned_B = torch.ones(len(record), dtype=torch.bool, device=record.applied_BK.device)
    bounded_B = record.applied(RandomResizedCrop.name)
    matrices_B33 = box_matrices(boxes_B4)
    bicubic = False
    for each in operators:
        applied_B = record.applied(each.name)
        drawn_B33 = each.matrices(record.parameters[each.name], aspect_B)
        where_B11 = applied_B.to(device, non_blocking=True)[:, None, None]
        if isinstance(each, RandomResizedCrop):
            matrices_B33 = torch.where(where_B11, drawn_B33, matrices_B33)
            extent_B2 = torch.stack([matrices_B33[:, 0, 0], matrices_B33[:, 1, 1]], dim=1)
            bicubic = each.bicubic
        else:
            matrices_B33 = torch.where(where_B11, matrices_B33 @ drawn_B33, matrices_B33)
        if not each.axis_aligned:
            aligned_B = aligned_B & ~applied_B
        if not each.keeps_frame:
            bounded_B = bounded_B & ~applied_B
    return Warp(matrices_B33, extent_B2, aligned_B, bounded_B, bicubic)
