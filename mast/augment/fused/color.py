"""Tone: what changes a pixel by its own value and by sums over its image, in registers."""

import triton
import triton.language as tl

from mast.augment.fused.rows import (
    UNTOUCHED,
    clip,
    gray,
    half_of,
    image_of,
    load,
    mean_of,
    number,
    part_of,
    store,
    whole,
)

# as in color.ORDERS
CONTRAST: tl.constexpr = tl.constexpr(1)
SATURATION: tl.constexpr = tl.constexpr(2)
HUE: tl.constexpr = tl.constexpr(3)


@triton.jit
def _channel(sixth, chroma, low):
    """A channel by its hue in sixths of a turn."""
    within = sixth - tl.floor(sixth * (1 / 6)) * 6.0
    return clip(tl.abs(within - 3.0) - 1.0) * chroma + low


@triton.jit
def _rotate_hue(red, green, blue, turn):
    """See `color.rotate_hue`."""
    low = tl.minimum(tl.minimum(red, green), blue)
    high = tl.maximum(tl.maximum(red, green), blue)
    chroma = high - low
    sixth = tl.where(
        high == red,
        green - blue,
        tl.where(high == green, blue + 2.0 * chroma - red, red + 4.0 * chroma - green),
    )
    sixth = sixth / tl.maximum(chroma, 1e-12) + turn * 6.0
    return (
        _channel(sixth, chroma, low),
        _channel(sixth + 4.0, chroma, low),
        _channel(sixth + 2.0, chroma, low),
    )


@triton.jit
def _adjust(table, sample, step, mean, red, green, blue, AT: tl.constexpr, WIDTH: tl.constexpr):
    """The step of the jitter: brightness, contrast, saturation or hue."""
    which = whole(table, sample, AT + 5 + step, WIDTH)
    if which == HUE:
        red, green, blue = _rotate_hue(red, green, blue, number(table, sample, AT + 4, WIDTH))
    else:
        factor = number(table, sample, AT + 1 + which, WIDTH)
        added = 0.0
        if which == CONTRAST:
            added = (1.0 - factor) * mean
        luminance = gray(red, green, blue) * tl.where(which == SATURATION, 1.0 - factor, 0.0)
        red = clip(red * factor + luminance + added)
        green = clip(green * factor + luminance + added)
        blue = clip(blue * factor + luminance + added)
    return red, green, blue


@triton.jit
def until_contrast(table, sample, red, green, blue, AT: tl.constexpr, WIDTH: tl.constexpr):
    """The steps of the jitter that come before the contrast, which needs what they leave."""
    before = 1
    for step in tl.static_range(4):
        if whole(table, sample, AT + 5 + step, WIDTH) == CONTRAST:
            before = 0
        if before == 1:
            red, green, blue = _adjust(table, sample, step, 0.0, red, green, blue, AT, WIDTH)
    return red, green, blue


@triton.jit(do_not_specialize=["count"])
def tone(
    table,
    halves,
    sum_BCT,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT_JITTER: tl.constexpr,
    AT_GRAYSCALE: tl.constexpr,
    AT_INVERT: tl.constexpr,
    AT_POSTERIZE: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Jitter, grayscale, invert, posterize, in place; `sum_BCT` is what `warp` left."""
    sample, _, pixel, live = part_of(V, BLOCK)
    jittered = half_of(table, sample, AT_JITTER, WIDTH)
    grayed = half_of(table, sample, AT_GRAYSCALE, WIDTH)
    inverted = half_of(table, sample, AT_INVERT, WIDTH)
    posterized = half_of(table, sample, AT_POSTERIZE, WIDTH)
    half = tl.maximum(tl.maximum(jittered, grayed), tl.maximum(inverted, posterized))
    if half == UNTOUCHED:
        return
    image = image_of(halves, half, sample, count, V)
    red, green, blue = load(image, pixel, live, V)
    if jittered >= 0:
        mean = mean_of(sum_BCT + sample * (3 * TILES), V, BLOCK, TILES)
        for step in tl.static_range(4):
            red, green, blue = _adjust(
                table, sample, step, mean, red, green, blue, AT_JITTER, WIDTH
            )
    if grayed >= 0:
        red = gray(red, green, blue)
        green = red
        blue = red
    if inverted >= 0:
        red = 1.0 - red
        green = 1.0 - green
        blue = 1.0 - blue
    if posterized >= 0:
        coarse = number(table, sample, AT_POSTERIZE + 1, WIDTH).to(tl.int32)
        red = _posterize(red, coarse)
        green = _posterize(green, coarse)
        blue = _posterize(blue, coarse)
    store(image, pixel, live, red, green, blue, V)


@triton.jit
def levels_of(value):
    """One of 256 levels, as a whole number; see `color.to_levels`."""
    return (clip(value) * 255.999).to(tl.int32)


@triton.jit
def _posterize(value, step):
    return (levels_of(value) // step * step).to(tl.float32) * (1 / 255)


@triton.jit(do_not_specialize=["count"])
def count_levels(
    table,
    halves,
    histogram_BCL,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """First of three kernels of equalize: how many values of each channel have which level."""
    sample, _, pixel, live = part_of(V, BLOCK)
    half = whole(table, sample, AT, WIDTH)
    if half == UNTOUCHED:
        return
    red, green, blue = load(image_of(halves, half, sample, count, V), pixel, live, V)
    there = histogram_BCL + sample * (3 * 256)
    _count(there, red, live)
    _count(there + 256, green, live)
    _count(there + 512, blue, live)


@triton.jit
def _count(histogram_L, value, live):
    found = tl.histogram(levels_of(value), 256, mask=live)
    tl.atomic_add(histogram_L + tl.arange(0, 256), found, mask=found > 0, sem="relaxed")


@triton.jit
def make_tables(table, histogram_BCL, V: tl.constexpr, WIDTH: tl.constexpr, AT: tl.constexpr):
    """Second: the histogram of a channel becomes the level that each level is turned into."""
    sample = tl.program_id(0) // 3
    if whole(table, sample, AT, WIDTH) == UNTOUCHED:
        return
    level = tl.arange(0, 256)
    there = histogram_BCL + tl.program_id(0) * 256 + level
    found = tl.load(there)
    brightest = tl.max(tl.where(found > 0, level, 0))
    step = (V * V - tl.sum(tl.where(level == brightest, found, 0))) // 255
    if step > 0:
        below = tl.cumsum(found) - found
        flat = tl.minimum((below + step // 2) // step, 255)
        tl.store(there, tl.where(level == 0, 0, flat))
    else:
        tl.store(there, level)


@triton.jit(do_not_specialize=["count"])
def look_up(
    table,
    halves,
    histogram_BCL,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Third: every value by its table, in place."""
    sample, _, pixel, live = part_of(V, BLOCK)
    half = whole(table, sample, AT, WIDTH)
    if half == UNTOUCHED:
        return
    image = image_of(halves, half, sample, count, V)
    red, green, blue = load(image, pixel, live, V)
    there = histogram_BCL + sample * (3 * 256)
    red = tl.load(there + levels_of(red)).to(tl.float32) * (1 / 255)
    green = tl.load(there + 256 + levels_of(green)).to(tl.float32) * (1 / 255)
    blue = tl.load(there + 512 + levels_of(blue)).to(tl.float32) * (1 / 255)
    store(image, pixel, live, red, green, blue, V)
