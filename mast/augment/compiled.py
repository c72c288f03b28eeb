"""The kernels of the operators compiled for the CPU: one pass over an image that stays in cache.

Each kernel treats the samples of a batch that drew its operator, in place, one after the other,
and lets go of the interpreter's lock, so that threads can share a batch. Values are those of the
PyTorch kernels in `color`, `filters`, `noise` and `warp`, which say what each computes, to float32
rounding; the tests compare every one. Numba compiles a kernel when it is first called and keeps it
on disk.

Legend: B samples, N of them drawn, C = 3 channels, P canvas pixels along an axis, V view pixels,
T taps. Images are float32 planes in [0, 1], contiguous.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

# Sums may be reordered and fused, which vectorising needs; NaN and infinity keep their meaning.
_FAST = {"contract", "reassoc", "nsz", "arcp"}

ZERO, ONE, SIX = np.float32(0), np.float32(1), np.float32(6)
RED, GREEN, BLUE = np.float32(0.2989), np.float32(0.587), np.float32(0.114)
BRIGHTNESS, CONTRAST, SATURATION = 0, 1, 2  # as in color.ORDERS; 3 is the hue


def kernel(function: Callable[..., Any]) -> Any:
    """Compile when first called."""
    return njit(fastmath=_FAST, nogil=True, cache=True, error_model="numpy")(function)


# ----------------------------------------------------------------------------------------
# Rows: loops that vectorise, as nothing in them depends on an index


@kernel
def _clip(value):
    return min(max(value, ZERO), ONE)


@kernel
def _set_scaled(out, row, weight):
    for i in range(out.shape[0]):
        out[i] = weight * row[i]


@kernel
def _set_clipped(out, row):
    for i in range(out.shape[0]):
        out[i] = _clip(row[i])


@kernel
def _add_scaled(out, row, weight):
    for i in range(out.shape[0]):
        out[i] += weight * row[i]


@kernel
def _add_pair(out, first, second, weight):
    for i in range(out.shape[0]):
        out[i] += weight * (first[i] + second[i])


@kernel
def _luminance(red, green, blue, out):
    for i in range(out.shape[0]):
        out[i] = RED * red[i] + GREEN * green[i] + BLUE * blue[i]


# ----------------------------------------------------------------------------------------
# Resampling


@kernel
def _axis_weights(scale, offset, size, pixels, bounded, start_V, weight_TV):
    """Antialias taps along one axis; returns how many a view pixel has, an even number.

    Args:
        start_V: First canvas pixel of each view pixel, times 3: where it is in a packed row.
        weight_TV: Weights from there on, 0 past the last tap.
    """
    support = max(abs(scale) * (pixels / size), 1.0)
    taps = _most_taps(support, pixels)
    low, high = 0.0, float(pixels)
    if bounded:
        low = min(offset, offset + scale) * pixels
        high = max(offset, offset + scale) * pixels
    for v in range(size):
        center = (scale * ((v + 0.5) / size) + offset) * pixels
        # the first whose centre is nearer than the support: with a support of 1 there are two
        first = min(max(int(math.floor(center - support + 0.5)), 0), pixels - taps)
        total = 0.0
        for t in range(taps):
            position = first + t + 0.5
            weight = 1.0 - abs(position - center) / support
            if weight < 0.0 or position < low - 1e-3 or position > high + 1e-3:
                weight = 0.0
            weight_TV[t, v] = weight
            total += weight
        for t in range(taps):
            weight_TV[t, v] = weight_TV[t, v] / max(total, 1e-6)
        start_V[v] = 3 * first
    return taps


@kernel
def _most_taps(support, pixels):
    taps = 2 * int(math.ceil(support - 1e-6))
    return min(taps, pixels - pixels % 2)


@kernel
def _mean_color(canvas_PPC, mean_C):
    pixels = canvas_PPC.shape[0]
    for c in range(3):
        total = 0
        for y in range(pixels):
            for x in range(pixels):
                total += canvas_PPC[y, x, c]
        mean_C[c] = total / (255.0 * pixels * pixels)


@kernel
def resize_boxes(canvas_BPPC, index_N, boxes_B4, bounded_B, images_BCVV):
    """See `warp.resize_boxes`.

    Args:
        canvas_BPPC: uint8 canvases.
        index_N: Samples to treat.
        boxes_B4: float32 scale and offset along x, then along y, from the view to the canvas.
        bounded_B: bool, only pixels of the box count.
        images_BCVV: Where the views go.
    """
    pixels, size = canvas_BPPC.shape[1], images_BCVV.shape[2]
    most = 2
    for i in index_N:
        for axis in range(0, 4, 2):
            support = max(abs(boxes_B4[i, axis]) * (pixels / size), 1.0)
            most = max(most, _most_taps(support, pixels))
    start_x, start_y = np.empty(size, np.int64), np.empty(size, np.int64)
    weight_x, weight_y = np.empty((most, size), np.float32), np.empty((most, size), np.float32)
    packed = np.empty(3 * pixels, np.float32)
    mean_C = np.empty(3, np.float32)
    for i in index_N:
        scale_x, offset_x, scale_y, offset_y = boxes_B4[i]
        bounded = bounded_B[i]
        taps_x = _axis_weights(scale_x, offset_x, size, pixels, bounded, start_x, weight_x)
        taps_y = _axis_weights(scale_y, offset_y, size, pixels, bounded, start_y, weight_y)
        left, right = 3 * pixels, 0
        for x in range(size):
            left, right = min(left, start_x[x]), max(right, start_x[x] + 3 * taps_x)
        canvas = canvas_BPPC[i].reshape(pixels, 3 * pixels)
        for y in range(size):
            row = packed[left:right]
            source = canvas[start_y[y] // 3, left:right]
            _set_scaled(row, source, weight_y[0, y] * np.float32(1 / 255))
            for t in range(1, taps_y):
                if weight_y[t, y] != 0:
                    source = canvas[start_y[y] // 3 + t, left:right]
                    _add_scaled(row, source, weight_y[t, y] * np.float32(1 / 255))
            _resample_row(packed, start_x, weight_x, taps_x, images_BCVV[i, :, y])
        _fill_box(canvas_BPPC[i], scale_x, offset_x, scale_y, offset_y, mean_C, images_BCVV[i])


@kernel
def _resample_row(packed, start_V, weight_TV, taps, out_CV):
    """Gather one row of pixels (red, green, blue, red, …) with two taps at a time."""
    red, green, blue = out_CV[0], out_CV[1], out_CV[2]
    for t in range(0, taps, 2):
        first_V, second_V = weight_TV[t], weight_TV[t + 1]
        offset = np.uint64(3 * t)
        for x in range(red.shape[0]):
            at = np.uint64(start_V[x]) + offset
            first, second = first_V[x], second_V[x]
            r = first * packed[at] + second * packed[at + np.uint64(3)]
            g = first * packed[at + np.uint64(1)] + second * packed[at + np.uint64(4)]
            b = first * packed[at + np.uint64(2)] + second * packed[at + np.uint64(5)]
            red[x] = _clip(r if t == 0 else red[x] + r)
            green[x] = _clip(g if t == 0 else green[x] + g)
            blue[x] = _clip(b if t == 0 else blue[x] + b)


@kernel
def _fill_box(canvas_PPC, scale_x, offset_x, scale_y, offset_y, mean_C, image_CVV):
    """Give view pixels whose centre lies outside the canvas its mean colour."""
    size = image_CVV.shape[1]
    steps = np.float32(0.5) / np.float32(size)
    corners_inside = True
    for step in (steps, ONE - steps):
        x, y = scale_x * step + offset_x, scale_y * step + offset_y
        corners_inside = corners_inside and 0 <= x <= 1 and 0 <= y <= 1
    if corners_inside:
        return
    _mean_color(canvas_PPC, mean_C)
    for y in range(size):
        at_y = scale_y * ((np.float32(y) + np.float32(0.5)) / np.float32(size)) + offset_y
        for x in range(size):
            at_x = scale_x * ((np.float32(x) + np.float32(0.5)) / np.float32(size)) + offset_x
            if not (0 <= at_x <= 1 and 0 <= at_y <= 1):
                for c in range(3):
                    image_CVV[c, y, x] = mean_C[c]


@kernel
def _low_pass_rows(weights_T, source_PQ, target_PQ):
    """Filter along the first axis with a symmetric filter, cut and normalised at the border."""
    pixels, radius = source_PQ.shape[0], weights_T.shape[0] - 1
    for y in range(pixels):
        total = weights_T[0]
        for t in range(1, radius + 1):
            total += weights_T[t] * ((y >= t) + (y + t < pixels))
        _set_scaled(target_PQ[y], source_PQ[y], weights_T[0] / total)
        for t in range(1, radius + 1):
            if y >= t:
                _add_scaled(target_PQ[y], source_PQ[y - t], weights_T[t] / total)
            if y + t < pixels:
                _add_scaled(target_PQ[y], source_PQ[y + t], weights_T[t] / total)


@kernel
def _triangle(shrink):
    radius = max(int(math.ceil(shrink)) - 1, 0)
    weights_T = np.empty(radius + 1, np.float32)
    for t in range(radius + 1):
        weights_T[t] = max(1.0 - t / max(shrink, 1.0), 0.0)
    return weights_T


@kernel
def warp_affine(canvas_BPPC, index_N, matrices_B33, extent_B2, images_BCVV):
    """See `warp.warp_affine`.

    Args:
        canvas_BPPC: uint8 canvases.
        index_N: Samples to treat.
        matrices_B33: float32, from the view to the canvas, normalised.
        extent_B2: Width and height of the box that shrinks to the view, as shares of the canvas's.
        images_BCVV: Where the views go.
    """
    pixels, size = canvas_BPPC.shape[1], images_BCVV.shape[2]
    plane, other = np.empty((pixels, pixels), np.float32), np.empty((pixels, pixels), np.float32)
    planes = np.empty((3, pixels, pixels), np.float32)
    mean_C = np.empty(3, np.float32)
    last = np.float32(pixels - 1)
    for i in index_N:
        along_x = _triangle(extent_B2[i, 0] * np.float32(pixels / size))
        along_y = _triangle(extent_B2[i, 1] * np.float32(pixels / size))
        canvas = canvas_BPPC[i]
        for c in range(3):
            total = 0
            for y in range(pixels):
                for x in range(pixels):
                    plane[y, x] = np.float32(canvas[y, x, c]) * np.float32(1 / 255)
                    total += canvas[y, x, c]
            mean_C[c] = total / (255.0 * pixels * pixels)
            if along_x.shape[0] > 1:
                _transpose(plane, other)
                _low_pass_rows(along_x, other, plane)
                _transpose(plane, other)
                plane[:] = other
            if along_y.shape[0] > 1:
                _low_pass_rows(along_y, plane, planes[c])
            else:
                planes[c] = plane
        xx, xy, x0 = matrices_B33[i, 0]
        yx, yy, y0 = matrices_B33[i, 1]
        image = images_BCVV[i]
        red, green, blue = planes[0], planes[1], planes[2]
        for y in range(size):
            v = (np.float32(y) + np.float32(0.5)) / np.float32(size)
            for x in range(size):
                u = (np.float32(x) + np.float32(0.5)) / np.float32(size)
                at_x, at_y = xx * u + xy * v + x0, yx * u + yy * v + y0
                if not (0 <= at_x <= 1 and 0 <= at_y <= 1):
                    for c in range(3):
                        image[c, y, x] = mean_C[c]
                    continue
                column = min(max(at_x * np.float32(pixels) - np.float32(0.5), ZERO), last)
                row = min(max(at_y * np.float32(pixels) - np.float32(0.5), ZERO), last)
                left, top = np.uint64(column), np.uint64(row)
                right = min(left + np.uint64(1), np.uint64(pixels - 1))
                bottom = min(top + np.uint64(1), np.uint64(pixels - 1))
                part_x, part_y = column - np.float32(left), row - np.float32(top)
                nw, ne = (ONE - part_x) * (ONE - part_y), part_x * (ONE - part_y)
                sw, se = (ONE - part_x) * part_y, part_x * part_y
                image[0, y, x] = _clip(
                    nw * red[top, left] + ne * red[top, right]
                    + sw * red[bottom, left] + se * red[bottom, right]
                )  # fmt: skip
                image[1, y, x] = _clip(
                    nw * green[top, left] + ne * green[top, right]
                    + sw * green[bottom, left] + se * green[bottom, right]
                )  # fmt: skip
                image[2, y, x] = _clip(
                    nw * blue[top, left] + ne * blue[top, right]
                    + sw * blue[bottom, left] + se * blue[bottom, right]
                )  # fmt: skip


@kernel
def _transpose(source_PQ, target_QP):
    block = 16
    rows, columns = source_PQ.shape
    for y0 in range(0, rows, block):
        for x0 in range(0, columns, block):
            for y in range(y0, min(y0 + block, rows)):
                for x in range(x0, min(x0 + block, columns)):
                    target_QP[x, y] = source_PQ[y, x]


# ----------------------------------------------------------------------------------------
# Colour


@kernel
def _jitter_row(red, green, blue, which, factor, mean, turn):
    count = red.shape[0]
    rest = ONE - factor
    if which == BRIGHTNESS:
        for i in range(count):
            red[i], green[i], blue[i] = (
                _clip(factor * red[i]), _clip(factor * green[i]), _clip(factor * blue[i])
            )  # fmt: skip
    elif which == CONTRAST:
        added = rest * mean
        for i in range(count):
            red[i] = _clip(factor * red[i] + added)
            green[i] = _clip(factor * green[i] + added)
            blue[i] = _clip(factor * blue[i] + added)
    elif which == SATURATION:
        for i in range(count):
            added = rest * (RED * red[i] + GREEN * green[i] + BLUE * blue[i])
            red[i] = _clip(factor * red[i] + added)
            green[i] = _clip(factor * green[i] + added)
            blue[i] = _clip(factor * blue[i] + added)
    else:
        for i in range(count):
            r, g, b = red[i], green[i], blue[i]
            high, low = max(r, max(g, b)), min(r, min(g, b))
            chroma = high - low
            sixth = r - g + np.float32(4) * chroma
            sixth = b - r + np.float32(2) * chroma if high == g else sixth
            sixth = g - b if high == r else sixth
            sixth = sixth / max(chroma, np.float32(1e-12)) + turn
            red[i] = _channel(sixth) * chroma + low
            green[i] = _channel(sixth + np.float32(4)) * chroma + low
            blue[i] = _channel(sixth + np.float32(2)) * chroma + low


@kernel
def _channel(sixth):
    sixth = sixth - SIX * np.floor(sixth * np.float32(1 / 6))
    return _clip(abs(sixth - np.float32(3)) - ONE)


@kernel
def jitter(images_BCHW, index_N, factor_N3, turn_N, order_N4):
    """See `color.jitter`.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        factor_N3: float32 factors of brightness, contrast and saturation.
        turn_N: float32 turns of the hue, in parts of a full turn.
        order_N4: int64, which of the four comes when.
    """
    height, width = images_BCHW.shape[2:]
    for n in range(len(index_N)):
        image, order, turn = images_BCHW[index_N[n]], order_N4[n], turn_N[n] * SIX
        contrast_at = 0
        for step in range(4):
            if order[step] == CONTRAST:
                contrast_at = step
        total = 0.0
        for y in range(height):
            red, green, blue = image[0, y], image[1, y], image[2, y]
            for step in range(contrast_at):
                factor = factor_N3[n, min(order[step], 2)]
                _jitter_row(red, green, blue, order[step], factor, ZERO, turn)
            row = ZERO
            for x in range(width):
                row += RED * red[x] + GREEN * green[x] + BLUE * blue[x]
            total += row
        mean = np.float32(total / (height * width))
        for y in range(height):
            red, green, blue = image[0, y], image[1, y], image[2, y]
            for step in range(contrast_at, 4):
                factor = factor_N3[n, min(order[step], 2)]
                _jitter_row(red, green, blue, order[step], factor, mean, turn)


@kernel
def grayscale(images_BCHW, index_N):
    """See `color.gray`; all three channels become it."""
    for i in index_N:
        for y in range(images_BCHW.shape[2]):
            red, green, blue = images_BCHW[i, 0, y], images_BCHW[i, 1, y], images_BCHW[i, 2, y]
            _luminance(red, green, blue, red)
            green[:] = red
            blue[:] = red


# ----------------------------------------------------------------------------------------
# Filters


@kernel
def gaussian_blur(images_BCHW, index_N, sigma_N, taps):
    """See `filters.gaussian_blur`; beyond four sigmas it is 0, which moves no value by
    more than 1e-4.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        sigma_N: float32 standard deviations in pixels.
        taps: Odd side of the filter in pixels.
    """
    size = images_BCHW.shape[3]
    weights_T = np.empty(taps // 2 + 1, np.float32)
    blurred = np.empty((size, size), np.float32)
    padded = np.empty(size + taps, np.float32)
    for n in range(len(index_N)):
        sigma = float(sigma_N[n])
        radius = min(taps // 2, int(math.ceil(4 * sigma)))
        total = 1.0
        for t in range(1, radius + 1):
            total += 2 * math.exp(-0.5 * (t / sigma) ** 2)
        for t in range(radius + 1):
            weights_T[t] = math.exp(-0.5 * (t / sigma) ** 2) / total
        for c in range(3):
            plane = images_BCHW[index_N[n], c]
            for y in range(size):
                row = padded[radius : radius + size]
                _set_scaled(row, plane[y], weights_T[0])
                for t in range(1, radius + 1):
                    below = y + t if y + t < size else 2 * (size - 1) - y - t
                    _add_pair(row, plane[abs(y - t)], plane[below], weights_T[t])
                for t in range(1, radius + 1):
                    padded[radius - t] = padded[radius + t]
                    padded[radius + size - 1 + t] = padded[radius + size - 1 - t]
                _set_scaled(blurred[y], row, weights_T[0])
                for t in range(1, radius + 1):
                    before = padded[radius - t : radius - t + size]
                    after = padded[radius + t : radius + t + size]
                    _add_pair(blurred[y], before, after, weights_T[t])
            for y in range(size):
                _set_clipped(plane[y], blurred[y])


@kernel
def sharpen(images_BCHW, index_N, factor_N):
    """See `filters.sharpen`.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        factor_N: float32; above 1 away from the smoothed image, below towards it.
    """
    height, width = images_BCHW.shape[2:]
    above, here = np.empty(width, np.float32), np.empty(width, np.float32)
    smooth = np.empty(width - 2, np.float32)
    for n in range(len(index_N)):
        factor = factor_N[n]
        rest = (ONE - factor) * np.float32(1 / 13)
        for c in range(3):
            plane = images_BCHW[index_N[n], c]
            above[:] = plane[0]
            for y in range(1, height - 1):
                here[:] = plane[y]
                below, target = plane[y + 1], plane[y, 1 : width - 1]
                _sum_of_nine(above, here, below, smooth)
                center = here[1 : width - 1]
                for x in range(width - 2):
                    total = smooth[x] + np.float32(4) * center[x]
                    target[x] = _clip(factor * center[x] + rest * total)
                above[:] = here


@kernel
def _sum_of_nine(above, here, below, out):
    count = out.shape[0]
    for shift in range(3):
        first, second, third = above[shift:], here[shift:], below[shift:]
        if shift == 0:
            for x in range(count):
                out[x] = first[x] + second[x] + third[x]
        else:
            for x in range(count):
                out[x] += first[x] + second[x] + third[x]


@kernel
def motion_blur(images_BCHW, index_N, kernels_NTT):
    """See `filters.filter_each`.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        kernels_NTT: float32 filters of an odd side.
    """
    height, width = images_BCHW.shape[2:]
    side = kernels_NTT.shape[1]
    radius = side // 2
    padded = np.empty((height + 2 * radius, width + 2 * radius), np.float32)
    row = np.empty(width, np.float32)
    for n in range(len(index_N)):
        for c in range(3):
            plane = images_BCHW[index_N[n], c]
            for y in range(height + 2 * radius):
                from_y = abs(y - radius)
                from_y = from_y if from_y < height else 2 * (height - 1) - from_y
                line = padded[y]
                line[radius : radius + width] = plane[from_y]
                for t in range(1, radius + 1):
                    line[radius - t] = line[radius + t]
                    line[radius + width - 1 + t] = line[radius + width - 1 - t]
            for y in range(height):
                row[:] = ZERO
                for v in range(side):
                    for u in range(side):
                        if kernels_NTT[n, v, u] != 0:
                            _add_scaled(row, padded[y + v, u : u + width], kernels_NTT[n, v, u])
                _set_clipped(plane[y], row)


@kernel
def blend_edges(images_BCHW, index_N, blend_N):
    """See `filters.blend_edges`.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        blend_N: float32 share of the edges.
    """
    height, width = images_BCHW.shape[2:]
    gray = np.empty((height + 2, width + 2), np.float32)
    edges = np.empty(width, np.float32)
    for n in range(len(index_N)):
        image, blend = images_BCHW[index_N[n]], blend_N[n]
        for y in range(height):
            line = gray[y + 1]
            _luminance(image[0, y], image[1, y], image[2, y], line[1 : width + 1])
            line[0], line[width + 1] = line[1], line[width]
        gray[0] = gray[1]
        gray[height + 1] = gray[height]
        for y in range(height):
            _sobel_row(gray[y], gray[y + 1], gray[y + 2], edges)
            for c in range(3):
                target = image[c, y]
                for x in range(width):
                    target[x] += blend * (edges[x] - target[x])


@kernel
def _sobel_row(above, here, below, out):
    count = out.shape[0]
    above_1, below_1 = above[1:], below[1:]
    above_2, here_2, below_2 = above[2:], here[2:], below[2:]
    two = np.float32(2)
    for x in range(count):
        left = above[x] + two * here[x] + below[x]
        right = above_2[x] + two * here_2[x] + below_2[x]
        top = above[x] + two * above_1[x] + above_2[x]
        bottom = below[x] + two * below_1[x] + below_2[x]
        along_x, along_y = right - left, bottom - top
        out[x] = min(np.sqrt(along_x * along_x + along_y * along_y + np.float32(1e-6)), ONE)


@kernel
def cut_out(images_BCHW, index_N, side_N, x_N, y_N):
    """See `filters.cut_out`.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        side_N: float32 side of the square, as a share of the view's.
        x_N: float32 centre as a share of the width.
        y_N: float32 centre as a share of the height.
    """
    height, width = images_BCHW.shape[2:]
    for n in range(len(index_N)):
        image, half = images_BCHW[index_N[n]], side_N[n] / np.float32(2)
        for c in range(3):
            plane = image[c]
            total = 0.0
            for y in range(height):
                line = plane[y]
                row = ZERO
                for x in range(width):
                    row += line[x]
                total += row
            mean = np.float32(total / (height * width))
            for y in range(height):
                at_y = (np.float32(y) + np.float32(0.5)) / np.float32(height)
                if abs(at_y - y_N[n]) < half:
                    for x in range(width):
                        at_x = (np.float32(x) + np.float32(0.5)) / np.float32(width)
                        if abs(at_x - x_N[n]) < half:
                            plane[y, x] = mean


# ----------------------------------------------------------------------------------------
# Tones and noise


@kernel
def invert(images_BCHW, index_N):
    """See `color.Invert`."""
    for i in index_N:
        values = images_BCHW[i].ravel()
        for j in range(values.shape[0]):
            values[j] = ONE - values[j]


@kernel
def solarize(images_BCHW, index_N, threshold_N):
    """See `color.solarize`; float32 thresholds."""
    for n in range(len(index_N)):
        values, threshold = images_BCHW[index_N[n]].ravel(), threshold_N[n]
        for j in range(values.shape[0]):
            values[j] = ONE - values[j] if values[j] >= threshold else values[j]


@kernel
def posterize(images_BCHW, index_N, step_N):
    """See `color.posterize`; float32 steps between levels, powers of 2 up to 128."""
    for n in range(len(index_N)):
        values, step = images_BCHW[index_N[n]].ravel(), step_N[n]
        parts = ONE / step
        for j in range(values.shape[0]):
            level = np.floor(values[j] * np.float32(255.999))
            values[j] = np.floor(level * parts) * step * np.float32(1 / 255)


@kernel
def equalize(images_BCHW, index_N):
    """See `color.equalize`."""
    table = np.empty(256, np.float32)
    for i in index_N:
        for c in range(3):
            values = images_BCHW[i, c].ravel()
            levels = np.empty(values.shape[0], np.uint8)
            histogram = np.zeros(256, np.int64)
            for j in range(values.shape[0]):
                levels[j] = np.uint8(values[j] * np.float32(255.999))
            for level in levels:
                histogram[level] += 1
            brightest = 0
            for level in range(256):
                if histogram[level]:
                    brightest = histogram[level]
            step = (values.shape[0] - brightest) // 255
            below = 0
            for level in range(256):
                if step > 0:
                    table[level] = np.float32(min((below + step // 2) // step, 255) if level else 0)
                else:
                    table[level] = np.float32(level)
                table[level] *= np.float32(1 / 255)
                below += histogram[level]
            for j in range(values.shape[0]):
                values[j] = table[levels[j]]


@kernel
def _mix(bits):
    """See `noise._mix`."""
    bits = np.uint32(bits ^ (bits >> np.uint32(16)))
    bits = np.uint32(bits * np.uint32(0x7FEB352D))
    bits = np.uint32(bits ^ (bits >> np.uint32(15)))
    bits = np.uint32(bits * np.uint32(0x846CA68B))
    return np.uint32(bits ^ (bits >> np.uint32(16)))


@kernel
def add_noise(images_BCHW, index_N, std_N, seed_N, radius_T, cos_T, sin_T):
    """See `noise.add_noise`; the logarithm, root, cosine and sine of 16 bits come from tables.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        std_N: float32 standard deviations.
        seed_N: int64 seeds in [0, 2^31).
        radius_T: float32, 65,536 radii of Box-Muller.
        cos_T: float32, cosines of 65,536 angles.
        sin_T: float32, their sines.
    """
    for n in range(len(index_N)):
        values, std = images_BCHW[index_N[n]].ravel(), std_N[n]
        seed = _mix(np.uint32(seed_N[n]))
        half = (values.shape[0] + 1) // 2
        for position in range(half):
            bits = _mix(np.uint32(_mix(np.uint32(position + 1)) ^ seed))
            angle = np.uint64(bits & np.uint32(0xFFFF))
            radius = std * radius_T[np.uint64(bits >> np.uint32(16))]
            values[position] = _clip(values[position] + radius * cos_T[angle])
            if position + half < values.shape[0]:
                values[position + half] = _clip(values[position + half] + radius * sin_T[angle])
