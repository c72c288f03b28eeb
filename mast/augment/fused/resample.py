"""The warp, from uint8 canvases to views, in one kernel."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mast.augment.fused.operators import until_contrast
from mast.augment.fused.rows import (
    black,
    clip,
    gray,
    half_of,
    image_of,
    number,
    part_of,
    store,
    whole,
    zeros,
)
from mast.augment.warp import Warp, shrunk
from mast.core.canvases import Canvases

COLUMNS = 21  # the first of a sample in the table


@triton.jit
def _canvas(values_T, row):
    """Where the canvas of a sample begins, its height and its width."""
    low = whole(row, 15).to(tl.int64) & 0xFFFFFFFF
    start = (whole(row, 16).to(tl.int64) << 32) | low
    return values_T + start, whole(row, 17), whole(row, 18)


@triton.jit
def canvas_means(values_T, table, mean_BC, of: tl.constexpr):
    """The mean color of every canvas beyond which a view reaches; one program each."""
    sample = tl.program_id(0)
    row = table + sample * of.width
    if whole(row, 20) == 0:
        return
    canvas, height, width = _canvas(values_T, row)
    count = height * width
    red = zeros(tl.int32, of)
    green = zeros(tl.int32, of)
    blue = zeros(tl.int32, of)
    for first in range(0, count, of.block):
        pixel = first + tl.arange(0, of.block)
        there = canvas + 3 * pixel
        live = pixel < count
        red += tl.load(there, mask=live, other=0).to(tl.int32)
        green += tl.load(there + 1, mask=live, other=0).to(tl.int32)
        blue += tl.load(there + 2, mask=live, other=0).to(tl.int32)
    scale = 1.0 / (255.0 * count)
    tl.store(mean_BC + 3 * sample, tl.sum(red.to(tl.int64)).to(tl.float32) * scale)
    tl.store(mean_BC + 3 * sample + 1, tl.sum(green.to(tl.int64)).to(tl.float32) * scale)
    tl.store(mean_BC + 3 * sample + 2, tl.sum(blue.to(tl.int64)).to(tl.float32) * scale)


@triton.jit
def _tent(distance):
    return tl.maximum(1.0 - distance, 0.0)


@triton.jit
def _cubic(distance):
    """See `warp._cubic`."""
    near = (1.5 * distance - 2.5) * distance * distance + 1.0
    far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    return tl.where(distance < 1.0, near, tl.where(distance < 2.0, far, 0.0))


@triton.jit
def _resizing(pixel, center, reach, first, last, of: tl.constexpr):
    """Weight of a canvas pixel along an axis, where the view is neither turned nor sheared."""
    distance = tl.abs(pixel.to(tl.float32) + 0.5 - center) / reach
    weight = _cubic(distance) if of.bicubic else _tent(distance)
    return tl.where((pixel >= first) & (pixel <= last), weight, 0.0)


@triton.jit
def _tail_of_tent(center, reach, limit):
    """Sum of 1 - d / reach over the pixels behind `center`, from 0 to `limit`."""
    first = tl.maximum(tl.floor(center) + 1.0, 0.0)
    last = tl.minimum(limit, tl.ceil(center + reach) - 1.0)
    start, count = first - center, tl.maximum(last - first + 1.0, 0.0)
    return count - (count * start + count * (count - 1.0) / 2.0) / reach


@triton.jit
def _whole_tent(center, reach, pixels):
    """Sum over an axis of a tent around a pixel, or between two, which may lie behind the last."""
    on_pixel = tl.where((center == tl.floor(center)) & (center < pixels), 1.0, 0.0)
    before = _tail_of_tent(pixels - 1.0 - center, reach, pixels - 1.0)
    return on_pixel + before + _tail_of_tent(center, reach, pixels - 1.0)


@triton.jit
def _sampling(at, reach, count, pixels):
    """Of a sample of the smaller image: its two pixels' centres, and what each is worth."""
    near = tl.minimum(tl.maximum(at / reach - 0.5, 0.0), count - 1.0)
    left = tl.floor(near)
    part = near - left
    first = (left + 0.5) * reach - 0.5
    second = (tl.minimum(left + 1.0, count - 1.0) + 0.5) * reach - 0.5
    worth_first = (1.0 - part) / _whole_tent(first, reach, pixels)
    worth_second = part / _whole_tent(second, reach, pixels)
    return first, second, worth_first, worth_second


@triton.jit
def _low_passed(pixel, first, second, worth_first, worth_second, reach, pixels):
    """Weight of a canvas pixel along an axis in a bilinear sample of the smaller image."""
    here = pixel.to(tl.float32)
    weight = worth_first * _tent(tl.abs(here - first) / reach)
    weight += worth_second * _tent(tl.abs(here - second) / reach)
    return tl.where((here >= 0.0) & (here < pixels), weight, 0.0)


@triton.jit
def _add(canvas, x, y, weight, live, red, green, blue, width):
    there = canvas + (y * width + x) * 3
    some = live & (weight != 0.0)
    red += weight * tl.load(there, mask=some, other=0).to(tl.float32)
    green += weight * tl.load(there + 1, mask=some, other=0).to(tl.float32)
    blue += weight * tl.load(there + 2, mask=some, other=0).to(tl.float32)
    return red, green, blue


@triton.jit
def warp(values_T, mean_BC, table, halves, sum_BCT, of: tl.constexpr):
    """Draw every view into the first half; see `mast.augment.warp`.

    Where the chain goes on with a jitter, it leaves the sums over tiles of the luminance that the
    jitter's contrast will meet.
    """
    row, sample, tile, pixel, live = part_of(table, of)
    canvas, height, width = _canvas(values_T, row)
    u = ((pixel % of.side).to(tl.float32) + 0.5) / of.side
    v = ((pixel // of.side).to(tl.float32) + 0.5) / of.side
    x = number(row, 1) * u + number(row, 2) * v
    y = number(row, 4) * u + number(row, 5) * v
    x = (x + number(row, 3)) * width
    y = (y + number(row, 6)) * height
    reach_x = number(row, 7)
    reach_y = number(row, 8)
    taps_x = whole(row, 9)
    taps_y = whole(row, 10)
    red, green, blue = black(of)
    total = zeros(tl.float32, of)
    if whole(row, 0) > 0:  # neither turned nor sheared
        low_x = whole(row, 11)
        high_x = whole(row, 12)
        low_y = whole(row, 13)
        high_y = whole(row, 14)
        side: tl.constexpr = 2.0 if of.bicubic else 1.0
        first_x = tl.floor(x - side * reach_x - 0.5).to(tl.int32) + 1
        first_y = tl.floor(y - side * reach_y - 0.5).to(tl.int32) + 1
        for s in range(taps_y):
            weight_y = _resizing(first_y + s, y, reach_y, low_y, high_y, of)
            for t in range(taps_x):
                weight = weight_y * _resizing(first_x + t, x, reach_x, low_x, high_x, of)
                total += weight
                red, green, blue = _add(
                    canvas, first_x + t, first_y + s, weight, live, red, green, blue, width
                )
    else:
        kept = whole(row, 11)
        left, right, worth_left, worth_right = _sampling(x, reach_x, kept, width)
        kept = whole(row, 13)
        top, below, worth_top, worth_below = _sampling(y, reach_y, kept, height)
        first_x = tl.floor(left - reach_x).to(tl.int32) + 1
        first_y = tl.floor(top - reach_y).to(tl.int32) + 1
        for s in range(taps_y):
            weight_y = _low_passed(first_y + s, top, below, worth_top, worth_below, reach_y, height)
            for t in range(taps_x):
                weight = weight_y * _low_passed(
                    first_x + t, left, right, worth_left, worth_right, reach_x, width
                )
                red, green, blue = _add(
                    canvas, first_x + t, first_y + s, weight, live, red, green, blue, width
                )
        total += 1.0
    scale = 1.0 / (255.0 * tl.where(total == 0.0, 1.0, total))
    inside = (x >= 0.0) & (x <= width) & (y >= 0.0) & (y <= height)
    mean_C = mean_BC + 3 * whole(row, 19)
    red = clip(tl.where(inside, red * scale, tl.load(mean_C)))
    green = clip(tl.where(inside, green * scale, tl.load(mean_C + 1)))
    blue = clip(tl.where(inside, blue * scale, tl.load(mean_C + 2)))
    store(image_of(halves, 0, sample, of), pixel, live, red, green, blue, of)
    if half_of(row, of.jitter) >= 0:
        red, green, blue = until_contrast(row, red, green, blue, of)
        luminance = tl.where(live, gray(red, green, blue), 0.0)
        tl.store(sum_BCT + sample * (3 * of.tiles) + tile, tl.sum(luminance))


def columns(warp: Warp, canvases: Canvases, count: int, size: int) -> list[Tensor]:
    """What the kernel takes of each sample.

    Args:
        warp: On the CPU.
        canvases: The images, one after the other, as often as they have views.
        count: How many images there are.
        size: Side of the views.
    """
    aligned_B1 = warp.aligned_B[:, None]
    matrices_B33, pixels_B2 = warp.matrices_B33, canvases.size_B2.flip(1)
    scale_B2 = matrices_B33.diagonal(dim1=1, dim2=2)[:, :2]
    step_B2, count_B2 = shrunk(canvases, warp, size)
    reach_B2 = torch.where(aligned_B1, (scale_B2.abs() * pixels_B2 / size).clamp(min=1.0), step_B2)
    resizing_B2 = ((4 if warp.bicubic else 2) * reach_B2).ceil()
    taps_B2 = torch.where(aligned_B1, resizing_B2, (3 * reach_B2).ceil())
    ends_2B2 = torch.stack([matrices_B33[:, :2, 2], matrices_B33[:, :2, 2] + scale_B2]) * pixels_B2
    # the slack of `resize_boxes`; a box so small that no pixel's centre is inside counts them all
    first_B2 = (ends_2B2.amin(0) - 0.5 - 1e-3).ceil().clamp(min=0)
    last_B2 = (ends_2B2.amax(0) - 0.5 + 1e-3).floor().minimum(pixels_B2 - 1)
    cut_B2 = warp.bounded_B[:, None] & (first_B2 <= last_B2)
    first_B2 = torch.where(cut_B2, first_B2, 0.0)
    last_B2 = torch.where(cut_B2, last_B2, pixels_B2 - 1.0)
    # rotated views store the number of pixels of the smaller image instead of bounds
    bounds_B4 = torch.stack([torch.where(aligned_B1, first_B2, count_B2), last_B2], dim=2).flatten(
        1
    )
    # a view's corners lie beyond its image, or on its border
    corners_43 = torch.tensor([[0.0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]])
    reached_B8 = (matrices_B33[:, :2] @ corners_43.T).flatten(1)
    beyond_VB = ((reached_B8 < 1e-3) | (reached_B8 > 1 - 1e-3)).any(1).view(-1, count)
    return [
        aligned_B1,
        matrices_B33[:, :2].flatten(1),
        reach_B2,
        taps_B2.int(),
        bounds_B4.int(),
        canvases.start_B[:, None].contiguous().view(torch.int32),  # in two parts
        canvases.size_B2.int(),
        torch.arange(len(canvases))[:, None] % count,  # which canvas it is
        beyond_VB.any(0).repeat(len(beyond_VB))[:, None],
    ]
