"""What comes last: solarize, noise and cutout, and the view in the type that the network takes."""

from math import pi

import triton
import triton.language as tl

from mast.augment.fused.rows import (
    UNTOUCHED,
    clip,
    half_of,
    image_of,
    load,
    mean_of,
    number,
    part_of,
    store,
    whole,
)

PER_STEP = tl.constexpr(2 * pi * 2**-16)


@triton.jit
def _mix(bits):
    """See `noise._mix`; of uint32."""
    bits = bits ^ (bits >> 16)
    bits = bits * 0x7FEB352D
    bits = bits ^ (bits >> 15)
    bits = bits * 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def _normal(seed, position, V: tl.constexpr):
    """Numbers of `noise.normal_field`."""
    pairs: tl.constexpr = (3 * V * V + 1) // 2
    first = position < pairs
    pair = tl.where(first, position, position - pairs)
    bits = _mix(_mix((pair + 1).to(tl.uint32)) ^ seed)
    radius = tl.sqrt(-2.0 * tl.log(((bits >> 16) + 1).to(tl.float32) * (1 / 65536)))
    # a sine is a cosine a quarter of a turn earlier
    return radius * _cosine((bits & 0xFFFF).to(tl.int32) + tl.where(first, 0, 3 * 16384))


@triton.jit
def _cosine(turn):
    """Of an angle in 65,536ths of a full turn: brought below an eighth of one, then a series."""
    quarter = (turn + 8192) >> 14
    rest = (turn - (quarter << 14)).to(tl.float32) * PER_STEP
    square = rest * rest
    sine = 1 / 120 - square * (1 / 5040 - square * (1 / 362880))
    sine = rest * (1.0 - square * (1 / 6 - square * sine))
    cosine = 1 / 24 - square * (1 / 720 - square * (1 / 40320))
    cosine = 1.0 - square * (0.5 - square * cosine)
    value = tl.where((quarter & 1) == 1, sine, cosine)
    return tl.where(((quarter + 1) & 2) == 0, value, -value)


@triton.jit
def _solarize(value, threshold):
    return tl.where(value >= threshold, 1.0 - value, value)


@triton.jit
def _with_grain(
    table,
    sample,
    image,
    pixel,
    live,
    V: tl.constexpr,
    AT_SOLARIZE: tl.constexpr,
    AT_ADD_NOISE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The colors of an image, solarized, then with noise."""
    red, green, blue = load(image, pixel, live, V)
    if half_of(table, sample, AT_SOLARIZE, WIDTH) >= 0:
        threshold = number(table, sample, AT_SOLARIZE + 1, WIDTH)
        red = _solarize(red, threshold)
        green = _solarize(green, threshold)
        blue = _solarize(blue, threshold)
    if half_of(table, sample, AT_ADD_NOISE, WIDTH) >= 0:
        std = number(table, sample, AT_ADD_NOISE + 1, WIDTH)
        seed = _mix(whole(table, sample, AT_ADD_NOISE + 2, WIDTH).to(tl.uint32))
        red = clip(red + std * _normal(seed, pixel, V))
        green = clip(green + std * _normal(seed, pixel + V * V, V))
        blue = clip(blue + std * _normal(seed, pixel + 2 * V * V, V))
    return red, green, blue


@triton.jit(do_not_specialize=["count"])
def grain(
    table,
    halves,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT_SOLARIZE: tl.constexpr,
    AT_ADD_NOISE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Solarize and noise, in place, where something else follows."""
    sample, _, pixel, live = part_of(V, BLOCK)
    solarized = half_of(table, sample, AT_SOLARIZE, WIDTH)
    half = tl.maximum(solarized, half_of(table, sample, AT_ADD_NOISE, WIDTH))
    if half == UNTOUCHED:
        return
    image = image_of(halves, half, sample, count, V)
    red, green, blue = _with_grain(
        table, sample, image, pixel, live, V, AT_SOLARIZE, AT_ADD_NOISE, WIDTH
    )
    store(image, pixel, live, red, green, blue, V)


@triton.jit(do_not_specialize=["count"])
def sum_colors(
    table,
    halves,
    sum_BCT,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT: tl.constexpr,
    AT_SOLARIZE: tl.constexpr,
    AT_ADD_NOISE: tl.constexpr,
    AT_CUT_OUT: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sums over tiles of the colors with which a cutout covers."""
    sample, tile, pixel, live = part_of(V, BLOCK)
    if whole(table, sample, AT_CUT_OUT, WIDTH) == UNTOUCHED:
        return
    image = image_of(halves, whole(table, sample, AT, WIDTH), sample, count, V)
    red, green, blue = _with_grain(
        table, sample, image, pixel, live, V, AT_SOLARIZE, AT_ADD_NOISE, WIDTH
    )
    there = sum_BCT + sample * (3 * TILES) + tile
    tl.store(there, tl.sum(tl.where(live, red, 0.0)))
    tl.store(there + TILES, tl.sum(tl.where(live, green, 0.0)))
    tl.store(there + 2 * TILES, tl.sum(tl.where(live, blue, 0.0)))


@triton.jit(do_not_specialize=["count"])
def finish(
    table,
    halves,
    sum_BCT,
    views,
    count,
    V: tl.constexpr,
    WIDTH: tl.constexpr,
    AT: tl.constexpr,
    AT_SOLARIZE: tl.constexpr,
    AT_ADD_NOISE: tl.constexpr,
    AT_CUT_OUT: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Solarize, noise and cutout, into the views, rounded once."""
    sample, _, pixel, live = part_of(V, BLOCK)
    image = image_of(halves, whole(table, sample, AT, WIDTH), sample, count, V)
    red, green, blue = _with_grain(
        table, sample, image, pixel, live, V, AT_SOLARIZE, AT_ADD_NOISE, WIDTH
    )
    if half_of(table, sample, AT_CUT_OUT, WIDTH) >= 0:
        reach = number(table, sample, AT_CUT_OUT + 1, WIDTH) / 2
        x = ((pixel % V).to(tl.float32) + 0.5) / V
        y = ((pixel // V).to(tl.float32) + 0.5) / V
        covered = tl.abs(x - number(table, sample, AT_CUT_OUT + 2, WIDTH)) < reach
        covered &= tl.abs(y - number(table, sample, AT_CUT_OUT + 3, WIDTH)) < reach
        sums = sum_BCT + sample * (3 * TILES)
        red = tl.where(covered, mean_of(sums, V, BLOCK, TILES), red)
        green = tl.where(covered, mean_of(sums + TILES, V, BLOCK, TILES), green)
        blue = tl.where(covered, mean_of(sums + 2 * TILES, V, BLOCK, TILES), blue)
    store(views + sample.to(tl.int64) * (3 * V * V), pixel, live, red, green, blue, V)
