"""Filters and cutout, compiled."""

import math

import numpy as np

from mast.augment.compiled.rows import (
    BLUE,
    GREEN,
    HALF,
    ONE,
    RED,
    ZERO,
    add_pair,
    add_scaled,
    at,
    clip,
    copy,
    copy_clipped,
    kernel,
    mirror_ends,
    mirrored,
)


@kernel
def gaussian_blur(images_BCHW, index_N, sigma_N, radius_N):
    """See `filters.gaussian_blur`.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        sigma_N: float32 standard deviations in pixels.
        radius_N: int64, at least 1, pixels on either side that the filter reaches.
    """
    size = images_BCHW.shape[3]
    most = radius_N.max()
    weights_T = np.empty(most + 1, np.float32)
    line = np.empty(size + 2 * most, np.float32)
    across = np.empty(size * size, np.float32)
    for n in range(len(index_N)):
        sigma, radius = float(sigma_N[n]), radius_N[n]
        total = 1.0
        for t in range(1, radius + 1):
            total += 2 * math.exp(-0.5 * (t / sigma) ** 2)
        total *= 1 + 1e-6  # so that rounding leaves no value above 1
        for t in range(radius + 1):
            weights_T[t] = math.exp(-0.5 * (t / sigma) ** 2) / total
        for c in range(images_BCHW.shape[1]):
            plane = images_BCHW[index_N[n], c].ravel()
            for y in range(size):
                copy(size, line, radius, plane, y * size)
                mirror_ends(line, radius, size)
                _blur_row(
                    size, across, y * size, line, radius, radius, 1, 2 * radius + size, weights_T
                )
            for y in range(size):
                _blur_row(size, plane, y * size, across, y, radius, size, size, weights_T)


@kernel
def _blur_row(count, out, to, source, middle, radius, stride, size, weights_T):
    """Weighted sum of the stretches up to `radius` strides from the middle one, two pairs a turn.

    Args:
        middle: Which stretch, of `size` that start `stride` apart and mirror beyond the ends.
    """
    center, near = weights_T[0], weights_T[1]
    here = middle * stride
    first, second = _pair(middle, 1, stride, size)
    if radius == 1:
        for i in range(count):
            pair = source[at(first, i)] + source[at(second, i)]
            out[at(to, i)] = center * source[at(here, i)] + near * pair
        return
    third, fourth = _pair(middle, 2, stride, size)
    far = weights_T[2]
    for i in range(count):
        pair = source[at(first, i)] + source[at(second, i)]
        other = source[at(third, i)] + source[at(fourth, i)]
        out[at(to, i)] = center * source[at(here, i)] + near * pair + far * other
    for t in range(3, radius, 2):
        first, second = _pair(middle, t, stride, size)
        third, fourth = _pair(middle, t + 1, stride, size)
        near, far = weights_T[t], weights_T[t + 1]
        for i in range(count):
            pair = source[at(first, i)] + source[at(second, i)]
            other = source[at(third, i)] + source[at(fourth, i)]
            out[at(to, i)] += near * pair + far * other
    if radius % 2:
        first, second = _pair(middle, radius, stride, size)
        add_pair(count, out, to, source, first, second, weights_T[radius])


@kernel
def _pair(middle, distance, stride, size):
    return (
        mirrored(middle - distance, size) * stride,
        mirrored(middle + distance, size) * stride,
    )


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
    columns = np.empty(width, np.float32)
    for n in range(len(index_N)):
        factor = factor_N[n]
        rest = (ONE - factor) * np.float32(1 / 13)
        for c in range(images_BCHW.shape[1]):
            plane = images_BCHW[index_N[n], c].ravel()
            copy(width, above, 0, plane, 0)
            for y in range(1, height - 1):
                row = y * width
                copy(width, here, 0, plane, row)
                for x in range(width):
                    columns[at(0, x)] = above[at(0, x)] + here[at(0, x)] + plane[at(row + width, x)]
                for x in range(width - 2):
                    center = here[at(1, x)]
                    total = columns[at(0, x)] + columns[at(1, x)] + columns[at(2, x)]
                    total += np.float32(4) * center
                    plane[at(row + 1, x)] = clip(factor * center + rest * total)
                copy(width, above, 0, here, 0)


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
    padded_width = width + 2 * radius
    padded = np.empty((height + 2 * radius) * padded_width, np.float32)
    line, row = np.empty(padded_width, np.float32), np.empty(width, np.float32)
    for n in range(len(index_N)):
        for c in range(images_BCHW.shape[1]):
            plane = images_BCHW[index_N[n], c].ravel()
            for y in range(height + 2 * radius):
                copy(width, line, radius, plane, mirrored(y - radius, height) * width)
                mirror_ends(line, radius, width)
                copy(padded_width, padded, y * padded_width, line, 0)
            for y in range(height):
                row[:] = ZERO
                for v in range(side):
                    for u in range(side):
                        weight = kernels_NTT[n, v, u]
                        if weight != 0:
                            add_scaled(width, row, 0, padded, (y + v) * padded_width + u, weight)
                copy_clipped(width, plane, y * width, row, 0)


@kernel
def blend_edges(images_BCHW, index_N, blend_N):
    """See `filters.blend_edges`.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        blend_N: float32 share of the edges.
    """
    channels, height, width = images_BCHW.shape[1:]
    area, padded_width = height * width, width + 2
    gray = np.empty((height + 2) * padded_width, np.float32)
    edges = np.empty(width, np.float32)
    for n in range(len(index_N)):
        image, blend = images_BCHW[index_N[n]].ravel(), blend_N[n]
        for y in range(height):
            row, line = y * width, (y + 1) * padded_width
            for c in range(channels):
                weight = ONE / np.float32(channels)
                if channels == 3:
                    weight = RED if c == 0 else GREEN if c == 1 else BLUE
                for x in range(width):
                    before = ZERO if c == 0 else gray[at(line + 1, x)]
                    gray[at(line + 1, x)] = before + weight * image[at(c * area + row, x)]
            gray[line], gray[line + width + 1] = gray[line + 1], gray[line + width]
        copy(padded_width, gray, 0, gray, padded_width)
        copy(padded_width, gray, (height + 1) * padded_width, gray, height * padded_width)
        for y in range(height):
            _sobel_row(width, gray, y * padded_width, padded_width, edges)
            for c in range(channels):
                row = c * area + y * width
                for x in range(width):
                    value = image[at(row, x)]
                    image[at(row, x)] = value + blend * (edges[x] - value)


@kernel
def _sobel_row(count, gray, start, stride, out):
    """Magnitude from the three rows that start `stride` apart."""
    two = np.float32(2)
    for x in range(count):
        above, here, below = at(start, x), at(start + stride, x), at(start + 2 * stride, x)
        left = gray[above] + two * gray[here] + gray[below]
        right = gray[at(above, 2)] + two * gray[at(here, 2)] + gray[at(below, 2)]
        top = gray[above] + two * gray[at(above, 1)] + gray[at(above, 2)]
        bottom = gray[below] + two * gray[at(below, 1)] + gray[at(below, 2)]
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
        half = side_N[n] / np.float32(2)
        for c in range(images_BCHW.shape[1]):
            plane = images_BCHW[index_N[n], c]
            mean = _mean(plane)
            for y in range(height):
                at_y = (np.float32(y) + HALF) / np.float32(height)
                if abs(at_y - y_N[n]) < half:
                    for x in range(width):
                        at_x = (np.float32(x) + HALF) / np.float32(width)
                        if abs(at_x - x_N[n]) < half:
                            plane[y, x] = mean


@kernel
def _mean(plane_HW):
    total = 0.0
    for y in range(plane_HW.shape[0]):
        row = ZERO
        for x in range(plane_HW.shape[1]):
            row += plane_HW[y, x]
        total += row
    return np.float32(total / plane_HW.size)
