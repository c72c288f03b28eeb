"""From canvases to views, compiled: `mast.augment.warp`.

A row of a canvas is packed: red, green, blue, red, …, so its pixel x is at 3 x. Canvases lie one
after the other in `values_T`, of their own sizes: `size_B2`, height and width.
"""

import math

import numpy as np

from mast.augment.compiled.rows import (
    HALF,
    ONE,
    ZERO,
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
def warp(
    images_BCVV, values_T, matrices_B33, aligned_B, bounded_B, step_B2, count_B2, start_B, size_B2,
    bicubic,
):  # fmt: skip
    """Draw every view: at once, or from a smaller image where it is turned or sheared."""
    size, reach, mean_C = images_BCVV.shape[2], 2 if bicubic else 1, np.empty(3, np.float32)
    for i in range(len(images_BCVV)):
        matrix_33, image = matrices_B33[i], images_BCVV[i].ravel()
        (height, width), start = size_B2[i], start_B[i]
        low_x, high_x = _reach(matrix_33[0])
        low_y, high_y = _reach(matrix_33[1])
        slack = ZERO if aligned_B[i] else _SLACK
        is_beyond = min(low_x, low_y) < slack or max(high_x, high_y) > ONE - slack
        if is_beyond:
            _mean_color(values_T, start, height, width, mean_C)
        if aligned_B[i]:
            scale_x, offset_x = matrix_33[0, 0], matrix_33[0, 2]
            scale_y, offset_y = matrix_33[1, 1], matrix_33[1, 2]
            _resize(
                values_T, start, height, width, scale_x, offset_x, scale_y, offset_y,
                bounded_B[i], reach, image, size, size,
            )  # fmt: skip
            if is_beyond:
                _fill_box(scale_x, offset_x, scale_y, offset_y, mean_C, images_BCVV[i])
            continue
        (step_x, step_y), (columns, rows) = step_B2[i], count_B2[i]
        # of the smaller image only what the view shows
        left, right = _shown(low_x * width / step_x, high_x * width / step_x, columns)
        top, bottom = _shown(low_y * height / step_y, high_y * height / step_y, rows)
        wide, high = right - left, bottom - top
        smaller = np.empty(3 * wide * high, np.float32)
        _resize(
            values_T, start, height, width,
            wide * step_x / width, left * step_x / width,
            high * step_y / height, top * step_y / height,
            False, 1, smaller, high, wide,
        )  # fmt: skip
        x_3 = matrix_33[0] * np.float32(width / step_x)
        y_3 = matrix_33[1] * np.float32(height / step_y)
        _sample(
            smaller, top, bottom, left, right, rows, columns, x_3, y_3, matrix_33, mean_C, image,
            size,
        )  # fmt: skip


@kernel
def _resize(
    values_T, start, height, width, scale_x, offset_x, scale_y, offset_y, bounded, reach,
    out, rows, columns,
):  # fmt: skip
    """Resize a box of a canvas."""
    most_x = _most_taps(reach * _support(scale_x, width, columns), width)
    most_y = _most_taps(reach * _support(scale_y, height, rows), height)
    start_x, start_y = np.empty(columns, np.int64), np.empty(rows, np.int64)
    # they are gathered two or more at a time: some lie past the last and count 0
    weight_x = np.empty((most_x + 2, columns), np.float32)
    weight_y = np.empty((most_y + 2, rows), np.float32)
    taps_x = _axis_weights(scale_x, offset_x, columns, width, bounded, reach, start_x, weight_x)
    taps_y = _axis_weights(scale_y, offset_y, rows, height, bounded, reach, start_y, weight_y)
    left, right = width, 0
    for x in range(columns):
        left, right = min(left, start_x[x]), max(right, start_x[x] + taps_x)
    for x in range(columns):
        start_x[x] = 3 * (start_x[x] - left)
    count, origin, plane = 3 * (right - left), start + 3 * left, rows * columns
    row = np.zeros(count + 6, np.float32)
    pair = np.empty(6 * columns, np.float32)
    ready = -2  # rows `ready` and `ready + 1` of the canvas are in the pair
    for v in range(rows):
        y = v if scale_y >= 0 else rows - 1 - v
        # enlarged: along the rows first, for each row of the canvas once
        if taps_y == 2 and reach == 1:
            for source_y in range(max(start_y[y], ready + 2), start_y[y] + 2):
                set_scaled(count, row, 0, values_T, origin + 3 * source_y * width, _SHARE)
                to = source_y % 2 * 3 * columns
                _resample_row(row, start_x, weight_x, taps_x, pair, to, columns)
            ready = start_y[y]
            upper, lower = ready % 2 * 3 * columns, (ready + 1) % 2 * 3 * columns
            above, below = weight_y[0, y], weight_y[1, y]
            for c in range(3):
                to = c * plane + y * columns
                first, second = upper + c * columns, lower + c * columns
                for x in range(columns):
                    value = above * pair[at(first, x)] + below * pair[at(second, x)]
                    out[at(to, x)] = clip(value)
        else:
            here = origin + 3 * start_y[y] * width
            set_scaled(count, row, 0, values_T, here, weight_y[0, y] * _SHARE)
            for t in range(1, taps_y):
                here += 3 * width
                add_scaled(count, row, 0, values_T, here, weight_y[t, y] * _SHARE)
            _resample_row(row, start_x, weight_x, taps_x, out, y * columns, plane)


@kernel
def _support(scale, pixels, size):
    return max(abs(scale) * (pixels / size), 1.0)


@kernel
def _most_taps(support, pixels):
    """How many pixels can be nearer than the support."""
    return min(math.ceil(2 * support - 1e-6), pixels)


@kernel
def _axis_weights(scale, offset, size, pixels, bounded, reach, start_V, weight_TV):
    """Antialias taps along one axis; returns how many a view pixel has."""
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
    if distance < 1.0:
        return (1.5 * distance - 2.5) * distance * distance + 1.0
    return ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0


@kernel
def _resample_row(row, start_V, weight_TV, taps, out, to, stride):
    """Gather the three channels of a packed row, two to four taps at a time, `stride` apart."""
    size, t = len(start_V), 0
    while t < taps:
        left = taps - t
        step = 4 if left == 4 or left > 5 else min(max(left, 2), 3)
        # only the sum is in [0, 1]: weights may be negative
        low, high = (ZERO, ONE) if step >= left else (-_FAR, _FAR)
        if step == 2:
            for x in range(size):
                here = at(3 * t, start_V[x])
                w0, w1 = weight_TV[t, x], weight_TV[t + 1, x]
                for c in range(3):
                    value = w0 * row[at(here, c)] + w1 * row[at(here, c + 3)]
                    target = at(to + c * stride, x)
                    total = value if t == 0 else out[target] + value
                    out[target] = min(max(total, low), high)
        elif step == 3:
            for x in range(size):
                here = at(3 * t, start_V[x])
                w0, w1, w2 = weight_TV[t, x], weight_TV[t + 1, x], weight_TV[t + 2, x]
                for c in range(3):
                    value = w0 * row[at(here, c)] + w1 * row[at(here, c + 3)]
                    value += w2 * row[at(here, c + 6)]
                    target = at(to + c * stride, x)
                    total = value if t == 0 else out[target] + value
                    out[target] = min(max(total, low), high)
        else:
            for x in range(size):
                here = at(3 * t, start_V[x])
                w0, w1 = weight_TV[t, x], weight_TV[t + 1, x]
                w2, w3 = weight_TV[t + 2, x], weight_TV[t + 3, x]
                for c in range(3):
                    value = w0 * row[at(here, c)] + w1 * row[at(here, c + 3)]
                    value += w2 * row[at(here, c + 6)] + w3 * row[at(here, c + 9)]
                    target = at(to + c * stride, x)
                    total = value if t == 0 else out[target] + value
                    out[target] = min(max(total, low), high)
        t += step


@kernel
def _fill_box(scale_x, offset_x, scale_y, offset_y, mean_C, image_CVV):
    """Give view pixels whose centre lies outside the canvas its mean color."""
    size = image_CVV.shape[1]
    for y in range(size):
        at_y = scale_y * ((np.float32(y) + HALF) / np.float32(size)) + offset_y
        for x in range(size):
            at_x = scale_x * ((np.float32(x) + HALF) / np.float32(size)) + offset_x
            if not (0 <= at_x <= 1 and 0 <= at_y <= 1):
                for c in range(3):
                    image_CVV[c, y, x] = mean_C[c]


@kernel
def _mean_color(values_T, start, height, width, mean_C):
    red, green, blue = 0, 0, 0
    for y in range(height):
        row_red, row_green, row_blue = np.uint32(0), np.uint32(0), np.uint32(0)
        here = start + 3 * y * width
        for x in range(width):
            row_red += np.uint32(values_T[at(here, 3 * x)])
            row_green += np.uint32(values_T[at(here, 3 * x + 1)])
            row_blue += np.uint32(values_T[at(here, 3 * x + 2)])
        red, green, blue = red + row_red, green + row_green, blue + row_blue
    whole = 255.0 * height * width
    mean_C[0], mean_C[1], mean_C[2] = red / whole, green / whole, blue / whole


@kernel
def _reach(line_3):
    """Least and largest coordinate of a view on the canvas."""
    low = line_3[2] + min(line_3[0], ZERO) + min(line_3[1], ZERO)
    return low, line_3[2] + max(line_3[0], ZERO) + max(line_3[1], ZERO)


@kernel
def _shown(low, high, count):
    """The first of `count` pixels that a view shows, and the one behind the last."""
    # one more for the neighbour to the right or below, one either way for rounding
    first = min(max(int(low) - 2, 0), count - 1)
    return first, max(min(int(high) + 3, count), first + 1)


@kernel
def _sample(
    source, top, bottom, left, right, rows, columns, x_3, y_3, matrix_33, mean_C, image, size
):
    """Interpolate bilinearly between pixels; outside lies the mean color."""
    width, plane = np.int32(right - left), (right - left) * (bottom - top)
    last_x, last_y = np.float32(columns - 1), np.float32(rows - 1)
    furthest_x, furthest_y = np.int32(right - 1), np.int32(bottom - 1)
    xx, xy, x0 = matrix_33[0]
    yx, yy, y0 = matrix_33[1]
    start = np.empty(size, np.int32)  # of the upper left of four neighbours
    beside, below = np.empty(size, np.int32), np.empty(size, np.int32)
    right_part, lower_part = np.empty(size, np.float32), np.empty(size, np.float32)
    inside = np.empty(size, np.bool_)
    for y in range(size):
        v = (np.float32(y) + HALF) / np.float32(size)
        for x in range(size):
            u = (np.float32(x) + HALF) / np.float32(size)
            at_x, at_y = xx * u + xy * v + x0, yx * u + yy * v + y0
            column = min(max(x_3[0] * u + x_3[1] * v + x_3[2] - HALF, ZERO), last_x)
            row = min(max(y_3[0] * u + y_3[1] * v + y_3[2] - HALF, ZERO), last_y)
            near, upper = np.int32(column), np.int32(row)
            right_part[at(0, x)] = column - np.float32(near)
            lower_part[at(0, x)] = row - np.float32(upper)
            beside[at(0, x)] = min(near + np.int32(1), furthest_x) - near
            below[at(0, x)] = width * (min(upper + np.int32(1), furthest_y) - upper)
            start[at(0, x)] = (upper - np.int32(top)) * width + near - np.int32(left)
            inside[at(0, x)] = (min(at_x, at_y) >= ZERO) & (max(at_x, at_y) <= ONE)
        for c in range(3):
            to, first = (c * size + y) * size, c * plane
            for x in range(size):
                nw, east, south = at(first, start[at(0, x)]), beside[at(0, x)], below[at(0, x)]
                right_share, lower = right_part[at(0, x)], lower_part[at(0, x)]
                sw, left_share = at(nw, south), ONE - right_share
                high = left_share * source[nw] + right_share * source[at(nw, east)]
                low = left_share * source[sw] + right_share * source[at(sw, east)]
                value = clip((ONE - lower) * high + lower * low)
                image[at(to, x)] = value if inside[at(0, x)] else mean_C[c]
