"""The operators as kernels for a GPU: each acts on all samples, and passes over those untouched.

Their mathematics is that of the kernels of the same names in `mast.augment.operators`.
"""

from math import pi

import triton
import triton.language as tl

from mast.augment.fused.rows import (
    UNTOUCHED,
    add,
    black,
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
    zeros,
)

# as in color.ORDERS
CONTRAST: tl.constexpr = tl.constexpr(1)
SATURATION: tl.constexpr = tl.constexpr(2)
HUE: tl.constexpr = tl.constexpr(3)
PER_STEP = tl.constexpr(2 * pi * 2**-16)

# ----------------------------------------------------------------------------------------
# Tone: what changes a pixel by its own value and by sums over its image


@triton.jit
def _channel(sixth, chroma, low):
    """A channel by its hue in sixths of a turn."""
    within = sixth - tl.floor(sixth * (1 / 6)) * 6.0
    return clip(tl.abs(within - 3.0) - 1.0) * chroma + low


@triton.jit
def _rotate_hue(red, green, blue, turn):
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
def _adjust(row, step, mean, red, green, blue, of: tl.constexpr):
    """The step of the jitter: brightness, contrast, saturation or hue."""
    which = whole(row, of.jitter + 5 + step)
    if which == HUE:
        red, green, blue = _rotate_hue(red, green, blue, number(row, of.jitter + 4))
    else:
        factor = number(row, of.jitter + 1 + which)
        added = 0.0
        if which == CONTRAST:
            added = (1.0 - factor) * mean
        luminance = gray(red, green, blue) * tl.where(which == SATURATION, 1.0 - factor, 0.0)
        red = clip(red * factor + luminance + added)
        green = clip(green * factor + luminance + added)
        blue = clip(blue * factor + luminance + added)
    return red, green, blue


@triton.jit
def until_contrast(row, red, green, blue, of: tl.constexpr):
    """The steps of the jitter that come before the contrast, which needs what they leave."""
    before = 1
    for step in tl.static_range(4):
        if whole(row, of.jitter + 5 + step) == CONTRAST:
            before = 0
        if before == 1:
            red, green, blue = _adjust(row, step, 0.0, red, green, blue, of)
    return red, green, blue


@triton.jit
def tone(table, halves, sum_BCT, of: tl.constexpr):
    """Jitter, grayscale, invert, posterize, in place; `sum_BCT` is what `warp` left."""
    row, sample, _, pixel, live = part_of(table, of)
    jittered = half_of(row, of.jitter)
    grayed = half_of(row, of.grayscale)
    inverted = half_of(row, of.invert)
    posterized = half_of(row, of.posterize)
    half = tl.maximum(tl.maximum(jittered, grayed), tl.maximum(inverted, posterized))
    if half == UNTOUCHED:
        return
    image = image_of(halves, half, sample, of)
    red, green, blue = load(image, pixel, live, of)
    if jittered >= 0:
        mean = mean_of(sum_BCT + sample * (3 * of.tiles), of)
        for step in tl.static_range(4):
            red, green, blue = _adjust(row, step, mean, red, green, blue, of)
    if grayed >= 0:
        red = gray(red, green, blue)
        green = red
        blue = red
    if inverted >= 0:
        red = 1.0 - red
        green = 1.0 - green
        blue = 1.0 - blue
    if posterized >= 0:
        coarse = number(row, of.posterize + 1).to(tl.int32)
        red = _posterize(red, coarse)
        green = _posterize(green, coarse)
        blue = _posterize(blue, coarse)
    store(image, pixel, live, red, green, blue, of)


@triton.jit
def _levels(value):
    """One of 256 levels, as a whole number; see `color.to_levels`."""
    return (clip(value) * 255.999).to(tl.int32)


@triton.jit
def _posterize(value, step):
    return (_levels(value) // step * step).to(tl.float32) * (1 / 255)


@triton.jit
def count_levels(table, halves, histogram_BCL, of: tl.constexpr):
    """First of three kernels of equalize: how many values of each channel have which level."""
    row, sample, _, pixel, live = part_of(table, of)
    half = whole(row, of.equalize)
    if half == UNTOUCHED:
        return
    red, green, blue = load(image_of(halves, half, sample, of), pixel, live, of)
    there = histogram_BCL + sample * (3 * 256)
    _count(there, red, live)
    _count(there + 256, green, live)
    _count(there + 512, blue, live)


@triton.jit
def _count(histogram_L, value, live):
    found = tl.histogram(_levels(value), 256, mask=live)
    tl.atomic_add(histogram_L + tl.arange(0, 256), found, mask=found > 0, sem="relaxed")


@triton.jit
def make_tables(table, histogram_BCL, of: tl.constexpr):
    """Second: the histogram of a channel becomes the level that each level is turned into."""
    if whole(table + tl.program_id(0) // 3 * of.width, of.equalize) == UNTOUCHED:
        return
    level = tl.arange(0, 256)
    there = histogram_BCL + tl.program_id(0) * 256 + level
    found = tl.load(there)
    brightest = tl.max(tl.where(found > 0, level, 0))
    step = (of.side * of.side - tl.sum(tl.where(level == brightest, found, 0))) // 255
    if step > 0:
        below = tl.cumsum(found) - found
        flat = tl.minimum((below + step // 2) // step, 255)
        tl.store(there, tl.where(level == 0, 0, flat))
    else:
        tl.store(there, level)


@triton.jit
def look_up(table, halves, histogram_BCL, of: tl.constexpr):
    """Third: every value by its table, in place."""
    row, sample, _, pixel, live = part_of(table, of)
    half = whole(row, of.equalize)
    if half == UNTOUCHED:
        return
    image = image_of(halves, half, sample, of)
    red, green, blue = load(image, pixel, live, of)
    there = histogram_BCL + sample * (3 * 256)
    red = tl.load(there + _levels(red)).to(tl.float32) * (1 / 255)
    green = tl.load(there + 256 + _levels(green)).to(tl.float32) * (1 / 255)
    blue = tl.load(there + 512 + _levels(blue)).to(tl.float32) * (1 / 255)
    store(image, pixel, live, red, green, blue, of)


# ----------------------------------------------------------------------------------------
# Filters: what looks at the neighbours of a pixel, from one half into the other


@triton.jit
def _mirrored(position, of: tl.constexpr):
    """Where a position outside the image lands; the outermost pixel is not repeated."""
    return (of.side - 1) - tl.abs((of.side - 1) - tl.abs(position))


@triton.jit
def blur_along(table, halves, of: tl.constexpr):
    """A Gaussian along x into the other half, or along y and back."""
    row, sample, _, pixel, live = part_of(table, of)
    half = whole(row, of.gaussian_blur)
    if half == UNTOUCHED:
        return
    source = image_of(halves, 1 - half if of.back else half, sample, of)
    target = image_of(halves, half if of.back else 1 - half, sample, of)
    sigma = number(row, of.gaussian_blur + 1)
    sharpness = -0.5 / (sigma * sigma)
    radius = whole(row, of.gaussian_blur + 2)
    x = pixel % of.side
    y = pixel // of.side
    red, green, blue = black(of)
    total = 0.0
    for t in range(-radius, radius + 1):
        weight = tl.exp(sharpness * t * t)
        there = (
            _mirrored(y + t, of) * of.side + x if of.back else y * of.side + _mirrored(x + t, of)
        )
        red, green, blue = add(source, there, live, weight, red, green, blue, of)
        total += weight
    store(target, pixel, live, clip(red / total), clip(green / total), clip(blue / total), of)


@triton.jit
def sharpen(table, halves, of: tl.constexpr):
    """Away from a 3 × 3 smoothing or towards it; the border pixels stay."""
    row, sample, _, pixel, live = part_of(table, of)
    half = whole(row, of.sharpen)
    if half == UNTOUCHED:
        return
    source = image_of(halves, half, sample, of)
    factor = number(row, of.sharpen + 1)
    x = pixel % of.side
    y = pixel // of.side
    within = live & (x > 0) & (x < of.side - 1) & (y > 0) & (y < of.side - 1)
    center_red, center_green, center_blue = load(source, pixel, live, of)
    red = 4.0 * center_red
    green = 4.0 * center_green
    blue = 4.0 * center_blue
    for t in tl.static_range(9):
        there = pixel + (t // 3 - 1) * of.side + (t % 3 - 1)
        red, green, blue = add(source, there, within, 1.0, red, green, blue, of)
    red = tl.where(within, clip(_between(red / 13.0, center_red, factor)), center_red)
    green = tl.where(within, clip(_between(green / 13.0, center_green, factor)), center_green)
    blue = tl.where(within, clip(_between(blue / 13.0, center_blue, factor)), center_blue)
    store(image_of(halves, 1 - half, sample, of), pixel, live, red, green, blue, of)


@triton.jit
def _between(first, second, share):
    return first + share * (second - first)


@triton.jit
def correlate(table, halves, of: tl.constexpr):
    """With a filter of T × T taps of each sample's own."""
    row, sample, _, pixel, live = part_of(table, of)
    half = whole(row, of.motion_blur)
    if half == UNTOUCHED:
        return
    source = image_of(halves, half, sample, of)
    x = pixel % of.side - of.taps // 2
    y = pixel // of.side - of.taps // 2
    red, green, blue = black(of)
    for t in range(of.taps * of.taps):
        weight = number(row, of.motion_blur + 1 + t)
        if weight != 0.0:
            there = _mirrored(y + t // of.taps, of) * of.side + _mirrored(x + t % of.taps, of)
            red, green, blue = add(source, there, live, weight, red, green, blue, of)
    target = image_of(halves, 1 - half, sample, of)
    store(target, pixel, live, clip(red), clip(green), clip(blue), of)


@triton.jit
def _luminance(image, x, y, live, of: tl.constexpr):
    """Of the nearest pixel of the image."""
    x = tl.minimum(tl.maximum(x, 0), of.side - 1)
    y = tl.minimum(tl.maximum(y, 0), of.side - 1)
    red, green, blue = load(image, y * of.side + x, live, of)
    return gray(red, green, blue)


@triton.jit
def blend_edges(table, halves, of: tl.constexpr):
    """Blend with the gradient magnitude of the luminance."""
    row, sample, _, pixel, live = part_of(table, of)
    half = whole(row, of.blend_edges)
    if half == UNTOUCHED:
        return
    source = image_of(halves, half, sample, of)
    blend = number(row, of.blend_edges + 1)
    x = pixel % of.side
    y = pixel // of.side
    along_x = zeros(tl.float32, of)
    along_y = zeros(tl.float32, of)
    for t in tl.static_range(9):
        if t != 4:
            here = _luminance(source, x + (t % 3 - 1), y + (t // 3 - 1), live, of)
            along_x += (t % 3 - 1) * (2 - (t // 3 - 1) * (t // 3 - 1)) * here
            along_y += (t // 3 - 1) * (2 - (t % 3 - 1) * (t % 3 - 1)) * here
    edges = tl.minimum(tl.sqrt(along_x * along_x + along_y * along_y + 1e-6), 1.0)
    red, green, blue = load(source, pixel, live, of)
    red = _between(red, edges, blend)
    green = _between(green, edges, blend)
    blue = _between(blue, edges, blend)
    store(image_of(halves, 1 - half, sample, of), pixel, live, red, green, blue, of)


# ----------------------------------------------------------------------------------------
# What comes last: solarize, noise and cutout, and the view in the type that the network takes


@triton.jit
def _mix(bits):
    """See `noise._mix`; of uint32."""
    bits = bits ^ (bits >> 16)
    bits = bits * 0x7FEB352D
    bits = bits ^ (bits >> 15)
    bits = bits * 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def _normal(seed, position, of: tl.constexpr):
    """Numbers of `noise.normal_field`."""
    pairs = (3 * of.side * of.side + 1) // 2
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
def _with_grain(row, image, pixel, live, of: tl.constexpr):
    """The colors of an image, solarized, then with noise."""
    red, green, blue = load(image, pixel, live, of)
    if half_of(row, of.solarize) >= 0:
        threshold = number(row, of.solarize + 1)
        red = _solarize(red, threshold)
        green = _solarize(green, threshold)
        blue = _solarize(blue, threshold)
    if half_of(row, of.add_noise) >= 0:
        std = number(row, of.add_noise + 1)
        seed = _mix(whole(row, of.add_noise + 2).to(tl.uint32))
        area = of.side * of.side
        red = clip(red + std * _normal(seed, pixel, of))
        green = clip(green + std * _normal(seed, pixel + area, of))
        blue = clip(blue + std * _normal(seed, pixel + 2 * area, of))
    return red, green, blue


@triton.jit
def grain(table, halves, of: tl.constexpr):
    """Solarize and noise, in place, where something else follows."""
    row, sample, _, pixel, live = part_of(table, of)
    half = tl.maximum(half_of(row, of.solarize), half_of(row, of.add_noise))
    if half == UNTOUCHED:
        return
    image = image_of(halves, half, sample, of)
    red, green, blue = _with_grain(row, image, pixel, live, of)
    store(image, pixel, live, red, green, blue, of)


@triton.jit
def sum_colors(table, halves, sum_BCT, of: tl.constexpr):
    """The sums over tiles of the colors with which a cutout covers."""
    row, sample, tile, pixel, live = part_of(table, of)
    if half_of(row, of.cut_out) == UNTOUCHED:
        return
    image = image_of(halves, whole(row, of.half), sample, of)
    red, green, blue = _with_grain(row, image, pixel, live, of)
    there = sum_BCT + sample * (3 * of.tiles) + tile
    tl.store(there, tl.sum(tl.where(live, red, 0.0)))
    tl.store(there + of.tiles, tl.sum(tl.where(live, green, 0.0)))
    tl.store(there + 2 * of.tiles, tl.sum(tl.where(live, blue, 0.0)))


@triton.jit
def finish(table, halves, sum_BCT, views, of: tl.constexpr):
    """Solarize, noise and cutout, into the views, rounded once."""
    row, sample, _, pixel, live = part_of(table, of)
    image = image_of(halves, whole(row, of.half), sample, of)
    red, green, blue = _with_grain(row, image, pixel, live, of)
    if half_of(row, of.cut_out) >= 0:
        reach = number(row, of.cut_out + 1) / 2
        x = ((pixel % of.side).to(tl.float32) + 0.5) / of.side
        y = ((pixel // of.side).to(tl.float32) + 0.5) / of.side
        covered = tl.abs(x - number(row, of.cut_out + 2)) < reach
        covered &= tl.abs(y - number(row, of.cut_out + 3)) < reach
        sums = sum_BCT + sample * (3 * of.tiles)
        red = tl.where(covered, mean_of(sums, of), red)
        green = tl.where(covered, mean_of(sums + of.tiles, of), green)
        blue = tl.where(covered, mean_of(sums + 2 * of.tiles, of), blue)
    view = views + sample.to(tl.int64) * (3 * of.side * of.side)
    store(view, pixel, live, red, green, blue, of)
