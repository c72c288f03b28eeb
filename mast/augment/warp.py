"""Resampling: from a view's matrix and the image to the view's pixels, without aliasing.

Two ways to the same end. Where the matrix only scales, mirrors and moves, each axis is a small
matrix of antialias weights and the view is two batched products, exact for any shrink factor. Where
it also turns or shears, the image is first shrunk along each axis by the view's shrink factor, then
sampled bilinearly.

The images of a batch differ in size. Here they are padded to the largest one; the kernels in
`compiled` and `fused` read each where it lies.

Legend: B samples, C channels, V view pixels along an axis, P image pixels along it, H and W pixels
of the largest image. Images are in [0, 1]. A pixel whose centre lies outside the image takes the
image's mean color.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mast.core.canvases import Canvases
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
        bicubic: Whether to use bicubic resampling without rotation or shear.
    """

    matrices_B33: Tensor
    extent_B2: Tensor
    aligned_B: Tensor
    bounded_B: Tensor
    bicubic: bool = False

    def __getitem__(self, samples: slice | Tensor) -> "Warp":
        return self._each(lambda values: values[samples])

    def repeated(self, count: int) -> "Warp":
        """Every sample's warp `count` times in a row."""
        return self._each(lambda values: values.repeat_interleave(count, dim=0))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Warp":
        every = (self.matrices_B33, self.extent_B2, self.aligned_B, self.bounded_B)
        matrices, extent, aligned, bounded = map(change, every)
        return Warp(matrices, extent, aligned, bounded, self.bicubic)


ENTRIES = {"xx": (0, 0), "xy": (0, 1), "x": (0, 2), "yx": (1, 0), "yy": (1, 1), "y": (1, 2)}


def affine(like_B: Tensor, **entries: Tensor | float) -> Tensor:
    """Assemble matrices_B33 = [[xx, xy, x], [yx, yy, y], [0, 0, 1]] on the device of `like_B`.

    Entries that are left out are those of the identity.
    """
    matrices_B33 = torch.eye(3, device=like_B.device).repeat(len(like_B), 1, 1)
    for name, value in entries.items():
        row, column = ENTRIES[name]
        matrices_B33[:, row, column] = value
    return matrices_B33


def box_matrices(boxes_B4: Tensor) -> Tensor:
    """Matrices_B33 from a view to its box (left, top, width, height as shares of the image)."""
    left, top, width, height = boxes_B4.unbind(1)
    return affine(left, xx=width, x=left, yy=height, y=top)


def center_boxes(aspect_B: Tensor) -> Tensor:
    """Boxes_B4 of the largest centred square, by width / height."""
    width_B, height_B = (1 / aspect_B).clamp(max=1.0), aspect_B.clamp(max=1.0)
    return torch.stack([(1 - width_B) / 2, (1 - height_B) / 2, width_B, height_B], dim=1)


def padded(canvases: Canvases) -> Tensor:
    """Images as float32 planes (B, C, H, W) in [0, 1], the last rows and columns repeated."""
    device = canvases.device
    height, width = canvases.size_B2.amax(0).tolist()
    start_B11 = to_device(canvases.start_B, device)[:, None, None]
    size_B2 = to_device(canvases.size_B2, device)
    height_B11, width_B11 = size_B2[:, :, None, None].unbind(1)
    y_BH1 = torch.arange(height, device=device)[:, None].minimum(height_B11 - 1)
    x_B1W = torch.arange(width, device=device).minimum(width_B11 - 1)
    at_BHW = start_B11 + 3 * (y_BH1 * width_B11 + x_B1W)
    images_CBHW = torch.stack([canvases.values_T[at_BHW + channel] for channel in range(3)])
    return images_CBHW.transpose(0, 1).float().mul_(1 / 255)


def resize_boxes(
    images_BCHW: Tensor,
    size_B2: Tensor,
    matrices_B33: Tensor,
    size: int,
    bounded_B: Tensor,
    bicubic: bool = False,
) -> Tensor:
    """Resample axis-aligned boxes exactly, with antialiasing.

    Args:
        images_BCHW: Float32 images in [0, 1], padded to one size.
        size_B2: Height and width of each without padding, on the CPU.
        matrices_B33: View to image, normalised, without rotation or shear.
        size: Side of the view in pixels, V.
        bounded_B: bool; True where only pixels of the box count, as after a crop.
        bicubic: Whether weights are cubics, which may be negative, instead of triangles.

    Reference: torchvision `F.resize(antialias=True)`, which are Pillow's filters.
    """
    pixels, size_B2 = images_BCHW.shape[2:], to_device(size_B2, images_BCHW.device)
    (along_y, inside_y), (along_x, inside_x) = (
        _axis_weights(
            matrices_B33[:, 1 - axis, 1 - axis], matrices_B33[:, 1 - axis, 2], size,
            pixels[axis], size_B2[:, axis], bounded_B, bicubic,
        )
        for axis in range(2)
    )  # fmt: skip
    views = separable(images_BCHW, along_y, along_x)
    return _fill(views, images_BCHW, size_B2, inside_y[:, :, None] & inside_x[:, None, :])


def shrunk(canvases: Canvases, warp: Warp, size: int) -> tuple[Tensor, Tensor]:
    """Size to shrink images to before rotation, along x and y; on the CPU.

    All kernels take it from here, as the number of pixels jumps at whole numbers, where a quotient
    may round either way.

    Returns:
        How many pixels of an image one of the smaller image is wide and high, (B, 2), at least 1,
        and how many pixels that has, (B, 2), int64; the last may be cut off.
    """
    pixels_B2 = canvases.size_B2.flip(1)
    step_B2 = (warp.extent_B2 * pixels_B2 / size).clamp(min=1.0)
    return step_B2, (pixels_B2 / step_B2).ceil().long()


def warp_affine(
    images_BCHW: Tensor,
    size_B2: Tensor,
    matrices_B33: Tensor,
    size: int,
    step_B2: Tensor,
    count_B2: Tensor,
) -> Tensor:
    """Resample under any affine map: shrink by the view's shrink factor, then bilinear.

    Arguments are as of `resize_boxes`, and step_B2 and count_B2 as of `shrunk`, on the CPU.
    """
    along_y, height_B = _low_pass(step_B2[:, 1], count_B2[:, 1], size_B2[:, 0], images_BCHW, 2)
    along_x, width_B = _low_pass(step_B2[:, 0], count_B2[:, 0], size_B2[:, 1], images_BCHW, 3)
    size_B2 = to_device(size_B2, images_BCHW.device)
    images = separable(images_BCHW, along_y, along_x)
    centers_V = (torch.arange(size, device=images.device) + 0.5) / size
    x_B = matrices_B33[:, 0, :, None, None]
    y_B = matrices_B33[:, 1, :, None, None]
    x_BVV = x_B[:, 0] * centers_V + x_B[:, 1] * centers_V[:, None] + x_B[:, 2]
    y_BVV = y_B[:, 0] * centers_V + y_B[:, 1] * centers_V[:, None] + y_B[:, 2]
    inside_BVV = (x_BVV >= 0) & (x_BVV <= 1) & (y_BVV >= 0) & (y_BVV <= 1)
    grid_BVV2 = torch.stack(
        [
            _between_centres(x_BVV, size_B2[:, 1] / width_B[0], width_B[1]) / images.shape[3],
            _between_centres(y_BVV, size_B2[:, 0] / height_B[0], height_B[1]) / images.shape[2],
        ],
        dim=3,
    )
    views = functional.grid_sample(
        images, grid_BVV2.mul_(2).sub_(1), padding_mode="border", align_corners=False
    )
    return _fill(views, images_BCHW, size_B2, inside_BVV)


def _between_centres(share_BVV: Tensor, pixels_B: Tensor, count_B: Tensor) -> Tensor:
    """Shares of the image in pixels, up to the outermost centres, behind which is padding."""
    place_BVV = (share_BVV * pixels_B[:, None, None]).clamp(min=0.5)
    return place_BVV.minimum(count_B[:, None, None] - 0.5)


def render(canvases: Canvases, warp: Warp, images: Tensor) -> None:
    """Draw every sample, float32 (B, 3, V, V), by the cheapest way that its matrix allows."""
    device, size = canvases.device, images.shape[3]
    for turned, samples_B in ((False, warp.aligned_B), (True, ~warp.aligned_B)):
        chosen = samples_B.nonzero()[:, 0]
        if len(chosen) == 0:
            continue
        some, own = canvases[chosen], warp[chosen]
        padded_BCHW, matrices_B33 = padded(some), to_device(own.matrices_B33, device)
        if turned:
            smaller = shrunk(some, own, size)
            views = warp_affine(padded_BCHW, some.size_B2, matrices_B33, size, *smaller)
        else:
            bounded_B = to_device(own.bounded_B, device)
            views = resize_boxes(
                padded_BCHW, some.size_B2, matrices_B33, size, bounded_B, own.bicubic
            )
        images.index_copy_(0, chosen.to(device, non_blocking=True), views)


def compiled(canvases: Canvases, warp: Warp, size: int) -> Callable[[np.ndarray, slice], None]:
    """What draws some of the views as `render` does, into float32, reading only what they show.

    It is for canvases on the CPU.
    """
    from mast.augment.compiled import resample

    values_T, *arguments = (
        tensor.contiguous().numpy()
        for tensor in (
            canvases.values_T,
            *(warp.matrices_B33, warp.aligned_B, warp.bounded_B),
            *shrunk(canvases, warp, size),
            *(canvases.start_B, canvases.size_B2),
        )
    )

    def draw(images_BCVV: np.ndarray, some: slice) -> None:
        own = (argument[some] for argument in arguments)
        resample.warp(images_BCVV, values_T, *own, warp.bicubic)

    return draw


def separable(images_BCHW: Tensor, along_y_BVH: Tensor, along_x_BVW: Tensor) -> Tensor:
    """Apply one matrix along the columns and one along the rows of every sample."""
    batch, channels, height, width = images_BCHW.shape
    rows = torch.bmm(images_BCHW.reshape(batch, channels * height, width), along_x_BVW.mT)
    rows = rows.view(batch, channels, height, -1).transpose(1, 2).reshape(batch, height, -1)
    views = torch.bmm(along_y_BVH, rows)
    return views.view(batch, along_y_BVH.shape[1], channels, -1).transpose(1, 2).contiguous()


def _axis_weights(
    scale_B: Tensor, offset_B: Tensor, size: int, most: int, pixels_B: Tensor, bounded_B: Tensor,
    bicubic: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Antialias weights_BVP along one axis, and inside_BV: whether the centre is in the image."""
    device = scale_B.device
    steps_V = (torch.arange(size, device=device) + 0.5) / size
    center_BV = (scale_B[:, None] * steps_V + offset_B[:, None]) * pixels_B[:, None]
    support_B = (scale_B.abs() * pixels_B / size).clamp(min=1.0)
    positions_P = torch.arange(most, device=device) + 0.5
    distance_BVP = (positions_P - center_BV[:, :, None]).abs_()
    distance_BVP = distance_BVP.div_(support_B[:, None, None])
    weights_BVP = _cubic(distance_BVP) if bicubic else distance_BVP.neg_().add_(1).clamp_(min=0.0)
    ends_2B = torch.stack([offset_B, offset_B + scale_B]) * pixels_B
    # a thousandth of a pixel of slack: a box on whole pixels must not lose one to rounding
    low_B, high_B = ends_2B.amin(0) - 1e-3, ends_2B.amax(0) + 1e-3
    there_BP = positions_P < pixels_B[:, None]
    used_BP = there_BP & (positions_P >= low_B[:, None]) & (positions_P <= high_B[:, None])
    # a box may be so small that no pixel's centre is inside
    used_BP = torch.where((bounded_B & used_BP.any(dim=1))[:, None], used_BP, there_BP)
    weights_BVP = weights_BVP.mul_(used_BP[:, None])
    weights_BVP = weights_BVP.div_(weights_BVP.sum(2, keepdim=True).clamp_(min=1e-6))
    return weights_BVP, (center_BV >= 0) & (center_BV <= pixels_B[:, None])


def _cubic(distance: Tensor) -> Tensor:
    """Keys' kernel of two pixels either way, with a = -1/2 as Pillow has it (1981, Eq. 8)."""
    near = (1.5 * distance - 2.5) * distance.square() + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))


def _low_pass(
    step_B: Tensor, count_B: Tensor, pixels_B: Tensor, images_BCHW: Tensor, axis: int
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Triangle filters of half-width `step_B` pixels, sampled every `step_B` pixels.

    weights_BQP, and steps and counts (pixels of the smaller image), on the device of the images.
    """
    most, device = int(count_B.max()), images_BCHW.device
    step_B, count_B, pixels_B = to_device(torch.stack([step_B, count_B, pixels_B]), device)
    center_BQ = (torch.arange(most, device=device) + 0.5) * step_B[:, None] - 0.5
    positions_P = torch.arange(images_BCHW.shape[axis], device=device, dtype=torch.float32)
    distance_BQP = (positions_P - center_BQ[:, :, None]).abs_()
    weights_BQP = (1 - distance_BQP / step_B[:, None, None]).clamp_(min=0.0)
    weights_BQP *= (positions_P < pixels_B[:, None])[:, None]
    weights_BQP /= weights_BQP.sum(2, keepdim=True).clamp_(min=1e-6)
    return weights_BQP, (step_B, count_B)


def _fill(views_BCVV: Tensor, images_BCHW: Tensor, size_B2: Tensor, inside_BVV: Tensor) -> Tensor:
    """Give pixels outside the image its mean color, and clip what rounding left outside [0, 1]."""
    height, width = images_BCHW.shape[2:]
    y_BH, x_BW = (
        torch.arange(most, device=size_B2.device) < size_B2[:, axis, None]
        for axis, most in enumerate((height, width))
    )
    there_B1HW = (y_BH[:, :, None] & x_BW[:, None, :])[:, None]
    mean_BC11 = (images_BCHW * there_B1HW).sum((2, 3), keepdim=True)
    mean_BC11 /= size_B2.prod(1)[:, None, None, None]
    return torch.where(inside_BVV[:, None], views_BCVV, mean_BC11).clamp_(0.0, 1.0)
