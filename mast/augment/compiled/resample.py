"""From canvases to views, compiled: the two ways of `mast.augment.warp`.

A row of a canvas is packed: red, green, blue, red, …, so its pixel x is at 3 x.
"""

import math

import numpy as np

from mast.augment.compiled.rows import (
    HALF,
    ONE,
    ZERO,
    add_pair,
    add_scaled,
    at,
    clip,
    kernel,
    set_scaled,
)

_SHARE = np.float32(1 / 255)
_FAR = np.float32(np.inf)
# A matrix that maps to a border may round to either side of it.
_SLACK = np.float32(1e-3)


@kernel
def resize_boxes(images_BCVV, index_N, boxes_N4, bounded_N, canvas_BPPC, bicubic):
    """See `warp.resize_boxes`.

    Args:
        images_BCVV: Where the views go.
        index_N: Samples to treat.
        boxes_N4: float32 scale and offset along x, then along y, from the view to the canvas.
        bounded_N: bool, only pixels of the box count.
        canvas_BPPC: uint8 canvases.
        bicubic: bool, weights are cubics instead of triangles.
    """
    pixels, size = canvas_BPPC.shape[1], images_BCVV.shape[2]
    reach = 2 if bicubic else 1
    most = 2
    for n in range(len(index_N)):
        for axis in range(0, 4, 2):
            support = reach * _support(boxes_N4[n, axis], pixels, size)
            most = max(most, _most_taps(support, pixels))
    start_x, start_y = np.empty(size, np.int64), np.empty(size, np.int64)
    most += 2  # they are gathered two or three at a time: some lie past the last and count 0
    weight_x, weight_y = np.empty((most, size), np.float32), np.empty((most, size), np.float32)
    row = np.zeros(3 * (pixels + 2), np.float32)
    pair = np.empty(6 * size, np.float32)
    mean_C = np.empty(3, np.float32)
    for n in range(len(index_N)):
        i, bounded = index_N[n], bounded_N[n]
        scale_x, offset_x, scale_y, offset_y = boxes_N4[n]
        taps_x = _axis_weights(scale_x, offset_x, size, pixels, bounded, reach, start_x, weight_x)
        taps_y = _axis_weights(scale_y, offset_y, size, pixels, bounded, reach, start_y, weight_y)
        left, right = pixels, 0
        for x in range(size):
            left, right = min(left, start_x[x]), max(right, start_x[x] + taps_x)
        for x in range(size):
            start_x[x] = 3 * (start_x[x] - left)
        count, canvas = 3 * (right - left), canvas_BPPC[i].ravel()
        image = images_BCVV[i].ravel()
        ready = -2  # rows `ready` and `ready + 1` of the canvas are in the pair
        for v in range(size):
            y = v if scale_y >= 0 else size - 1 - v
            # enlarged: along the rows first, for each row of the canvas once
            if taps_y == 2 and reach == 1:
                for source_y in range(max(start_y[y], ready + 2), start_y[y] + 2):
                    set_scaled(count, row, 0, canvas, 3 * (source_y * pixels + left), _SHARE)
                    _resample_row(
                        row, start_x, weight_x, taps_x, pair, source_y % 2 * 3 * size, size
                    )
                ready = start_y[y]
                upper, lower = ready % 2 * 3 * size, (ready + 1) % 2 * 3 * size
                above, below = weight_y[0, y], weight_y[1, y]
                for c in range(3):
                    to, first, second = (c * size + y) * size, upper + c * size, lower + c * size
                    for x in range(size):
                        value = above * pair[at(first, x)] + below * pair[at(second, x)]
                        image[at(to, x)] = clip(value)
            else:
                start = 3 * (start_y[y] * pixels + left)
                set_scaled(count, row, 0, canvas, start, weight_y[0, y] * _SHARE)
                for t in range(1, taps_y):
                    start += 3 * pixels
                    add_scaled(count, row, 0, canvas, start, weight_y[t, y] * _SHARE)
                _resample_row(row, start_x, weight_x, taps_x, image, y * size, size * size)
        _fill_box(canvas_BPPC[i], scale_x, offset_x, scale_y, offset_y, mean_C, images_BCVV[i])


@kernel
def _support(scale, pixels, size):
    return max(abs(scale) * (pixels / size), 1.0)


@kernel
def _most_taps(support, pixels):
    """How many pixels can be nearer than the support."""
    return min(math.ceil(2 * support - 1e-6), pixels)


@kernel
def _axis_weights(scale, offset, size, pixels, bounded, reach, start_V, weight_TV):
    """Antialias taps along one axis; returns how many a view pixel has.

    Args:
        reach: How far a weight goes where nothing shrinks: a pixel for triangles, two for cubics.
        start_V: Gets the first canvas pixel of each view pixel.
        weight_TV: Gets the weights from that pixel on, and two zeros.
    """
    support = _support(scale, pixels, size)
    taps = _most_taps(reach * support, pixels)
    low, high = 0.0, float(pixels)
    if bounded:
        low = min(offset, offset + scale) * pixels - 1e-3
        high = max(offset, offset + scale) * pixels + 1e-3
        if math.floor(high - 0.5) < math.ceil(low - 0.5):  # no pixel's centre is inside
            low, high = 0.0, float(pixels)
    for v in range(size):
        center = (scale * ((v + 0.5) / size) + offset) * pixels
        # the first whose centre is nearer than the support
        first = min(max(math.floor(center - reach * support + 0.5), 0), pixels - taps)
        total = 0.0
        for t in range(taps):
            position = first + t + 0.5
            distance = abs(position - center) / support
            weight = _cubic(distance) if reach == 2 else 1.0 - distance
            if distance > reach or position < low or position > high:
                weight = 0.0
            weight_TV[t, v] = weight
            total += weight
        for t in range(taps):
            weight_TV[t, v] = weight_TV[t, v] / max(total, 1e-6)
        weight_TV[taps : taps + 2, v] = ZERO
        start_V[v] = first
    return taps


@kernel
def _cubic(distance):
    """See `warp._cubic`; for distances of up to two."""
    if distance < 1.0:
        return (1.5 * distance - 2.5) * distance * distance + 1.0
    return ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0


@kernel
def _resample_row(row, start_V, weight_TV, taps, out, to, stride):
    """Gather the three channels of a packed row, two or three taps at a time, `stride` apart."""
    size = len(start_V)
    if taps <= 2:
        for x in range(size):
            here, w0, w1 = start_V[x], weight_TV[0, x], weight_TV[1, x]
            for c in range(3):
                value = w0 * row[at(here, c)] + w1 * row[at(here, c + 3)]
                out[at(to + c * stride, x)] = clip(value)
        return
    for t in range(0, taps, 3):
        # only the sum is in [0, 1]: weights may be negative
        low, high = (ZERO, ONE) if t + 3 >= taps else (-_FAR, _FAR)
        for x in range(size):
            here = at(3 * t, start_V[x])
            w0, w1, w2 = weight_TV[t, x], weight_TV[t + 1, x], weight_TV[t + 2, x]
            for c in range(3):
                value = (
                    w0 * row[at(here, c)] + w1 * row[at(here, c + 3)] + w2 * row[at(here, c + 6)]
                )
                target = at(to + c * stride, x)
                total = value if t == 0 else out[target] + value
                out[target] = min(max(total, low), high)


@kernel
def _fill_box(canvas_PPC, scale_x, offset_x, scale_y, offset_y, mean_C, image_CVV):
    """Give view pixels whose centre lies outside the canvas its mean colour."""
    size = image_CVV.shape[1]
    low_x, high_x = min(offset_x, offset_x + scale_x), max(offset_x, offset_x + scale_x)
    low_y, high_y = min(offset_y, offset_y + scale_y), max(offset_y, offset_y + scale_y)
    if min(low_x, low_y) >= 0 and max(high_x, high_y) <= 1:
        return  # centres lie half a pixel inside the box
    _mean_color(canvas_PPC, mean_C)
    for y in range(size):
        at_y = scale_y * ((np.float32(y) + HALF) / np.float32(size)) + offset_y
        for x in range(size):
            at_x = scale_x * ((np.float32(x) + HALF) / np.float32(size)) + offset_x
            if not (0 <= at_x <= 1 and 0 <= at_y <= 1):
                for c in range(3):
                    image_CVV[c, y, x] = mean_C[c]


@kernel
def _mean_color(canvas_PPC, mean_C):
    pixels = canvas_PPC.shape[0]
    red, green, blue = 0, 0, 0
    for y in range(pixels):
        row_red, row_green, row_blue = np.uint32(0), np.uint32(0), np.uint32(0)
        for x in range(pixels):
            row_red += np.uint32(canvas_PPC[y, x, 0])
            row_green += np.uint32(canvas_PPC[y, x, 1])
            row_blue += np.uint32(canvas_PPC[y, x, 2])
        red, green, blue = red + row_red, green + row_green, blue + row_blue
    whole = 255.0 * pixels * pixels
    mean_C[0], mean_C[1], mean_C[2] = red / whole, green / whole, blue / whole


@kernel
def warp_affine(images_BCVV, index_N, matrices_N33, extent_N2, canvas_BPPC):
    """See `warp.warp_affine`.

    Args:
        images_BCVV: Where the views go.
        index_N: Samples to treat.
        matrices_N33: float32, from the view to the canvas, normalised.
        extent_N2: Width and height of the box that shrinks to the view, as shares of the canvas's.
        canvas_BPPC: uint8 canvases of two pixels or more.
    """
    pixels, size = canvas_BPPC.shape[1], images_BCVV.shape[2]
    smooth = np.empty(3 * pixels * pixels, np.float32)
    mean_C = np.empty(3, np.float32)
    for n in range(len(index_N)):
        i, matrix_33 = index_N[n], matrices_N33[n]
        canvas = canvas_BPPC[i].ravel()
        along_x = _triangle(extent_N2[n, 0] * np.float32(pixels / size))
        along_y = _triangle(extent_N2[n, 1] * np.float32(pixels / size))
        left, right = _reach(matrix_33[0])
        upper, lower = _reach(matrix_33[1])
        if min(left, upper) < _SLACK or max(right, lower) > ONE - _SLACK:
            _mean_color(canvas_BPPC[i], mean_C)
        # one row more for the lower neighbour, one either way for rounding
        first = min(max(int(upper * pixels) - 2, 0), pixels - 2)
        stop = max(min(int(lower * pixels) + 3, pixels), first + 2)
        _low_pass(canvas, pixels, first, stop, along_x, along_y, smooth)
        _sample(smooth, pixels, matrix_33, mean_C, images_BCVV[i].ravel(), size)


@kernel
def _reach(line_3):
    """Least and largest coordinate of a view on the canvas."""
    low = line_3[2] + min(line_3[0], ZERO) + min(line_3[1], ZERO)
    return low, line_3[2] + max(line_3[0], ZERO) + max(line_3[1], ZERO)


@kernel
def _triangle(shrink):
    """Half of the symmetric filter, from its centre on; only that where nothing shrinks."""
    radius = max(math.ceil(shrink) - 1, 0)
    weights_T = np.empty(radius + 1, np.float32)
    for t in range(radius + 1):
        weights_T[t] = max(1.0 - t / max(shrink, 1.0), 0.0)
    return weights_T


@kernel
def _inside_share(weights_T, position, pixels):
    """The sum of the weights that fall on the canvas."""
    total = weights_T[0]
    for t in range(1, len(weights_T)):
        total += weights_T[t] * np.float32((position >= t) + (position + t < pixels))
    return total


@kernel
def _low_pass(canvas, pixels, first, stop, along_x, along_y, out):
    """Filter packed rows across and along, cut and normalised at the border, to [0, 1].

    Args:
        canvas: Flat, P x 3 P, uint8; out is alike, float32.
        pixels: P.
        first: The rows of the result that are wanted, up to `stop`.
        along_x: Half of a symmetric filter, as `_triangle` gives it.
    """
    width, reach = 3 * pixels, 3 * (len(along_x) - 1)
    inverse = np.empty(width, np.float32)
    for q in range(width):
        inverse[q] = ONE / _inside_share(along_x, q // 3, pixels)
    padded = np.zeros(width + 2 * reach, np.float32)
    for y in range(first, stop):
        share, here = _SHARE / _inside_share(along_y, y, pixels), y * width
        set_scaled(width, padded, reach, canvas, here, along_y[0] * share)
        for t in range(1, len(along_y)):
            if y >= t:
                add_scaled(width, padded, reach, canvas, here - t * width, along_y[t] * share)
            if y + t < pixels:
                add_scaled(width, padded, reach, canvas, here + t * width, along_y[t] * share)
        set_scaled(width, out, here, padded, reach, along_x[0])
        for t in range(1, len(along_x)):
            add_pair(width, out, here, padded, reach - 3 * t, reach + 3 * t, along_x[t])
        if reach:
            for q in range(width):
                out[at(here, q)] *= inverse[at(0, q)]


@kernel
def _sample(source, pixels, matrix_33, mean_C, image, size):
    """Interpolate bilinearly between packed pixels; outside lies the mean colour.

    Args:
        source: Flat, P x 3 P.
        pixels: P, at least 2.
        image: Flat planes, 3 x V x V.
        size: V.
    """
    width, whole, last = 3 * pixels, np.float32(pixels), np.float32(pixels - 1)
    furthest = np.int32(pixels - 2)
    xx, xy, x0 = matrix_33[0]
    yx, yy, y0 = matrix_33[1]
    start = np.empty(size, np.int32)  # of the upper left of four neighbours
    right_part, lower_part = np.empty(size, np.float32), np.empty(size, np.float32)
    inside = np.empty(size, np.bool_)
    for y in range(size):
        v = (np.float32(y) + HALF) / np.float32(size)
        for x in range(size):
            u = (np.float32(x) + HALF) / np.float32(size)
            at_x, at_y = xx * u + xy * v + x0, yx * u + yy * v + y0
            column = min(max(at_x * whole - HALF, ZERO), last)
            row = min(max(at_y * whole - HALF, ZERO), last)
            left, top = min(np.int32(column), furthest), min(np.int32(row), furthest)
            right_part[at(0, x)] = column - np.float32(left)
            lower_part[at(0, x)] = row - np.float32(top)
            start[at(0, x)] = top * np.int32(width) + np.int32(3) * left
            inside[at(0, x)] = (min(at_x, at_y) >= ZERO) & (max(at_x, at_y) <= ONE)
        for x in range(size):
            upper, right, lower = start[at(0, x)], right_part[at(0, x)], lower_part[at(0, x)]
            left = ONE - right
            for c in range(3):
                nw, sw = at(upper, c), at(upper + width, c)
                above = left * source[nw] + right * source[at(nw, 3)]
                below = left * source[sw] + right * source[at(sw, 3)]
                value = clip((ONE - lower) * above + lower * below)
                target = at((c * size + y) * size, x)
                image[target] = value if inside[at(0, x)] else mean_C[c]
