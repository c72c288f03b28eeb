"""One image file → pixels, and from there to the canvas.

Every mode that Pillow opens becomes RGB in 0 to 255. Transparent images are composited over white,
or over black if their visible part is itself white; of several pages or frames one is taken; EXIF
orientation is undone. What has more than 8 bits, or is to have other channels, is scaled by the
range of its set (`Reading`), or by its own where it is read alone.

Legend: H height, W width, C channels, S sheets of a canvas, P planes of bytes, V side of a view.
"""

import functools
import logging
import math
import re
import struct
from collections.abc import Callable
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin, UnidentifiedImageError

from mast.core.errors import UserError
from mast.core.files import special
from mast.core.reading import Reading, cut_center, cut_planes
from mast.data.bands import (
    Bands,
    beyond_pillow,
    has_four_bands,
    is_deep,
    needs,
    read_array,
    read_tiff,
)
from mast.data.formats import formats, load_pixels, orientation_of, refuse_bomb, refuse_size
from mast.data.ranges import alone, read_channels, shows_nothing

SMALL = 96  # pixels of a test view; up to here it shows the whole centre square
CROP_FRACTION = 0.875  # of the short side above it: 224 of 256

_UNDO_ORIENTATION = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

_log = logging.getLogger("mast")
Opened: TypeAlias = Image.Image | Bands
_T = TypeVar("_T")


class BrokenImageError(UserError):
    """An image that cannot be decoded.

    Args:
        name: The file, or the sample's name in its set.
        reason: What went wrong, as one line.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}; replace or remove this file")
        self.name = name
        self.reason = reason

    @classmethod
    def of(cls, name: str, error: Exception) -> "BrokenImageError":
        """What a decoder raised, in one line."""
        said = re.sub(r" <_io\.BytesIO[^>]*>", "", str(error))  # of what is no file of its own
        return cls(name, " ".join(said.split()) or type(error).__name__)


def open_image(
    file: Path | BytesIO,
    state: tuple[int, int] | None = None,
    page: int = 0,
    max_pixels: int | None = None,
) -> Image.Image | Bands:
    """Opens an image file, or its content; pixels that Pillow holds are not decoded yet.

    Args:
        file: A path, or what is in a file.
        state: Size in bytes and time of modification in ns that the file must have.
        page: Which of its pages or frames, from 0.
        max_pixels: The most that it may have; Pillow's bound, 179 million, if not given.

    Raises:
        ValueError: It is a pipe, which would not answer, or something else that is no file; it is
            in another state, made to take minutes, or has more pixels than it may.
        OSError: It is no image of a format that is read, or there is none.
        Exception: Its values, which Pillow cannot hold, cannot be decoded.
        EOFError: It has no such page.
    """
    if isinstance(file, Path):
        if kind := special(file):
            raise ValueError(f"{kind}, not a file")
        status = file.stat()
        if state not in (None, (status.st_size, status.st_mtime_ns)):
            raise ValueError("not the file that was there when the set was opened")
    with file.open("rb") if isinstance(file, Path) else nullcontext(file) as content:
        content.seek(0)
        begin = content.read(132)
        content.seek(0)
        if begin.startswith(b"\x93NUMPY"):
            return read_array(content, max_pixels)
        if begin.endswith(b"DICM"):
            try:
                from mast.data.dicom import read_dicom
            except ModuleNotFoundError:
                raise needs("dicom") from None
            return read_dicom(content, page, max_pixels)
        refuse_bomb(content)
    try:
        image = _opened(file) if max_pixels is None else _opened_unbound(file)
    except UnidentifiedImageError:
        if not begin.startswith((b"II", b"MM")):
            raise
        return read_tiff(file, page, max_pixels)
    try:
        if page:
            image.seek(page)
        if max_pixels is not None:
            refuse_size(*image.size, max_pixels)
        bands = beyond_pillow(image, file, page, max_pixels)
    except Exception:
        image.close()
        raise
    if bands:
        image.close()
    return bands or image


def _opened(file: Path | BytesIO) -> ImageFile.ImageFile:
    try:
        return Image.open(file, formats=formats())
    except Image.DecompressionBombError as error:
        raise ValueError(f"{error} max_pixels allows more") from error


def _opened_unbound(file: Path | BytesIO) -> ImageFile.ImageFile:
    """As `Image.open` does, without its bound, which is one for all of a process."""
    if isinstance(file, Path):
        with file.open("rb") as content:
            begin = content.read(16)
    else:
        file.seek(0)
        begin = file.read(16)
    for name in formats():
        make, accepts = Image.OPEN[name]
        if accepts is not None and accepts(begin) is not True:
            continue
        if not isinstance(file, Path):
            file.seek(0)
        try:
            return (_LargeTiff if name == "TIFF" else make)(file, str(file))  # type: ignore[arg-type]
        except (SyntaxError, IndexError, TypeError, struct.error):  # as Pillow goes on to the next
            continue
    raise UnidentifiedImageError("no image of a format that is read")


class _LargeTiff(TiffImagePlugin.TiffImageFile):
    """One that Pillow does not compare with its bound again when it is decoded."""

    def load_prepare(self) -> None:
        if self._im is None:
            self.im = Image.core.new(self.mode, self._tile_size)  # type: ignore[attr-defined]
        super().load_prepare()


def read_canvas(
    image: str | Path | Image.Image, side: int, reading: Reading | None = None
) -> tuple[np.ndarray, float]:
    """A file, or an image that is open already, as `to_canvas` gives it.

    Args:
        image: A file is decoded as for the cache. An image that is open stays as it is: a copy is
            decoded, whole, from which pixels of a large JPEG differ a little.
        side: Of a square with as many pixels as the canvas may have.
        reading: As of `to_canvas`.

    Raises:
        BrokenImageError: It cannot be decoded.
    """
    return _reading(image, lambda opened: to_canvas(opened, side, reading))


def read_test_view(
    image: str | Path | Image.Image, size: int, reading: Reading | None = None
) -> np.ndarray:
    """A file, or an image that is open already and stays as it is, as `to_test_view` gives it.

    Raises:
        BrokenImageError: It cannot be decoded.
    """
    return _reading(image, lambda opened: to_test_view(opened, size, reading))


def _reading(image: str | Path | Image.Image, read: Callable[[Opened], _T]) -> _T:
    """What is made of an image, by a name for what is broken."""
    try:
        if isinstance(image, Image.Image):
            load_pixels(image)
            return read(image.copy())
        with open_image(Path(image)) as opened:
            return read(opened)
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
        name = "an image" if isinstance(image, Image.Image) else str(image)
        raise BrokenImageError.of(name, error) from error


def to_pixels(image: Opened) -> np.ndarray:
    """Decodes an opened image at its full size.

    Args:
        image: An image as `open_image` returns it, not yet decoded.

    Returns:
        (H, W, 3) uint8.
    """
    return np.asarray(_upright_rgb(image)[0])


def to_canvas(image: Opened, side: int, reading: Reading | None = None) -> tuple[np.ndarray, float]:
    """Decodes an opened image, and shrinks the whole of it to what a canvas may have.

    A JPEG is decoded at the smallest scale of 1/2, 1/4, 1/8 that keeps twice the canvas, from where
    an antialiased filter does the rest: several times faster, and not visibly different.

    Args:
        image: An image as `open_image` returns it, not yet decoded.
        side: Of a square with as many pixels as the canvas may have.
        reading: Of its set; None reads it as RGB of 8 bits.

    Returns:
        The canvas, (H, W, 3) uint8, or its sheets (S, H, W, 3) where it has another layout; and
        width / height of the upright original.
    """
    if reading is not None and reading != Reading():
        bands = Bands.of(image) if isinstance(image, Image.Image) else image
        width, height = bands.size
        shape = canvas_shape(width, height, side)
        planes_PHW = reading.layout.split(_resized(bands, reading, shape))
        sheets_SHWC = planes_PHW.reshape(-1, 3, *planes_PHW.shape[1:]).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(sheets_SHWC), width / height
    width, height = image.size
    shrunk = canvas_shape(width, height, side)
    if isinstance(image, Image.Image) and image.format == "JPEG":
        image.draft(None, (2 * shrunk[0], 2 * shrunk[1]))  # None keeps the mode
    rgb, turned = _upright_rgb(image)
    if turned:
        (width, height), shrunk = (height, width), shrunk[::-1]
    if rgb.size != shrunk:
        rgb = rgb.resize(shrunk, Image.Resampling.LANCZOS, reducing_gap=3.0)
    return np.asarray(rgb), width / height


def crop_fraction(size: int) -> float:
    """The share of the short side that a test view of `size` pixels shows."""
    return CROP_FRACTION if size > SMALL else 1.0


def to_test_view(image: Opened, size: int, reading: Reading | None = None) -> np.ndarray:
    """Decodes an opened image whole, and cuts the view by which an encoder is tested.

    Args:
        image: An image as `open_image` returns it, not yet decoded.
        size: Side of the view in pixels, V.
        reading: Of its set; None reads it as RGB of 8 bits.

    Returns:
        (3, V, V) uint8, or planes (P, V, V) of another layout.

    Reference: torchvision `Resize(floor(size / crop_fraction(size)))` and `CenterCrop(size)`, bit
        for bit.
    """
    if reading is None or reading == Reading():
        rgb, _ = _upright_rgb(image)
        return cut_center(rgb, _short_side(rgb.size, size), size)
    bands = Bands.of(image) if isinstance(image, Image.Image) else image
    shown = _short_side(bands.size, size)
    return cut_planes(read_channels(bands, reading), shown, size, reading.layout)


def _short_side(sides: tuple[int, int], size: int) -> tuple[int, int]:
    """Width and height of an image when a test view is cut from it."""
    short, low = math.floor(size / crop_fraction(size)), min(sides)
    wide, high = (short if side == low else short * side // low for side in sides)
    return wide, high


def canvas_shape(width: int, height: int, side: int) -> tuple[int, int]:
    """Width and height of a canvas: those of the image, or of its shape and side × side pixels.

    Args:
        width: Of the image in pixels.
        height: Of the image in pixels.
        side: Of a square with as many pixels as the canvas may have.
    """
    scale = min(1.0, side / math.sqrt(width * height))
    short = max(1, round(min(width, height) * scale))
    long = min(round(max(width, height) * scale), max(side**2 // short, short))
    return (long, short) if width > height else (short, long)


def upright(image: Opened) -> Opened:
    """Decodes an opened image whole, with its EXIF orientation undone and forgotten."""
    if isinstance(image, Bands):
        return image
    rgb, _ = _upright_rgb(image)
    rgb.info = {}
    return rgb


def upright_size(image: Opened) -> tuple[int, int]:
    """Width and height in pixels once EXIF orientation is undone, of an image not yet decoded."""
    if isinstance(image, Bands):
        return image.size
    width, height = image.size
    turned = image.format != "TIFF" and orientation_of(image) >= 5  # Pillow says a TIFF's upright
    return (height, width) if turned else (width, height)


def _resized(bands: Bands, reading: Reading, size: tuple[int, int]) -> np.ndarray:
    """The channels of an image, (C, H, W) in [0, 1], shrunk to a width and height."""
    if bands.size == size:
        return np.stack([*read_channels(bands, reading)])
    shrunk = (
        Image.fromarray(channel_HW).resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
        for channel_HW in read_channels(bands, reading)
    )
    return np.stack([np.asarray(channel) for channel in shrunk]).clip(0, 1)


def _upright_rgb(image: Opened) -> tuple[Image.Image, bool]:
    """The image as RGB with its EXIF orientation undone, and whether that swapped its sides."""
    if isinstance(image, Image.Image) and (image.mode == "F" or image.mode.startswith("I")):
        image = Bands.of(image)
    if isinstance(image, Bands):
        reading = alone(image)
        if is_deep(image):
            _tell_of_range()
        image_CHW = np.stack([*read_channels(image, reading)])
        return Image.fromarray(reading.layout.split(image_CHW).transpose(1, 2, 0)), False
    load_pixels(image)
    # Asked after loading: Pillow itself turns a TIFF while it loads and then drops the tag.
    orientation = orientation_of(image)
    rgb = _rgb(image)
    if orientation in _UNDO_ORIENTATION:
        rgb = rgb.transpose(_UNDO_ORIENTATION[orientation])
    return rgb, orientation >= 5


@functools.cache
def _tell_of_range() -> None:
    """Says it once."""
    _log.warning(
        "images of more than 8 bits are read by the ranges of their types, as neither a set nor "
        "the reading of an encoder says another"
    )


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if has_four_bands(image) or not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    alpha = image.getchannel("A")
    bright = shows_nothing(np.asarray(image.convert("L")), np.asarray(alpha))
    ground = Image.new("RGB", image.size, "black" if bright else "white")
    ground.paste(image, mask=alpha)
    return ground
