"""Resampling: from a view's matrix and the image to the view's pixels, without aliasing.

Two ways to the same end. Where the matrix only scales, mirrors and moves, each axis is a small
matrix of antialias weights and the view is two batched products, exact for any shrink factor. Where
it also turns or shears, the image is first low-passed along each axis by the shrink factor, then
sampled bilinearly.

Legend: B samples, C channels, V view pixels along an axis, P image pixels along it. Images are in
[0, 1]. A pixel whose centre lies outside the image takes the image's mean colour.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mast.augment.operator import Step
from mast.core.transfer import to_device


@dataclass(frozen=True)
class Warp:
    """Where each sample's view lies in its image; best on the CPU, where kernels are chosen.

    Args:
        matrices_B33: From the view to the image, normalised: 0 to 1 along each axis.
        extent_B2: Width and height, as shares of the image's, of what fills the view before it is
            turned, sheared or moved.
        aligned_B: bool, neither turned nor sheared.
        bounded_B: bool, only pixels of the box count, as after a crop.
        bicubic: Whether what is neither turned nor sheared is resampled by cubics.
    """

    matrices_B33: Tensor
    extent_B2: Tensor
    aligned_B: Tensor
    bounded_B: Tensor
    bicubic: bool = False

    def __getitem__(self, samples: slice) -> "Warp":
        return Warp(
            self.matrices_B33[samples],
            self.extent_B2[samples],
            self.aligned_B[samples],
            self.bounded_B[samples],
            self.bicubic,
        )


def affine(
    like_B: Tensor,
    *,
    xx: Tensor | float = 1.0,
    xy: Tensor | float = 0.0,
    x: Tensor | float = 0.0,
    yx: Tensor | float = 0.0,
    yy: Tensor | float = 1.0,
    y: Tensor | float = 0.0,
) -> Tensor:
    """Assemble matrices_B33 = [[xx, xy, x], [yx, yy, y], [0, 0, 1]] on the device of `like_B`."""
    matrices_B33 = torch.zeros(len(like_B), 3, 3, device=like_B.device)
    entries = (xx, xy, x, yx, yy, y, 0.0, 0.0, 1.0)
    for place_B, entry in zip(matrices_B33.flatten(1).unbind(1), entries, strict=True):
        if isinstance(entry, Tensor):
            place_B.copy_(entry, non_blocking=True)
        elif entry:
            place_B.fill_(entry)
    return matrices_B33


def box_matrices(boxes_B4: Tensor) -> Tensor:
    """Matrices_B33 from a view to its box (left, top, width, height as shares of the image)."""
    left, top, width, height = boxes_B4.unbind(1)
    return affine(left, xx=width, x=left, yy=height, y=top)


def center_boxes(aspect_B: Tensor, fraction: float = 1.0) -> Tensor:
    """Boxes_B4 of the centred square with this share of the short side, by width / height."""
    width_B = (1 / aspect_B).clamp(max=1.0) * fraction
    height_B = aspect_B.clamp(max=1.0) * fraction
    return torch.stack([(1 - width_B) / 2, (1 - height_B) / 2, width_B, height_B], dim=1)


def planar(canvas_BHWC: Tensor) -> Tensor:
    """Turn uint8 pixels (B, H, W, C) into float32 planes (B, C, H, W) in [0, 1]."""
    return canvas_BHWC.permute(0, 3, 1, 2).contiguous().float().mul_(1 / 255)


def resize_boxes(
    images_BCPP: Tensor,
    matrices_B33: Tensor,
    size: int,
    bounded_B: Tensor,
    bicubic: bool = False,
) -> Tensor:
    """Resample axis-aligned boxes exactly, with antialiasing.

    Args:
        images_BCPP: Float32 square images in [0, 1].
        matrices_B33: View to image, normalised, without rotation or shear.
        size: Side of the view in pixels.
        bounded_B: bool; True where only pixels of the box count, as after a crop.
        bicubic: Whether weights are cubics, which may be negative, instead of triangles.

    Returns:
        images_BCVV: Float32 views in [0, 1].

    Reference: torchvision `F.resize(antialias=True)`, which are Pillow's filters.
    """
    pixels = images_BCPP.shape[-1]
    along_x, inside_x = _axis_weights(
        matrices_B33[:, 0, 0], matrices_B33[:, 0, 2], size, pixels, bounded_B, bicubic
    )
    along_y, inside_y = _axis_weights(
        matrices_B33[:, 1, 1], matrices_B33[:, 1, 2], size, pixels, bounded_B, bicubic
    )
    views = separable(images_BCPP, along_y, along_x)
    return _fill(views, images_BCPP, inside_y[:, :, None] & inside_x[:, None, :])


def warp_affine(images_BCPP: Tensor, matrices_B33: Tensor, size: int, extent_B2: Tensor) -> Tensor:
    """Resample under any affine map: low-pass by the shrink factor, then bilinear.

    Args:
        images_BCPP: Float32 square images in [0, 1].
        matrices_B33: View to image, normalised.
        size: Side of the view in pixels.
        extent_B2: Width and height of the box that shrinks to the view, as shares of the image's.

    Returns:
        images_BCVV: Float32 views in [0, 1].
    """
    pixels = images_BCPP.shape[-1]
    width_B, height_B = (extent_B2 * (pixels / size)).unbind(1)
    images = separable(images_BCPP, _low_pass(height_B, pixels), _low_pass(width_B, pixels))
    centers_V = (torch.arange(size, device=images.device) + 0.5) / size
    x_B = matrices_B33[:, 0, :, None, None]
    y_B = matrices_B33[:, 1, :, None, None]
    x_BVV = x_B[:, 0] * centers_V + x_B[:, 1] * centers_V[:, None] + x_B[:, 2]
    y_BVV = y_B[:, 0] * centers_V + y_B[:, 1] * centers_V[:, None] + y_B[:, 2]
    inside_BVV = (x_BVV >= 0) & (x_BVV <= 1) & (y_BVV >= 0) & (y_BVV <= 1)
    grid_BVV2 = torch.stack([x_BVV, y_BVV], dim=3).mul_(2).sub_(1)
    views = functional.grid_sample(images, grid_BVV2, padding_mode="border", align_corners=False)
    return _fill(views, images_BCPP, inside_BVV)


def render(canvas_BHWC: Tensor, warp: Warp, size: int) -> Tensor:
    """Resample every sample by the cheapest way that its matrix allows.

    Args:
        canvas_BHWC: uint8 square canvases.
        warp: The samples' matrices.
        size: Side of the view in pixels.

    Returns:
        images_BCHW: Float32 in [0, 1].
    """
    device = canvas_BHWC.device
    matrices_B33, extent_B2 = (
        to_device(numbers, device) for numbers in (warp.matrices_B33, warp.extent_B2)
    )
    images = torch.empty(len(canvas_BHWC), canvas_BHWC.shape[3], size, size, device=device)
    straight, turned = warp.aligned_B.nonzero()[:, 0], (~warp.aligned_B).nonzero()[:, 0]
    if len(straight):
        index = straight.to(device, non_blocking=True)
        bounded = warp.bounded_B[straight].to(device, non_blocking=True)
        source = planar(canvas_BHWC.index_select(0, index))
        views = resize_boxes(source, matrices_B33[index], size, bounded, warp.bicubic)
        images.index_copy_(0, index, views)
    if len(turned):
        index = turned.to(device, non_blocking=True)
        source = planar(canvas_BHWC.index_select(0, index))
        views = warp_affine(source, matrices_B33[index], size, extent_B2[index])
        images.index_copy_(0, index, views)
    return images


def compiled_steps(canvas_BHWC: Tensor, warp: Warp) -> list[Step]:
    """As `render`, by compiled kernels that read only what a view shows; on the CPU.

    Args:
        canvas_BHWC: uint8 square canvases of two pixels or more, contiguous.
        warp: The samples' matrices.

    Returns:
        What fills float32 views, two steps that share the samples.
    """
    from mast.augment import compiled

    canvas = canvas_BHWC.numpy()
    straight, turned = (index.nonzero()[:, 0] for index in (warp.aligned_B, ~warp.aligned_B))
    # scale and offset along x, then along y
    boxes_N4 = warp.matrices_B33[straight][:, [0, 0, 1, 1], [0, 2, 1, 2]]
    boxes = boxes_N4.contiguous(), warp.bounded_B[straight]
    matrices = warp.matrices_B33[turned], warp.extent_B2[turned]

    def resize(images: np.ndarray, index_N: np.ndarray, *rows: np.ndarray) -> None:
        compiled.resize_boxes(images, index_N, *rows, canvas, warp.bicubic)

    def turn(images: np.ndarray, index_N: np.ndarray, *rows: np.ndarray) -> None:
        compiled.warp_affine(images, index_N, *rows, canvas)

    return [
        Step(kernel, index.numpy(), tuple(tensor.numpy() for tensor in arguments))
        for kernel, index, arguments in (
            (resize, straight, boxes),
            (turn, turned, matrices),
        )
    ]


def separable(images_BCHW: Tensor, along_y_BVH: Tensor, along_x_BVW: Tensor) -> Tensor:
    """Apply one matrix along the columns and one along the rows of every sample."""
    batch, channels, height, width = images_BCHW.shape
    rows = torch.bmm(images_BCHW.reshape(batch, channels * height, width), along_x_BVW.mT)
    rows = rows.view(batch, channels, height, -1).transpose(1, 2).reshape(batch, height, -1)
    views = torch.bmm(along_y_BVH, rows)
    return views.view(batch, along_y_BVH.shape[1], channels, -1).transpose(1, 2).contiguous()


def _axis_weights(
    scale_B: Tensor, offset_B: Tensor, size: int, pixels: int, bounded_B: Tensor, bicubic: bool
) -> tuple[Tensor, Tensor]:
    """Antialias weights_BVP along one axis, and inside_BV: whether the centre is in the image."""
    device = scale_B.device
    steps_V = (torch.arange(size, device=device) + 0.5) / size
    center_BV = (scale_B[:, None] * steps_V + offset_B[:, None]) * pixels
    support_B = (scale_B.abs() * (pixels / size)).clamp(min=1.0)
    positions_P = torch.arange(pixels, device=device) + 0.5
    distance_BVP = (positions_P - center_BV[:, :, None]).abs_()
    distance_BVP = distance_BVP.div_(support_B[:, None, None])
    weights_BVP = _cubic(distance_BVP) if bicubic else distance_BVP.neg_().add_(1).clamp_(min=0.0)
    ends_2B = torch.stack([offset_B, offset_B + scale_B]) * pixels
    low_B = torch.where(bounded_B, ends_2B.amin(0), 0.0)
    high_B = torch.where(bounded_B, ends_2B.amax(0), float(pixels))
    # a thousandth of a pixel of slack: a box on whole pixels must not lose one to rounding
    used_BP = (positions_P >= low_B[:, None] - 1e-3) & (positions_P <= high_B[:, None] + 1e-3)
    used_BP |= ~used_BP.any(dim=1, keepdim=True)  # a box so small that no pixel's centre is inside
    weights_BVP = weights_BVP.mul_(used_BP[:, None])
    weights_BVP = weights_BVP.div_(weights_BVP.sum(2, keepdim=True).clamp_(min=1e-6))
    return weights_BVP, (center_BV >= 0) & (center_BV <= pixels)


def _cubic(distance: Tensor) -> Tensor:
    """Keys' kernel of two pixels either way, with a = -1/2 as Pillow has it (1981, Eq. 8)."""
    near = (1.5 * distance - 2.5) * distance.square() + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))


def _low_pass(shrink_B: Tensor, pixels: int) -> Tensor:
    """Triangle filters_BPP of half-width `shrink_B` pixels; the identity where it is 1 or less."""
    positions_P = torch.arange(pixels, device=shrink_B.device, dtype=torch.float32)
    distance_PP = (positions_P - positions_P[:, None]).abs_()
    weights_BPP = (1 - distance_PP / shrink_B.clamp(min=1.0)[:, None, None]).clamp_(min=0.0)
    return weights_BPP.div_(weights_BPP.sum(2, keepdim=True))


def _fill(views_BCVV: Tensor, images_BCPP: Tensor, inside_BVV: Tensor) -> Tensor:
    """Give pixels outside the image its mean colour, and clip what rounding left outside [0, 1]."""
    mean_BC11 = images_BCPP.mean(dim=(2, 3), keepdim=True)
    return torch.where(inside_BVV[:, None], views_BCVV, mean_BC11).clamp_(0.0, 1.0)
