"""Decode image files to canvases and test views.

All modes of Pillow become RGB in 0 to 255. Transparent images are composited over white, or over
black if their visible part is white; EXIF orientation is applied. Images of more than 8 bits, or
other channels, are scaled by the range of their set (`Reading`), or by their own if read alone.


Legend: H height, W width, C channels, S sheets of a canvas, P planes of bytes, V side of a view.
"""

import functools
import logging
import math
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin, UnidentifiedImageError

from mast.core.errors import UserError, reason_of
from mast.core.files import special, state_of
from mast.core.reading import RGB, Reading, cut_center, cut_planes
from mast.data.formats import (
    Bands,
    formats,
    is_deep,
    load_pixels,
    needed_chunks,
    orientation_of,
    read_array,
    read_deep,
    read_tiff,
    refuse_size,
    undo_orientation,
)
from mast.data.profiles import in_srgb
from mast.data.ranges import alone, read_channels, shows_nothing

Opened: TypeAlias = Image.Image | Bands
_log = logging.getLogger("mast")


class BrokenImageError(UserError):
    """An image that cannot be decoded, with its name and a one-line reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}; replace or remove this file")
        self.name = name
        self.reason = reason


@contextmanager
def naming(name: Callable[[], str]) -> Iterator[None]:
    """Turn any decoder error into a `BrokenImageError` that names the image."""
    try:
        yield
    except UserError:  # such as a store that fails
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
        said = re.sub(r" <_io\.BytesIO[^>]*>", "", reason_of(error))  # an address in memory
        raise BrokenImageError(name(), said) from error


def open_image(
    file: Path | BytesIO,
    state: tuple[int, int] | None = None,
    page: int = 0,
    max_pixels: int | None = None,
) -> Opened:
    """Open an image file, or its content; Pillow images are not decoded yet.

    Args:
        file: A path, or the content of a file.
        state: Expected size in bytes and modification time in ns.
        page: Page or frame, from 0.
        max_pixels: Largest number of pixels; by default Pillow's bound, 179 million.

    Raises:
        Exception: The format is unsupported or malicious, or the image cannot be decoded.
    """
    if isinstance(file, Path):
        if kind := special(file):
            raise ValueError(f"{kind}, not a file")
        if state not in (None, state_of(file)):
            raise ValueError("the file changed since the set was opened")
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
                said = "needs the extra dicom: pip install 'mast-ssl[dicom]'"
                raise ModuleNotFoundError(said) from None
            return read_dicom(content, page, max_pixels)
        try:
            image = _opened(file, begin)
        except (UnidentifiedImageError, ValueError):
            if begin.startswith((b"II", b"MM")):
                return read_tiff(content, page, max_pixels)
            if not begin.startswith(b"\x89PNG"):
                raise
            content.seek(0)
            image = _opened(BytesIO(needed_chunks(content.read())), begin)
        with ExitStack() as undone:
            undone.callback(image.close)
            refuse_size(*image.size, max_pixels)
            if page:
                image.seek(page)
            if bands := read_deep(image, content, page, max_pixels):
                return bands
            undone.pop_all()
    return image


def _opened(file: Path | BytesIO, begin: bytes) -> ImageFile.ImageFile:
    """Like `Image.open`, but without its process-wide pixel bound."""
    for name in formats():
        make, accepts = Image.OPEN[name]
        if accepts is not None and accepts(begin[:16]) is not True:
            continue
        if not isinstance(file, Path):
            file.seek(0)
        try:
            return (_LargeTiff if name == "TIFF" else make)(file, str(file))  # type: ignore[arg-type]
        except (SyntaxError, IndexError, TypeError, struct.error):  # as Pillow goes on to the next
            continue
    raise UnidentifiedImageError(f"no image of a known format: it begins with {begin[:16]!r}")


class _LargeTiff(TiffImagePlugin.TiffImageFile):
    """An image that Pillow does not check against its bound again when decoding."""

    def load_prepare(self) -> None:
        if self._im is None:
            self.im = Image.core.new(self.mode, self._tile_size)  # type: ignore[attr-defined]
        super().load_prepare()


_LANCZOS = Image.Resampling.LANCZOS
_T = TypeVar("_T")


def read_image(image: str | Path | Image.Image, read: Callable[[Opened], _T]) -> _T:
    """Read a file, or an open image, which is not modified, such as by `to_canvas`.

    Files are decoded as for the cache. Open images are copied and fully decoded, so pixels of a
    large JPEG differ slightly.

    Raises:
        BrokenImageError: It cannot be decoded.
    """
    with naming(lambda: "an image" if isinstance(image, Image.Image) else str(image)):
        if isinstance(image, Image.Image):
            load_pixels(image)
            return read(image.copy())
        with open_image(Path(image)) as opened:
            return read(opened)


def to_pixels(image: Opened) -> np.ndarray:
    """Decode an opened image at full size, (H, W, 3) uint8."""
    return np.asarray(_upright_rgb(image)[0])


def to_canvas(image: Opened, side: int, reading: Reading | None = None) -> tuple[np.ndarray, float]:
    """Decode an opened image, and shrink it to the pixels of a canvas.

    A JPEG is decoded at the smallest scale of 1/2, 1/4, 1/8 with twice the canvas's size or more,
    then antialiased: several times faster, and not visibly different.

    Args:
        image: From `open_image`, not yet decoded.
        side: Side of a square with the largest number of pixels of a canvas.
        reading: The set's mapping of values; None for 8-bit RGB.

    Returns:
        The canvas, (H, W, 3) uint8, or its sheets (S, H, W, 3) in another layout; and
        width / height of the upright original.
    """
    if reading is not None and reading != Reading():
        bands = Bands.of(image) if isinstance(image, Image.Image) else image
        width, height = bands.size
        shape, channels = canvas_shape(width, height, side), read_channels(bands, reading)
        images = list(map(Image.fromarray, channels))
        if bands.size != shape:
            images = [image.resize(shape, _LANCZOS, reducing_gap=3.0) for image in images]
        planes_PHW = reading.layout.split(np.stack([*map(np.asarray, images)]).clip(0, 1))
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
        rgb = rgb.resize(shrunk, _LANCZOS, reducing_gap=3.0)
    return np.asarray(rgb), width / height


def crop_fraction(size: int) -> float:
    """Share of the short side that a test view of `size` pixels shows, such as 224 of 256."""
    return 0.875 if size > 96 else 1.0


def to_test_view(image: Opened, size: int, reading: Reading | None = None) -> np.ndarray:
    """Decode an opened image fully, and crop the test view of `size` pixels.

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
    """Width and height to resize an image to before cropping a test view."""
    short, low = math.floor(size / crop_fraction(size)), min(sides)
    wide, high = (short if side == low else short * side // low for side in sides)
    return wide, high


def canvas_shape(width: int, height: int, side: int) -> tuple[int, int]:
    """Width and height of a canvas: those of the image, shrunk to at most side × side pixels."""
    scale = min(1.0, side / math.sqrt(width * height))
    short = max(1, round(min(width, height) * scale))
    long = min(round(max(width, height) * scale), max(side**2 // short, short))
    return (long, short) if width > height else (short, long)


def upright(image: Opened) -> Opened:
    """Decode an opened image fully, with EXIF orientation applied and removed."""
    if isinstance(image, Bands):
        return image
    rgb, _ = _upright_rgb(image)
    rgb.info = {}
    return rgb


def upright_size(image: Opened) -> tuple[int, int]:
    """Upright width and height in pixels of an image not yet decoded."""
    if isinstance(image, Bands):
        return image.size
    width, height = image.size
    turned = image.format != "TIFF" and orientation_of(image) >= 5  # Pillow says a TIFF's upright
    return (height, width) if turned else (width, height)


def _upright_rgb(image: Opened) -> tuple[Image.Image, bool]:
    """The image as upright RGB, and whether EXIF orientation swapped its sides."""
    if isinstance(image, Image.Image) and (image.mode == "F" or image.mode.startswith("I")):
        image = Bands.of(image)
    if isinstance(image, Bands):
        if is_deep(image):
            _warn_of_range()
        image_CHW = np.stack([*read_channels(image, alone(image))])
        return Image.fromarray(RGB.split(image_CHW).transpose(1, 2, 0)), False
    load_pixels(image)
    # After loading, as Pillow rotates a TIFF while loading and drops the tag.
    orientation, rgb = orientation_of(image), in_srgb(image)
    if rgb.has_transparency_data:
        rgba = rgb.convert("RGBA")
        alpha = rgba.getchannel("A")
        bright = shows_nothing(np.asarray(rgba.convert("L")), np.asarray(alpha))
        rgb = Image.new("RGB", image.size, "black" if bright else "white")
        rgb.paste(rgba, mask=alpha)
    rgb = rgb if rgb.mode == "RGB" else rgb.convert("RGB")
    if orientation > 1:
        turned_HWC = undo_orientation(np.asarray(rgb), orientation)
        rgb = Image.fromarray(np.ascontiguousarray(turned_HWC))
    return rgb, orientation >= 5


@functools.cache
def _warn_of_range() -> None:
    _log.warning(
        "images of more than 8 bits are scaled by the limits of their types, as neither a set "
        "nor an encoder defines a range"
    )
