"""Filters: what looks at the neighbours of a pixel."""

import triton
import triton.language as tl

from mast.augment.fused.rows import (
    UNTOUCHED,
    add,
    black,
    clip,
    gray,
    image_of,
    load,
    number,
    part_of,
    store,
    whole,
)


@triton.jit
def _mirrored(position, V: tl.constexpr):
    """Where a position outside the image lands; the outermost pixel is not repeated."""
    return (V - 1) - tl.abs((V - 1) - tl.abs(position))


@triton.jit(do_not_specialize=["count"])
def blur_along(
    table,
    halves,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT: tl.constexpr,
    BACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A Gaussian along x into the other half, or along y and back."""
    sample, _, pixel, live = part_of(V, BLOCK)
    half = whole(table, sample, AT, WIDTH)
    if half == UNTOUCHED:
        return
    source = image_of(halves, 1 - half if BACK else half, sample, count, V)
    target = image_of(halves, half if BACK else 1 - half, sample, count, V)
    sharpness = -0.5 / (number(table, sample, AT + 1, WIDTH) * number(table, sample, AT + 1, WIDTH))
    radius = whole(table, sample, AT + 2, WIDTH)
    x = pixel % V
    y = pixel // V
    red, green, blue = black(BLOCK)
    total = 0.0
    for t in range(-radius, radius + 1):
        weight = tl.exp(sharpness * t * t)
        there = _mirrored(y + t, V) * V + x if BACK else y * V + _mirrored(x + t, V)
        red, green, blue = add(source, there, live, weight, red, green, blue, V)
        total += weight
    store(target, pixel, live, clip(red / total), clip(green / total), clip(blue / total), V)


@triton.jit(do_not_specialize=["count"])
def sharpen(
    table,
    halves,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """See `filters.sharpen`; into the other half."""
    sample, _, pixel, live = part_of(V, BLOCK)
    half = whole(table, sample, AT, WIDTH)
    if half == UNTOUCHED:
        return
    source = image_of(halves, half, sample, count, V)
    factor = number(table, sample, AT + 1, WIDTH)
    x = pixel % V
    y = pixel // V
    within = live & (x > 0) & (x < V - 1) & (y > 0) & (y < V - 1)
    center_red, center_green, center_blue = load(source, pixel, live, V)
    red = 4.0 * center_red
    green = 4.0 * center_green
    blue = 4.0 * center_blue
    for t in tl.static_range(9):
        there = pixel + (t // 3 - 1) * V + (t % 3 - 1)
        red, green, blue = add(source, there, within, 1.0, red, green, blue, V)
    red = tl.where(within, clip(_between(red / 13.0, center_red, factor)), center_red)
    green = tl.where(within, clip(_between(green / 13.0, center_green, factor)), center_green)
    blue = tl.where(within, clip(_between(blue / 13.0, center_blue, factor)), center_blue)
    store(image_of(halves, 1 - half, sample, count, V), pixel, live, red, green, blue, V)


@triton.jit
def _between(first, second, share):
    return first + share * (second - first)


@triton.jit(do_not_specialize=["count"])
def correlate(
    table,
    halves,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT: tl.constexpr,
    T: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """With a filter of T × T taps of each sample's own, into the other half."""
    sample, _, pixel, live = part_of(V, BLOCK)
    half = whole(table, sample, AT, WIDTH)
    if half == UNTOUCHED:
        return
    source = image_of(halves, half, sample, count, V)
    x = pixel % V
    y = pixel // V
    red, green, blue = black(BLOCK)
    for t in range(T * T):
        weight = number(table, sample, AT + 1 + t, WIDTH)
        if weight != 0.0:
            there = _mirrored(y + t // T - T // 2, V) * V + _mirrored(x + t % T - T // 2, V)
            red, green, blue = add(source, there, live, weight, red, green, blue, V)
    target = image_of(halves, 1 - half, sample, count, V)
    store(target, pixel, live, clip(red), clip(green), clip(blue), V)


@triton.jit
def _luminance(image, x, y, live, V: tl.constexpr):
    """Of the nearest pixel of the image."""
    x = tl.minimum(tl.maximum(x, 0), V - 1)
    y = tl.minimum(tl.maximum(y, 0), V - 1)
    red, green, blue = load(image, y * V + x, live, V)
    return gray(red, green, blue)


@triton.jit(do_not_specialize=["count"])
def blend_edges(
    table,
    halves,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """See `filters.blend_edges`; into the other half."""
    sample, _, pixel, live = part_of(V, BLOCK)
    half = whole(table, sample, AT, WIDTH)
    if half == UNTOUCHED:
        return
    source = image_of(halves, half, sample, count, V)
    blend = number(table, sample, AT + 1, WIDTH)
    x = pixel % V
    y = pixel // V
    along_x = tl.zeros([BLOCK], tl.float32)
    along_y = tl.zeros([BLOCK], tl.float32)
    for t in tl.static_range(9):
        if t != 4:
            here = _luminance(source, x + (t % 3 - 1), y + (t // 3 - 1), live, V)
            along_x += (t % 3 - 1) * (2 - (t // 3 - 1) * (t // 3 - 1)) * here
            along_y += (t // 3 - 1) * (2 - (t % 3 - 1) * (t % 3 - 1)) * here
    edges = tl.minimum(tl.sqrt(along_x * along_x + along_y * along_y + 1e-6), 1.0)
    red, green, blue = load(source, pixel, live, V)
    target = image_of(halves, 1 - half, sample, count, V)
    red = _between(red, edges, blend)
    green = _between(green, edges, blend)
    blue = _between(blue, edges, blend)
    store(target, pixel, live, red, green, blue, V)
