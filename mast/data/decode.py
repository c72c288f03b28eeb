"""One image file → 8-bit RGB pixels, and from there to the canvas.

Every mode that Pillow opens becomes RGB in 0 to 255. Transparent images are composited over white,
or over black if their visible part is itself white; of several pages or frames one is taken; EXIF
orientation is undone. What has more than 8 bits is scaled.

Legend: H height, W width, C the three channels.
"""

import functools
import math
import re
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin, UnidentifiedImageError, features

from mast.core.central import cut_center
from mast.core.errors import UserError
from mast.core.files import special
from mast.data.bands import Bands
from mast.data.bombs import refuse_bomb

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
HEIF = (".heic", ".heif")  # read where the extra heif is installed
AVIF = ".avif"  # read where Pillow was built with it, as its wheels are
# What is left out with a warning: raw files of cameras, and images of other kinds.
UNREAD = (
    ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef", ".mos",
    ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f",
    ".fff", ".gpr", ".apng", ".dib", ".exr", ".gif", ".hdr", ".heics", ".hif", ".ico", ".j2k",
    ".jfif", ".jpe", ".jp2", ".jxl", ".pbm", ".pgm", ".pnm", ".ppm", ".psd", ".tga",
    ".dcm", ".dicom", ".fits", ".mat", ".nii", ".npy", ".npz", ".svg",
    *HEIF, AVIF,
)  # fmt: skip

# What a file may hold, whatever its ending, as Pillow calls it. Of the forty others that it knows,
# EPS is a program, which it runs.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF", "HEIF")
_BRIGHT = 250  # mean level of what is visible, above which it would not show on white
_BITS, _PHOTOMETRIC, _EXTRA_SAMPLES, _SAMPLE_FORMAT = 258, 262, 338, 339  # tags of TIFF
_ALPHA = ((1,), (2,))  # a fourth sample that is opacity
SMALL = 96  # pixels of a test view; up to here it shows the whole centre square
CROP_FRACTION = 0.875  # of the short side above it: 224 of 256
_AT_ONCE = 1_000_000  # pixels that are scaled at a time, as float64 takes eight times the memory

_ORIENTATION_TAG = 0x0112
_UNDO_ORIENTATION = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


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


@functools.cache
def extensions() -> tuple[str, ...]:
    """The endings of the images that are read here, those of HEIC where its extra is installed.

    Pillow opens such files from then on.
    """
    read = EXTENSIONS + ((AVIF,) if features.check("avif") else ())
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return read
    register_heif_opener()
    return read + HEIF


@functools.cache
def _formats() -> tuple[str, ...]:
    """Those of `_FORMATS` that this Pillow reads."""
    extensions()
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def open_image(
    file: Path | BytesIO,
    state: tuple[int, int] | None = None,
    page: int = 0,
    max_pixels: int | None = None,
) -> Image.Image:
    """Opens an image file, or its content; its pixels are not decoded yet.

    Args:
        file: A path, or what is in a file.
        state: Size in bytes and time of modification in ns that the file must have.
        page: Which of its pages or frames, from 0.
        max_pixels: The most that it may have; Pillow's bound, 179 million, if not given.

    Raises:
        ValueError: It is a pipe, which would not answer, or something else that is no file; it is
            in another state, made to take minutes, or has more pixels than it may.
        OSError: It is no image of a format that is read, or there is none.
        EOFError: It has no such page.
    """
    if isinstance(file, Path):
        if kind := special(file):
            raise ValueError(f"{kind}, not a file")
        status = file.stat()
        if state not in (None, (status.st_size, status.st_mtime_ns)):
            raise ValueError("not the file that was there when the set was opened")
        with file.open("rb") as content:
            refuse_bomb(content)
    else:
        refuse_bomb(file)
    image = _opened(file) if max_pixels is None else _opened_unbound(file)
    try:
        if page:
            image.seek(page)
        if max_pixels is not None and (pixels := math.prod(image.size)) > max_pixels:
            raise ValueError(f"{pixels:,} pixels, and max_pixels allows {max_pixels:,}")
    except Exception:
        image.close()
        raise
    return image


def _opened(file: Path | BytesIO) -> ImageFile.ImageFile:
    try:
        return Image.open(file, formats=_formats())
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
    for name in _formats():
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


def read_canvas(image: str | Path | Image.Image, side: int) -> tuple[np.ndarray, float]:
    """A file, or an image that is open already, as `to_canvas` gives it.

    Args:
        image: A file is decoded as for the cache. An image that is open stays as it is: a copy is
            decoded, whole, from which pixels of a large JPEG differ a little.
        side: Of a square with as many pixels as the canvas may have.

    Raises:
        BrokenImageError: It cannot be decoded.
    """
    return _reading(image, lambda opened: to_canvas(opened, side))


def read_test_view(image: str | Path | Image.Image, size: int) -> np.ndarray:
    """A file, or an image that is open already and stays as it is, as `to_test_view` gives it.

    Raises:
        BrokenImageError: It cannot be decoded.
    """
    return _reading(image, lambda opened: to_test_view(opened, size))


def _reading(image: str | Path | Image.Image, read: Callable[[Image.Image], _T]) -> _T:
    """What is made of an image, by a name for what is broken."""
    try:
        if isinstance(image, Image.Image):
            _load(image)
            return read(image.copy())
        with open_image(Path(image)) as opened:
            return read(opened)
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
        name = "an image" if isinstance(image, Image.Image) else str(image)
        raise BrokenImageError.of(name, error) from error


def to_pixels(image: Image.Image) -> np.ndarray:
    """Decodes an opened image at its full size.

    Args:
        image: An image as `PIL.Image.open` returns it, not yet decoded.

    Returns:
        (H, W, 3) uint8.
    """
    return np.asarray(_upright_rgb(image)[0])


def to_canvas(image: Image.Image, side: int) -> tuple[np.ndarray, float]:
    """Decodes an opened image, and shrinks the whole of it to what a canvas may have.

    A JPEG is decoded at the smallest scale of 1/2, 1/4, 1/8 that keeps twice the canvas, from where
    an antialiased filter does the rest: several times faster, and not visibly different.

    Args:
        image: An image as `PIL.Image.open` returns it, not yet decoded.
        side: Of a square with as many pixels as the canvas may have.

    Returns:
        The canvas, (H, W, 3) uint8, and width / height of the upright original.
    """
    width, height = image.size
    shrunk = canvas_shape(width, height, side)
    if image.format == "JPEG":
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


def to_test_view(image: Image.Image, size: int) -> np.ndarray:
    """Decodes an opened image whole, and cuts the view by which an encoder is tested.

    Args:
        image: An image as `PIL.Image.open` returns it, not yet decoded.
        size: Side of the view in pixels, V.

    Returns:
        (3, V, V) uint8.

    Reference: torchvision `Resize(floor(size / crop_fraction(size)))` and `CenterCrop(size)`, bit
        for bit.
    """
    rgb, _ = _upright_rgb(image)
    short, low = math.floor(size / crop_fraction(size)), min(rgb.size)
    width, height = (short if side == low else short * side // low for side in rgb.size)
    return cut_center(rgb, (width, height), size)


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


def has_pages(image: Image.Image | Bands) -> bool:
    """Whether a file has several pages or frames; a photo's own previews (MPO) do not count."""
    if isinstance(image, Bands):
        return page_count(image) > 1
    return image.format != "MPO" and bool(getattr(image, "is_animated", False))


def page_count(image: Image.Image | Bands) -> int:
    """How many pages or frames a file has, as of `has_pages`."""
    if isinstance(image, Bands):
        return int(getattr(image, "pages", 1))
    return int(getattr(image, "n_frames", 1)) if has_pages(image) else 1


def upright(image: Image.Image | Bands) -> Image.Image | Bands:
    """Decodes an opened image whole, with its EXIF orientation undone and forgotten."""
    if isinstance(image, Bands):
        return image
    rgb, _ = _upright_rgb(image)
    rgb.info = {}
    return rgb


def upright_size(image: Image.Image | Bands) -> tuple[int, int]:
    """Width and height in pixels once EXIF orientation is undone, of an image not yet decoded."""
    if isinstance(image, Bands):
        return image.size
    width, height = image.size
    turned = image.format != "TIFF" and _orientation(image) >= 5  # Pillow says a TIFF's upright
    return (height, width) if turned else (width, height)


def _upright_rgb(image: Image.Image) -> tuple[Image.Image, bool]:
    """The image as RGB with its EXIF orientation undone, and whether that swapped its sides."""
    _load(image)
    # Asked after loading: Pillow itself turns a TIFF while it loads and then drops the tag.
    orientation = _orientation(image)
    rgb = _rgb(image)
    if orientation in _UNDO_ORIENTATION:
        rgb = rgb.transpose(_UNDO_ORIENTATION[orientation])
    return rgb, orientation >= 5


def _load(image: Image.Image) -> None:
    """Decodes an opened image; one of a format that is not read, only if that was done before.

    Raises:
        ValueError: It is none that is read here.
    """
    waits = isinstance(image, ImageFile.StubImageFile) or getattr(image, "tile", None)
    if waits and image.format not in (*_formats(), "MPO"):  # MPO is a JPEG with more images in it
        raise ValueError(f"the format {image.format} is not read")
    image.load()


def _orientation(image: Image.Image) -> int:
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # Pillow raises many kinds here, and a damaged tag does not spoil the pixels
        return 1
    return orientation if orientation in _UNDO_ORIENTATION else 1


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode == "F" or image.mode.startswith("I"):
        return Image.fromarray(_deep(image)).convert("RGB")
    if (
        image.format == "TIFF"
        and image.mode == "RGBA"
        and _tag(image, _EXTRA_SAMPLES) not in _ALPHA
    ):
        return image.convert("RGB")  # a band more, such as near infrared
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    alpha = image.getchannel("A")
    bright = _shows_nothing(np.asarray(image.convert("L")), np.asarray(alpha))
    ground = Image.new("RGB", image.size, "black" if bright else "white")
    ground.paste(image, mask=alpha)
    return ground


def _deep(image: Image.Image) -> np.ndarray:
    """Gray values of more than 8 bits as uint8."""
    values_HW = np.asarray(image)
    high = None
    if values_HW.dtype.itemsize == 2:
        bits = _tag(image, _BITS)
        high = 4095.0 if bits == (12,) else 65535.0
    elif image.format == "PPM":  # Pillow has brought it to 16 bits
        high = 65535.0
    elif image.mode == "I" and _tag(image, _SAMPLE_FORMAT) in ((1,), None):
        values_HW = values_HW.view(np.uint32) if image.format == "TIFF" else values_HW
    gray_HW = _eight_bits(values_HW, high)
    if _tag(image, _PHOTOMETRIC) == 0:  # the smallest value is white
        gray_HW = 255 - gray_HW
    clear = image.info.get("transparency")
    if isinstance(clear, int) and image.format == "PNG":
        visible_HW = values_HW != clear
        ground = 0 if _shows_nothing(gray_HW, visible_HW) else 255
        gray_HW = np.where(visible_HW, gray_HW, np.uint8(ground))
    return gray_HW


def _shows_nothing(level_HW: np.ndarray, alpha_HW: np.ndarray) -> bool:
    """Whether what is visible is so bright that nothing of it would show on white."""
    total = int(alpha_HW.sum(dtype=np.int64))
    seen = np.einsum("hw,hw->", level_HW, alpha_HW, dtype=np.float64)
    return total > 0 and float(seen) > _BRIGHT * total


def _tag(image: Image.Image, number: int) -> Any:
    """What a TIFF says; None of other files, and where it says nothing."""
    return getattr(image, "tag_v2", {}).get(number)


def _eight_bits(values_HW: np.ndarray, high: float | None = None) -> np.ndarray:
    """Scales gray values of more than 8 bits to uint8.

    For 32-bit integers and floats, which declare no range, it is the smallest of 0 to 1 (floats
    only), 255, 65535 that holds all values, else minimum to maximum.

    Args:
        values_HW: What is scaled.
        high: The value of white, where it is known; that of black is 0 then.
    """
    least, most = float(values_HW.min()), float(values_HW.max())
    if not np.isfinite([least, most]).all():
        raise ValueError("pixel values that are not finite")
    low = 0.0
    if high is None:
        ranges = (1.0, 255.0, 65535.0) if values_HW.dtype.kind == "f" else (255.0, 65535.0)
        fitting = [limit for limit in ranges if least >= 0 and most <= limit]
        low, high = (0.0, fitting[0]) if fitting else (least, most)
    gray_HW, scale = np.empty(values_HW.shape, np.uint8), 255.0 / max(high - low, 1e-12)
    rows = -(-_AT_ONCE // values_HW.shape[1])
    for at in range(0, len(values_HW), rows):
        some_HW = values_HW[at : at + rows].astype(np.float64)
        gray_HW[at : at + rows] = np.rint((some_HW - low) * scale).clip(0, 255)
    return gray_HW
