"""Formats of image files: supported and refused ones, and decoding beyond 8 bits.

Pillow opens 8-bit images; `Bands` are all others: tifffile and imagecodecs, arrays and DICOM. Files
that would take minutes, or have too many pixels, are refused before decoding.

Legend: H height, W width, C channels.
"""

import functools
import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count
from typing import Any, BinaryIO, cast, final

import numpy as np
from PIL import ExifTags, Image, ImageFile, TiffImagePlugin, features

from mast.core.reading import MOST_CHANNELS
from mast.data.profiles import GRAYS, in_srgb

EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".pgm", ".ppm", ".pnm",
    ".jfif", ".jpe", ".jfi", ".jif", ".mpo", ".dib", ".apng", ".gif", ".pbm",
)  # fmt: skip
ARRAY = ".npy"  # may also contain features or labels
DICOM = (".dcm", ".dicom")  # read where the extra dicom is installed
HEIF = (".heic", ".heif", ".hif", ".heics")  # read where the extra heif is installed
AVIF = ".avif"  # read where Pillow was built with it, as its wheels are
# Skipped with a warning: camera raw files, and other image formats.
UNREAD = (
    ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef", ".mos",
    ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f",
    ".fff", ".gpr", ".exr", ".hdr", ".ico", ".j2k", ".jp2", ".jxl", ".psd", ".tga", ".fits",
    ".mat", ".nii", ".npz", ".svg",
    *DICOM, *HEIF, AVIF,
)  # fmt: skip
_DATE = re.compile(r"\d{4}:\d\d:\d\d( \d\d:\d\d:\d\d)?")  # as EXIF writes one
# Pillow's names of accepted formats, independent of the extension. Of its forty others, EPS is a
# program, which Pillow runs.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF", "HEIF")


@functools.cache
def extensions() -> tuple[str, ...]:
    """Supported file extensions, some only with their extra.

    Also registers HEIC with Pillow.
    """
    read = EXTENSIONS + ((AVIF,) if features.check("avif") else ())
    read += DICOM if find_spec("pydicom") else ()
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
        read += HEIF
    return (*read, ARRAY)


@functools.cache
def formats() -> tuple[str, ...]:
    """Formats of `_FORMATS` that this Pillow supports."""
    extensions()
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def begins_as_image(begin: bytes) -> bool:
    """Whether a file's first 132 bytes are those of a supported format."""
    if begin.startswith(b"BM"):
        return begin[6:10] == bytes(4)
    if begin.startswith(b"P"):
        return bool(re.match(rb"P[1-6]\s+[\d#]", begin))
    known = (Image.OPEN[name][1] for name in formats())
    return (begin.endswith(b"DICM") and DICOM[0] in extensions()) or any(
        accepts is not None and accepts(begin[:16]) is True for accepts in known
    )


# ----------------------------------------------------------------------------- what is refused

_TILE = 4096**2  # pixels by which a tile may exceed a small image


def refuse_size(width: int, height: int, max_pixels: int | None = None) -> None:
    """Raise ValueError if a file declares more pixels than allowed."""
    most = max_pixels or 2 * (Image.MAX_IMAGE_PIXELS or math.inf)
    if width * height > most:
        raise ValueError(
            f"expected at most {most:,} pixels, got {width} × {height} (width × height): could be "
            "a decompression bomb; max_pixels raises the limit"
        )


def needed_chunks(png: bytes) -> bytes:
    """A PNG with only the chunks of pixels, opacity and orientation."""
    parts, at = [png[:8]], 8
    while at < len(png):
        end = at + 12 + int.from_bytes(png[at : at + 4], "big")
        kind = png[at + 4 : at + 8]
        if kind[:1].isupper() or kind in (b"acTL", b"fcTL", b"fdAT", b"tRNS", b"eXIf"):
            parts.append(png[at:end])
        at = end
    return b"".join(parts)


def load_pixels(image: Image.Image) -> None:
    """Decode an opened image; raises for unsupported formats unless already decoded."""
    waits = isinstance(image, ImageFile.StubImageFile) or getattr(image, "tile", None)
    if waits and image.format not in (*formats(), "MPO"):  # MPO is a JPEG with more images in it
        raise ValueError(f"unsupported format {image.format}")
    try:
        image.load()
    except ValueError:  # damaged text after the complete pixels of a PNG
        if image.format != "PNG" or getattr(image, "tile", None):
            raise


# ------------------------------------------------------------------------------ of any depth

_BITS, _PHOTOMETRIC, _ORIENTATION, _SAMPLES = 258, 262, 274, 277  # tags of TIFF
_EXTRA_SAMPLES, _SAMPLE_FORMAT, _NO_DATA, _SUBFILE = 338, 339, 42113, 254
_ALPHA = _ASSOCIATED, _ = 1, 2  # an extra sample that is opacity; colors are multiplied by one
_WHITE_IS_ZERO, _CMYK = 0, 5
_COLORS = {0: 1, 1: 1, 2: 3, 3: 1, 5: 4, 6: 3, 8: 3}  # samples, by photometric interpretation
_NOT_OWN = 1 | 4  # bits of a page that is a smaller version or a mask of another


@final
@dataclass(frozen=True)
class Bands(AbstractContextManager["Bands"]):
    """An image of any depth, with an interface like Pillow's.

    Attributes:
        values_HWC: Integers or floats of the file.
        bits: Bits that integers use, as declared by the file; None for all.
        inverted: Whether the smallest value is white.
        alpha_HW: Opacity in [0, 1], if any.
        no_data: The file's value for "no data".
        window: The file's values to display as black and as white.
        pages: Numbers of the file's pages that are separate images, if this is the first.
    """

    values_HWC: np.ndarray
    bits: int | None = None
    inverted: bool = False
    alpha_HW: np.ndarray | None = None
    no_data: float | None = None
    window: tuple[float, float] | None = None
    pages: Sequence[int] = (0,)

    @classmethod
    def of(cls, image: Image.Image) -> "Bands":
        """An image of Pillow: gray as one channel, anything else as RGB."""
        load_pixels(image)
        if image.mode == "F" or image.mode.startswith("I"):
            bands = as_bands(np.asarray(image)[..., None])
        else:
            shown = in_srgb(image)
            mode = "L" if shown.mode in GRAYS else "RGB"
            with_alpha = shown.has_transparency_data
            values = np.asarray(shown.convert(mode + "A" * with_alpha))
            bands = _with_alpha(values) if with_alpha else cls(np.atleast_3d(values))
        return bands.turned(orientation_of(image))  # of a TIFF none, once Pillow has loaded it

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        height, width, _ = self.values_HWC.shape
        return width, height

    @property
    def channels(self) -> int:
        """C."""
        return self.values_HWC.shape[2]

    def _each(self, change: Callable[[np.ndarray], np.ndarray]) -> "Bands":
        alpha_HW = None if self.alpha_HW is None else change(self.alpha_HW)
        return replace(self, values_HWC=change(self.values_HWC), alpha_HW=alpha_HW)

    def crop(self, box: tuple[int, int, int, int]) -> "Bands":
        """Crop to left, top, right, bottom, which must lie inside."""
        left, top, right, bottom = box
        return self._each(lambda x_HWC: x_HWC[top:bottom, left:right])

    def turned(self, orientation: int) -> "Bands":
        """Apply an EXIF orientation."""
        return self._each(lambda x_HWC: undo_orientation(x_HWC, orientation))

    def close(self) -> None:
        """No-op, as no file is open."""

    def __exit__(self, *_: object) -> None:
        self.close()


def is_deep(bands: Bands) -> bool:
    """Whether an image has more than 8 bits."""
    wide = bands.values_HWC.dtype not in (np.uint8, np.bool_)
    return wide and (bands.bits is None or bands.bits > 8)


def orientation_of(image: Image.Image) -> int:
    """The EXIF orientation of an image, 1 to 8; 1 without one."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # Pillow raises many types here; a damaged tag does not affect pixels
        return 1
    return orientation if orientation in range(2, 9) else 1


def date_taken(image: "Image.Image | Bands") -> str:
    """The EXIF date of a photo, such as "2026:11:29 15:47:05"; "" without one."""
    try:
        exif = image.getexif()  # type: ignore[union-attr]
        date = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
        return _DATE.match(str(date or exif.get(ExifTags.Base.DateTime)))[0]  # type: ignore[index]
    except Exception:  # no date, or a damaged tag: as in `orientation_of`
        return ""


def undo_orientation(x_HWC: np.ndarray, orientation: int) -> np.ndarray:
    """Pixels in display order."""
    x_HWC = x_HWC.swapaxes(0, 1) if orientation in (5, 6, 7, 8) else x_HWC
    x_HWC = x_HWC[::-1] if orientation in (3, 4, 7, 8) else x_HWC
    return x_HWC[:, ::-1] if orientation in (2, 3, 6, 7) else x_HWC


def page_numbers(image: "Image.Image | Bands") -> Sequence[int]:
    """Pages or frames of a file, open at the first, that are separate images.

    Excludes previews (MPO), and overviews and masks of a TIFF.
    """
    if isinstance(image, Bands):
        return image.pages
    if image.format == "MPO" or not getattr(image, "is_animated", False):
        return (0,)
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return range(getattr(image, "n_frames", 1))
    numbers = list[int]()
    with suppress(EOFError):
        for number in count():
            image.seek(number)
            numbers += [] if image.tag_v2.get(_SUBFILE, 0) & _NOT_OWN else [number]
    image.seek(0)
    return numbers


def read_deep(
    image: ImageFile.ImageFile, content: BinaryIO, page: int, max_pixels: int | None
) -> Bands | None:
    """The image as `Bands` if Pillow would lose information; otherwise None."""
    if image.format == "TIFF" and not _is_plain(image):
        return read_tiff(content, page, max_pixels)
    if image.format == "PNG" and not page and str(image.tile[0].args).endswith(";16B"):
        from imagecodecs import png_decode

        content.seek(0)
        values_HWC = np.atleast_3d(png_decode(needed_chunks(content.read())))
        bands = Bands(values_HWC) if values_HWC.shape[2] % 2 else _with_alpha(values_HWC)
        return bands.turned(orientation_of(image))
    if image.format != "PPM":
        return None
    if image.mode in ("F", "I"):  # scaled to 16 bits by Pillow
        bands = Bands.of(image)
        return bands if image.mode == "F" else as_bands(bands.values_HWC.astype(np.uint16))
    (part,) = image.tile
    most = cast(tuple[str, int], part.args)[1] if part.codec_name == "ppm" else 255
    if image.mode == "RGB" and most > 255:
        content.seek(part.offset)
        values = np.frombuffer(content.read(6 * image.width * image.height), ">u2")
        values_HWC = np.rint(values.reshape(image.height, -1, 3) * (65535 / most))
        return Bands(values_HWC.clip(0, 65535).astype(np.uint16))
    return None


def _is_plain(image: ImageFile.ImageFile) -> bool:
    """Whether a TIFF has at most 8 bits, in gray or color, with or without opacity."""
    tag = cast(TiffImagePlugin.TiffImageFile, image).tag_v2.get
    extra = tag(_SAMPLES, 1) - _COLORS.get(tag(_PHOTOMETRIC, 1), 1)
    return (
        max(tag(_BITS, (1,))) <= 8
        and set(tag(_SAMPLE_FORMAT, (1,))) <= {1, 4}  # unsigned, or not said
        and (extra == 0 or (extra == 1 and tag(_EXTRA_SAMPLES) in ((1,), (2,))))
    )


def read_array(file: BinaryIO, max_pixels: int | None = None) -> Bands:
    """The array of a .npy file: (H, W), (H, W, C), or (C, H, W) if C cannot be last."""
    from numpy.lib import format as npy

    is_old = npy.read_magic(file) == (1, 0)
    header = npy.read_array_header_1_0 if is_old else npy.read_array_header_2_0
    shape, by_columns, dtype = header(file)
    leads = len(shape) == 3 and shape[0] <= MOST_CHANNELS and shape[0] < min(shape[1:])
    ends = len(shape) == 3 and shape[2] <= MOST_CHANNELS
    if (len(shape) != 2 and leads == ends) or min(shape) < 1 or dtype.hasobject:
        raise ValueError(
            f"expected an array (H, W), (H, W, C) or (C, H, W) with 1 to {MOST_CHANNELS} channels"
            f"{', on one axis only' * leads}, got {dtype} of shape {shape}"
        )
    height, width = shape[1:] if leads else shape[:2]
    refuse_size(width, height, max_pixels)
    count = math.prod(shape)
    values = np.frombuffer(file.read(count * dtype.itemsize), dtype, count)
    values = values.reshape(shape, order="F" if by_columns else "C")
    return as_bands(np.moveaxis(values, 0, 2) if leads else np.atleast_3d(values))


def read_tiff(file: BinaryIO, page: int, max_pixels: int | None = None) -> Bands:
    """A page of a TIFF, of any depth, with up to 16 channels."""
    from tifffile import TiffFile, TiffPage, logger

    logger().setLevel("CRITICAL")  # tags that it cannot read, and that do not matter here
    file.seek(0)
    with TiffFile(file, _multifile=False) as tiff:
        found = cast(TiffPage, tiff.pages[page])  # no frames are asked for
        every = cast(Sequence[TiffPage], tiff.pages if page == 0 else ())
        pages = [at for at, each in enumerate(every) if not (each.is_reduced or each.is_mask)]
        _refuse_tiff(found, tiff.filehandle, max_pixels)
        values_SDHWC = found.asarray(squeeze=False, maxworkers=1)
        of_tag = found.tags.valueof
        orientation, no_data, white = map(of_tag, (_ORIENTATION, _NO_DATA, _PHOTOMETRIC))
    bits, uses, samples = found.bitspersample, found.extrasamples, found.samplesperpixel
    height, width = values_SDHWC.shape[2:4]
    values_HWC = values_SDHWC[:, 0].transpose(1, 2, 0, 3).reshape(height, width, samples)
    alpha_HW, top = None, 1.0 if values_HWC.dtype.kind == "f" else 2.0**bits - 1
    for at, use in enumerate(uses, samples - len(uses)):
        if use in _ALPHA and alpha_HW is None:
            alpha_HW = np.nan_to_num(values_HWC[..., at].astype("f4") / np.float32(top)).clip(0, 1)
            values_HWC = np.delete(values_HWC, at, 2)
            if use == _ASSOCIATED:
                straight_HWC = values_HWC / np.maximum(alpha_HW, 1e-6)[..., None]
                whole_HWC = straight_HWC if top == 1 else np.rint(straight_HWC).clip(0, top)
                values_HWC = whole_HWC.astype(values_HWC.dtype)
    if found.photometric == _CMYK and values_HWC.shape[2] == 4:
        inks_HWC = (values_HWC * (255 / top)).astype(np.uint8)
        values_HWC, bits = np.asarray(Image.fromarray(inks_HWC, "CMYK").convert("RGB")), 8
    bands = as_bands(values_HWC, bits, no_data)
    bands = replace(bands, inverted=white == _WHITE_IS_ZERO, alpha_HW=alpha_HW, pages=pages)
    return bands.turned(orientation)


def _refuse_tiff(page: Any, file: Any, max_pixels: int | None) -> None:
    """Raise ValueError for a page that is truncated, malicious or unsupported."""
    codec, samples, bits = page.compression, page.samplesperpixel, page.bitspersample
    sides = page.imagewidth, page.imagelength, page.tilewidth, page.tilelength, page.rowsperstrip
    if not all(isinstance(number, int) for number in (*sides, samples, bits)):
        raise ValueError("unsupported TIFF: bands of different sizes or bits")
    pixels, tile = page.imagewidth * page.imagelength, page.tilewidth * page.tilelength
    refuse_size(page.imagewidth, page.imagelength, max_pixels)
    if tile > max(pixels, _TILE) or max(page.imagedepth, page.tiledepth) > 1:
        raise ValueError("unsupported TIFF: volumes, or tiles larger than the image")
    # where Pillow does not read it; 6 is YCbCr, which JPEG decodes by itself
    if page.photometric not in (0, 1, 2, _CMYK) and (page.photometric, codec) != (6, 7):
        raise ValueError(f"unsupported TIFF: {page.photometric!r}")
    if page.dtype is None or samples > MOST_CHANNELS + 1:
        raise ValueError(f"unsupported TIFF: {samples} samples of {bits} bits")
    ends = map(sum, zip(page.dataoffsets, page.databytecounts, strict=False))
    is_cut = codec > 1 and max(ends, default=0) > file.size
    if is_cut or len(page.dataoffsets) < math.prod(page.chunked):
        raise ValueError("some of its strips or tiles are missing")


def as_bands(values_HWC: np.ndarray, bits: int | None = None, no_data: Any = None) -> Bands:
    """An image from a file's values, numbers of up to 64 bits in any byte order.

    Args:
        values_HWC: The values.
        bits: Used bits per value.
        no_data: Value for "no data", as a number or text.
    """
    if not 1 <= (channels := values_HWC.shape[2]) <= MOST_CHANNELS:
        raise ValueError(f"expected 1 to {MOST_CHANNELS} channels, got {channels}")
    dtype = values_HWC.dtype.newbyteorder("=")
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        raise ValueError(f"expected integers or floats of up to 64 bits, got {dtype}")
    if dtype.kind == "b":
        dtype, values_HWC = np.dtype(np.uint8), values_HWC * np.uint8(255)
    missing = None
    with suppress(ValueError, TypeError), np.errstate(over="ignore"):  # GDAL says it in text
        missing = float(str(no_data).strip("\0 "))
        missing = float(dtype.type(missing)) if dtype.kind == "f" else missing
    used = None if dtype.kind == "f" or bits == 8 * dtype.itemsize else bits
    return Bands(values_HWC.astype(dtype, copy=False), used, no_data=missing)


def _with_alpha(values_HWC: np.ndarray) -> Bands:
    """An image of integers whose last channel is opacity."""
    top = np.float32(np.iinfo(values_HWC.dtype).max)
    return Bands(values_HWC[..., :-1], alpha_HW=values_HWC[..., -1].astype(np.float32) / top)
