"""Building blocks of the kernels: a sample's parameters, pixels and position.

A table has one row of whole numbers for each sample: of every operator of the chain where the
image lies before it acts (`UNTOUCHED` where the sample did not draw it), then what its kernel
takes; floating point numbers by their bits. Every image has two halves of memory: what acts on a
pixel alone treats it where it lies, what looks at its neighbours leaves it in the other half.

Legend of the package: B samples, C = 3 channels, P canvas pixels along an axis, V view pixels, T
taps. A program treats some pixels of one sample.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

UNTOUCHED = tl.constexpr(-1)
ABSENT = -1  # the column of an operator that a launch does not treat


@dataclass(frozen=True)
class Constants:
    """What a kernel is compiled for, `of` in its arguments.

    Args:
        side: Of the views, V.
        width: Of the table's rows.
        block: Pixels of a program.
        tiles: Room for a number of each program of a sample, a power of two.
        half: The column that says where the image lies after all other kernels.
        taps: Side of the filter of a motion blur.
        bicubic: Whether to use bicubic resampling without rotation or shear.
        back: Whether a blur is along y, and back into the half that it came from.
        others: The first column of each operator's numbers, by the name of its kernel.
    """

    side: int
    width: int
    block: int
    tiles: int
    half: int
    taps: int = 0
    bicubic: bool = False
    back: bool = False
    jitter: int = ABSENT
    grayscale: int = ABSENT
    invert: int = ABSENT
    posterize: int = ABSENT
    equalize: int = ABSENT
    gaussian_blur: int = ABSENT
    sharpen: int = ABSENT
    motion_blur: int = ABSENT
    solarize: int = ABSENT
    add_noise: int = ABSENT
    blend_edges: int = ABSENT
    cut_out: int = ABSENT


@triton.jit
def part_of(table, of: tl.constexpr):
    """This program's row and sample, its tile, the tile's pixels, and which of these there are."""
    tiles = tl.cdiv(of.side * of.side, of.block)
    sample = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    pixel = tile * of.block + tl.arange(0, of.block)
    return table + sample * of.width, sample, tile, pixel, pixel < of.side * of.side


@triton.jit
def whole(row, column):
    """A whole number of a row."""
    return tl.load(row + column)


@triton.jit
def number(row, column):
    """A floating point number of a row."""
    return tl.load(row + column).to(tl.float32, bitcast=True)


@triton.jit
def half_of(row, column: tl.constexpr):
    """In which half an image lies before an operator; UNTOUCHED where it is not drawn."""
    half = tl.full([], UNTOUCHED, tl.int32)
    if column >= 0:
        half = whole(row, column)
    return half


@triton.jit
def image_of(halves, half, sample, of: tl.constexpr):
    """Where an image begins."""
    return halves + (2 * sample + half).to(tl.int64) * (3 * of.side * of.side)


@triton.jit
def load(image, pixel, live, of: tl.constexpr):
    """Red, green and blue of some pixels."""
    area = of.side * of.side
    red = tl.load(image + pixel, mask=live, other=0.0)
    green = tl.load(image + area + pixel, mask=live, other=0.0)
    blue = tl.load(image + 2 * area + pixel, mask=live, other=0.0)
    return red, green, blue


@triton.jit
def store(image, pixel, live, red, green, blue, of: tl.constexpr):
    """Write some pixels, in the type of the image."""
    area = of.side * of.side
    kind = image.dtype.element_ty
    tl.store(image + pixel, red.to(kind), mask=live)
    tl.store(image + area + pixel, green.to(kind), mask=live)
    tl.store(image + 2 * area + pixel, blue.to(kind), mask=live)


@triton.jit
def add(image, pixel, live, weight, red, green, blue, of: tl.constexpr):
    """Colors and those of other pixels, weighted."""
    more_red, more_green, more_blue = load(image, pixel, live, of)
    return red + weight * more_red, green + weight * more_green, blue + weight * more_blue


@triton.jit
def zeros(kind: tl.constexpr, of: tl.constexpr):
    """One for each pixel of a program."""
    block: tl.constexpr = of.block
    return tl.zeros([block], kind)


@triton.jit
def black(of: tl.constexpr):
    """Colors to add to."""
    zero = zeros(tl.float32, of)
    return zero, zero, zero


@triton.jit
def clip(value):
    return tl.minimum(tl.maximum(value, 0.0), 1.0)


@triton.jit
def gray(red, green, blue):
    """The luminance, with the ITU-R 601 weights as torchvision rounds them."""
    return red * 0.2989 + green * 0.587 + blue * 0.114


@triton.jit
def mean_of(sum_T, of: tl.constexpr):
    """The mean over an image from the sums over its tiles."""
    tile = tl.arange(0, of.tiles)
    area = of.side * of.side
    return tl.sum(tl.load(sum_T + tile, mask=tile < tl.cdiv(area, of.block), other=0.0)) / area
