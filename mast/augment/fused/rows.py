"""What the kernels are made of: a sample's numbers, its pixels, and where it lies.

A table has one row of whole numbers for each sample: of every operator of the chain where the
image lies before it acts (`UNTOUCHED` where the sample did not draw it), then what its kernel
takes; floating point numbers by their bits. A batch has two halves of memory: what acts on a pixel
alone treats an image where it lies, what looks at its neighbours leaves it in the other half.

Legend of the package: B samples, C = 3 channels, P canvas pixels along an axis, V view pixels, T
taps. A program treats BLOCK pixels of one sample; AT... is an operator's first column of WIDTH,
-1 where the chain does not have it.
"""

import triton
import triton.language as tl

UNTOUCHED = tl.constexpr(-1)
BLOCK = 256  # pixels of a program


@triton.jit
def part_of(V: tl.constexpr, BLOCK: tl.constexpr):
    """This program's sample, its tile, the tile's pixels, and which of these there are."""
    tiles = tl.cdiv(V * V, BLOCK)
    sample = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    pixel = tile * BLOCK + tl.arange(0, BLOCK)
    return sample, tile, pixel, pixel < V * V


@triton.jit
def whole(table, sample, column, WIDTH: tl.constexpr):
    """A whole number of a row."""
    return tl.load(table + sample * WIDTH + column)


@triton.jit
def number(table, sample, column, WIDTH: tl.constexpr):
    """A floating point number of a row."""
    return tl.load(table + sample * WIDTH + column).to(tl.float32, bitcast=True)


@triton.jit
def half_of(table, sample, AT: tl.constexpr, WIDTH: tl.constexpr):
    """In which half an image lies before an operator; UNTOUCHED where it is not drawn."""
    half = tl.full([], UNTOUCHED, tl.int32)
    if AT >= 0:
        half = whole(table, sample, AT, WIDTH)
    return half


@triton.jit
def image_of(halves, half, sample, count, V: tl.constexpr):
    """Where an image begins."""
    return halves + (half * count + sample).to(tl.int64) * (3 * V * V)


@triton.jit
def load(image, pixel, live, V: tl.constexpr):
    """Red, green and blue of some pixels."""
    red = tl.load(image + pixel, mask=live, other=0.0)
    green = tl.load(image + V * V + pixel, mask=live, other=0.0)
    blue = tl.load(image + 2 * V * V + pixel, mask=live, other=0.0)
    return red, green, blue


@triton.jit
def store(image, pixel, live, red, green, blue, V: tl.constexpr):
    """Write some pixels, in the type of the image."""
    kind = image.dtype.element_ty
    tl.store(image + pixel, red.to(kind), mask=live)
    tl.store(image + V * V + pixel, green.to(kind), mask=live)
    tl.store(image + 2 * V * V + pixel, blue.to(kind), mask=live)


@triton.jit
def add(image, pixel, live, weight, red, green, blue, V: tl.constexpr):
    """Colors and those of other pixels, weighted."""
    more_red, more_green, more_blue = load(image, pixel, live, V)
    return red + weight * more_red, green + weight * more_green, blue + weight * more_blue


@triton.jit
def black(BLOCK: tl.constexpr):
    """Colors to add to."""
    return (
        tl.zeros([BLOCK], tl.float32),
        tl.zeros([BLOCK], tl.float32),
        tl.zeros([BLOCK], tl.float32),
    )


@triton.jit
def clip(value):
    return tl.minimum(tl.maximum(value, 0.0), 1.0)


@triton.jit
def gray(red, green, blue):
    """The luminance, with the ITU-R 601 weights as torchvision rounds them."""
    return red * 0.2989 + green * 0.587 + blue * 0.114


@triton.jit
def mean_of(sum_T, V: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr):
    """The mean over an image from the sums over its tiles; TILES is a power of two."""
    tile = tl.arange(0, TILES)
    return tl.sum(tl.load(sum_T + tile, mask=tile < tl.cdiv(V * V, BLOCK), other=0.0)) / (V * V)
