"""Image files of every format: which they are, and the values that Pillow cannot hold.

Files that would take minutes to read are refused. Sizes that a file declares are Pillow's concern,
which refuses more than 179 million pixels; other readers have the same limit. Images of more than 8
bits, or of other channels than gray and colors, are `Bands`.

Legend: H height, W width, C channels.
"""

import functools
import math
import os
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import IO, Any, BinaryIO, cast, final

import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin, UnidentifiedImageError, features

from mast.core.reading import MOST_CHANNELS
from mast.data.profiles import GRAYS, in_srgb

EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".pgm", ".ppm", ".pnm",
    ".jfif", ".jpe", ".jfi", ".jif", ".mpo", ".dib", ".apng", ".gif", ".pbm",
)  # fmt: skip
ARRAY = ".npy"  # may as well hold features or labels of images beside it
DICOM = (".dcm", ".dicom")  # read where the extra dicom is installed
HEIF = (".heic", ".heif", ".hif", ".heics")  # read where the extra heif is installed
AVIF = ".avif"  # read where Pillow was built with it, as its wheels are
# What is left out with a warning: raw files of cameras, and images of other kinds.
UNREAD = (
    ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef", ".mos",
    ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f",
    ".fff", ".gpr", ".exr", ".hdr", ".ico", ".j2k", ".jp2", ".jxl", ".psd", ".tga", ".fits",
    ".mat", ".nii", ".npz", ".svg",
    *DICOM, *HEIF, AVIF,
)  # fmt: skip
# What a file may hold, whatever its ending, as Pillow calls it. Of the forty others that it knows,
# EPS is a program, which it runs.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF", "HEIF")


@functools.cache
def extensions() -> tuple[str, ...]:
    """The endings of the images that are read here, of some where their extra is installed.

    Pillow opens HEIC from then on.
    """
    read = EXTENSIONS + ((AVIF,) if features.check("avif") else ())
    read += DICOM if find_spec("pydicom") else ()
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
        read += HEIF
    return (*read, ARRAY)


def readers() -> str:
    """The endings that are read here and the readers of extras, with which a cache was made."""
    extras = [name for name in ("tifffile", "imagecodecs") if find_spec(name)]
    return " ".join((*extensions(), *extras))


@functools.cache
def formats() -> tuple[str, ...]:
    """Those of `_FORMATS` that this Pillow reads."""
    extensions()
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def begins_as_image(begin: bytes) -> bool:
    """Whether a file of such 132 bytes, called whatever, is an image of a format that is read."""
    if begin.startswith(b"BM"):
        return begin[6:10] == bytes(4)
    if begin.startswith(b"P"):
        return bool(re.match(rb"P[1-6]\s+[\d#]", begin))
    known = (Image.OPEN[name][1] for name in formats())
    return (begin.endswith(b"DICM") and DICOM[0] in extensions()) or any(
        accepts is not None and accepts(begin[:16]) is True for accepts in known
    )


# How files begin that are often called as images, in small letters.
_OTHERS = {
    b"version https://git-lfs": "a pointer of Git LFS, whose image `git lfs pull` fetches",
    b"<!doctype html": "a page of HTML, as of a download that failed",
    b"<html": "a page of HTML, as of a download that failed",
    b"%pdf": "a PDF",
    b"%!ps": "PostScript, which is never run",
}


def no_image(begin: bytes) -> UnidentifiedImageError:
    """What is said of a file that no format recognises, by its first bytes."""
    text = begin.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    kind = next((kind for start, kind in _OTHERS.items() if text.startswith(start)), "")
    if not begin.strip(b"\0"):
        kind = "nothing but zeros, as of a copy that was cut off" if begin else "an empty file"
    return UnidentifiedImageError(f"{kind}, no image" if kind else "no image of a known format")


def needed_chunks(file: IO[bytes]) -> BytesIO:
    """A PNG without chunks that are not for pixels, but for opacity and orientation if whole."""
    file.seek(0)
    parts = [file.read(8)]
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind[:1].isupper() or kind in (b"acTL", b"fcTL", b"fdAT"):
            parts += [head, file.read(length + 4)]
        elif kind in (b"tRNS", b"eXIf") and length < _EXTRA:
            content = file.read(length + 4)
            if content[length:] == struct.pack(">I", zlib.crc32(kind + content[:length])):
                parts += [head, content]
        else:
            file.seek(length + 4, os.SEEK_CUR)
    return BytesIO(b"".join(parts))


def load_pixels(image: Image.Image) -> None:
    """Decodes an opened image; one of a format that is not read, only if that was done before."""
    waits = isinstance(image, ImageFile.StubImageFile) or getattr(image, "tile", None)
    if waits and image.format not in (*formats(), "MPO"):  # MPO is a JPEG with more images in it
        raise ValueError(f"the format {image.format} is not read")
    try:
        image.load()
    except ValueError:  # of a text behind the pixels of a PNG, which are there
        if image.format != "PNG" or getattr(image, "tile", None):
            raise


def orientation_of(image: Image.Image) -> int:
    """The EXIF orientation of an image, 1 to 8; 1 where there is none."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # Pillow raises many kinds here, and a damaged tag does not spoil the pixels
        return 1
    return orientation if orientation in range(2, 9) else 1


_EXTRA = 1_000_000  # bytes of a chunk that is not for pixels
_FEW = 1000  # of what images have dozens of
_MANY = 200_000  # of what holds pixels: chunks of 8 KiB of a PNG, strips and tiles of a TIFF
_EXIF = 100  # segments of a JPEG; Pillow copies all that were before
_SCANS = 100  # over all pixels of a progressive JPEG; thirty bytes may be one
_HEADER = 65_536  # bytes of a PPM's or an array's, and between the segments of a JPEG
_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])(?=(.{0,2}))", re.DOTALL)
_STRIPS, _TILES = 0x0111, 0x0144  # tags of where they are


def refuse_bomb(file: IO[bytes]) -> None:
    """Raises ValueError where a file, at its beginning, has more parts than images have."""
    begin = file.read(16)
    for signature, too_many in _KINDS.items():
        if begin.startswith(signature) and too_many(file, begin):
            raise ValueError("more parts than an image has, as if made to keep its reader busy")


def refuse_size(width: int, height: int, max_pixels: int | None = None) -> None:
    """Raises ValueError where a file declares more pixels than it may have, or Pillow decodes."""
    most = max_pixels or 2 * (Image.MAX_IMAGE_PIXELS or math.inf)
    if width * height > most:
        raise ValueError(
            f"{width} × {height} pixels (width × height) exceed the limit of {most:,}: could be a "
            "decompression bomb; max_pixels allows more"
        )


def _png(file: IO[bytes], begin: bytes) -> bool:
    pixels = others = 0
    file.seek(8)
    while len(head := file.read(8)) == 8 and pixels <= _MANY and others <= _FEW:
        length, kind = struct.unpack(">I4s", head)
        of_pixels = kind in (b"IDAT", b"fdAT", b"fcTL")
        pixels += of_pixels
        others += not of_pixels
        file.seek(length + 4, os.SEEK_CUR)
    return pixels > _MANY or others > _FEW


def _jpeg(file: IO[bytes], begin: bytes) -> bool:
    parts = between = exif = scans = at = 0
    progressive = False
    file.seek(2)
    while len(head := file.read(8)) == 8 and head[:2] != b"\xff\xda":
        is_segment = head[0] == 0xFF and 0xC0 <= head[1] < 0xFF and not 0xD0 <= head[1] <= 0xD9
        parts += is_segment
        between += not is_segment
        exif += is_segment and head[4:] == b"Exif"
        progressive |= is_segment and head[1] in (0xC2, 0xCA)
        if parts > _FEW or between > _HEADER or exif > _EXIF:
            return True
        length = 2 + max(2, int.from_bytes(head[2:4], "big")) if is_segment else 1
        file.seek(length - len(head), os.SEEK_CUR)
    rest = head + file.read() if progressive else b""  # of others a scan is as long as its pixels
    while (found := _MARKER.search(rest, at)) and found[1] != b"\xd9":
        parts += 1
        scans += found[1] == b"\xda"
        if parts > _FEW or scans > _SCANS:
            return True
        at = found.end() + max(2, int.from_bytes(found[2], "big"))
    return False


def _tiff(file: IO[bytes], begin: bytes) -> bool:
    if begin[2:4].strip(b"\0") not in (b"*", b"+"):
        return False
    order = "<" if begin.startswith(b"II") else ">"
    big = b"+" in begin[2:4]
    offset, number, entry = ("Q", "Q", "HHQQ") if big else ("I", "H", "HHII")
    size, end = struct.calcsize(order + entry), struct.calcsize(offset)
    (at,) = struct.unpack_from(order + offset, begin, 8 if big else 4)
    pages = set[int]()  # by where they are; the last one may lead to the first
    while at and at not in pages and len(pages) <= _MANY:
        pages.add(at)
        file.seek(at)
        head = file.read(struct.calcsize(number))
        if len(pages) > 1 and len(head) < struct.calcsize(number):
            return False  # the last page of many a file leads to somewhere
        (tags,) = struct.unpack(order + number, head)
        if tags > _FEW:
            return len(pages) == 1
        content = file.read(tags * size + end)
        entries = content[: tags * size]
        whole = entries[: len(entries) // size * size]  # Pillow takes what is there, too
        counts = {tag: count for tag, _, count, _ in struct.iter_unpack(order + entry, whole)}
        if max(counts.get(_STRIPS, 0), counts.get(_TILES, 0)) > _MANY:
            return True
        after = content[tags * size :]
        at = struct.unpack(order + offset, after)[0] if len(after) == end else 0
    return len(pages) > _MANY


def _ppm(file: IO[bytes], begin: bytes) -> bool:
    if not (magic := re.match(rb"P(?:[1-6f]|0CMYK|y\w+)(?=\s)", begin)):
        return False
    numbers = 2 if magic[0] in (b"P1", b"P4") else 3
    each = rb"(?:\s|#[^\r\n]*[\r\n])+[\d.+-]+"
    return not re.match(re.escape(magic[0]) + each * numbers, begin + file.read(_HEADER))


_KINDS = {b"\x89PNG": _png, b"\xff\xd8": _jpeg, b"II": _tiff, b"MM": _tiff, b"P": _ppm}
_BITS, _PHOTOMETRIC, _ORIENTATION, _SAMPLES = 258, 262, 274, 277  # tags of TIFF
_EXTRA_SAMPLES, _SAMPLE_FORMAT, _NO_DATA = 338, 339, 42113
_ALPHA = _ASSOCIATED, _ = ((1,), (2,))  # an extra sample that is opacity; colors are multiplied
_WHITE_IS_ZERO, _CMYK = 0, 5
_COLORS = {0: 1, 1: 1, 2: 3, 3: 1, 5: 4, 6: 3, 8: 3}  # samples, by photometric interpretation
# Compressions that end where a strip does, and those that are images in an image.
_STREAMS = (1, 5, 8, 32773, 32946, 34925, 50000)
_IMAGES = {7: "JPEG", 33003: "JPEG2000", 33005: "JPEG2000", 34712: "JPEG2000"}
_TILE = 4096**2  # pixels that a tile may have beyond those of a small image
_RATIO = 1000  # by which deflate shrinks what is all the same; other codecs have no limit
_SUBFILE = 254  # a tag of TIFF
_NOT_OWN = 1 | 4  # bits of a page that is a smaller version or a mask of another
UNDO_ORIENTATION: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda x_HWC: x_HWC[:, ::-1],
    3: lambda x_HWC: x_HWC[::-1, ::-1],
    4: lambda x_HWC: x_HWC[::-1],
    5: lambda x_HWC: x_HWC.swapaxes(0, 1),
    6: lambda x_HWC: np.rot90(x_HWC, -1),
    7: lambda x_HWC: x_HWC[::-1, ::-1].swapaxes(0, 1),
    8: np.rot90,
}


@final
@dataclass(frozen=True)
class Bands(AbstractContextManager["Bands"]):
    """The values of an image, opened as Pillow opens others.

    Attributes:
        values_HWC: Integers or floats, as the file has them.
        bits: How many of an integer's the file says that it uses; None: all.
        inverted: Whether the smallest value is white.
        alpha_HW: Opacity in [0, 1], where the file has it.
        no_data: The value that the file says to stand for none.
        window: The values that the file says to show as black and as white.
        pages: Numbers of the file's pages that are images of their own, if this is the first.
        format: What Pillow, or its own project, calls the format.
    """

    values_HWC: np.ndarray
    bits: int | None = None
    inverted: bool = False
    alpha_HW: np.ndarray | None = None
    no_data: float | None = None
    window: tuple[float, float] | None = None
    pages: Sequence[int] = (0,)
    format: str | None = None

    @classmethod
    def of(cls, image: Image.Image) -> "Bands":
        """An image that Pillow opened: gray as one channel, anything else as RGB.

        Values of more than 8 bits stay as they are, and so do four bands without alpha of a TIFF.
        """
        load_pixels(image)
        if _deep_mode(image):
            bands = _deep(image)
        elif has_four_bands(image):
            bands = cls(np.asarray(image))
        else:
            shown = in_srgb(image)
            mode = "L" if shown.mode in GRAYS else "RGB"
            if shown.has_transparency_data:
                values_HWC = np.asarray(shown.convert(f"{mode}A"))
                bands = cls(values_HWC[..., :-1], alpha_HW=_unit(values_HWC[..., -1]))
            else:
                bands = cls(np.atleast_3d(np.asarray(shown.convert(mode))))
        # Pillow itself turns a TIFF while it loads and then drops the tag.
        return replace(bands, format=image.format)._upright(orientation_of(image))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        height, width, _ = self.values_HWC.shape
        return width, height

    @property
    def channels(self) -> int:
        """C."""
        return self.values_HWC.shape[2]

    def crop(self, box: tuple[int, int, int, int]) -> "Bands":
        """The part from left and top up to right and bottom, which lie inside."""
        left, top, right, bottom = box
        inside = slice(top, bottom), slice(left, right)
        alpha_HW = None if self.alpha_HW is None else self.alpha_HW[inside]
        return replace(self, values_HWC=self.values_HWC[inside], alpha_HW=alpha_HW)

    def _upright(self, orientation: int) -> "Bands":
        if not (undo := UNDO_ORIENTATION.get(orientation)):
            return self
        alpha_HW = None if self.alpha_HW is None else undo(self.alpha_HW)
        return replace(self, values_HWC=undo(self.values_HWC), alpha_HW=alpha_HW)

    def close(self) -> None:
        """Nothing is open: the file was read whole."""

    def __exit__(self, *_: object) -> None:
        self.close()


# ------------------------------------------------------------------------------- what Pillow opens


def lost_by_pillow(
    image: ImageFile.ImageFile, file: Path | BinaryIO, page: int, max_pixels: int | None = None
) -> Bands | None:
    """What Pillow would lose of an image that it opened at a page; None where it loses nothing."""
    if image.format == "TIFF":
        if _is_plain(image):
            return None
        try:
            return read_tiff(file, page, max_pixels)
        except ModuleNotFoundError:
            if not (_deep_mode(image) or has_four_bands(image)):
                raise
            pages, no_data = page_numbers(image), _tag(image, _NO_DATA)
            bands = Bands.of(image)
            return replace(bands, pages=pages, no_data=_number(no_data, bands.values_HWC.dtype))
    if _deep_mode(image):
        return Bands.of(image)
    if image.format == "PNG" and not page and image.tile[0].args in _LOW_BYTES:
        return _deep_png(image, file)
    if image.format == "PPM" and image.mode == "RGB" and image.tile[0].codec_name == "ppm":
        return _deep_ppm(image, file)
    return None


def _deep_mode(image: Image.Image) -> bool:
    return image.mode == "F" or image.mode.startswith("I")


def has_four_bands(image: Image.Image) -> bool:
    """Such as red, green, blue and near infrared."""
    colors = image.format == "TIFF" and image.mode in ("RGBA", "RGBX")
    return colors and _tag(image, _EXTRA_SAMPLES) not in _ALPHA


def _is_plain(image: Image.Image) -> bool:
    """Whether a TIFF has 8 bits at most, and gray or colors, with opacity or without."""
    extra = _tag(image, _SAMPLES, 1) - _COLORS.get(_tag(image, _PHOTOMETRIC), 1)
    return (
        max(_tag(image, _BITS, (1,))) <= 8
        and set(_tag(image, _SAMPLE_FORMAT, (1,))) <= {1, 4}  # unsigned, or not said
        and (extra == 0 or (extra == 1 and _tag(image, _EXTRA_SAMPLES) in _ALPHA))
    )


def _deep(image: Image.Image) -> Bands:
    """Gray of more than 8 bits, in the mode that Pillow has for it."""
    values_HW, bits = np.asarray(image), _tag(image, _BITS)
    if image.format == "PPM" and image.mode == "I":  # Pillow has brought it to 16 bits
        values_HW = values_HW.astype(np.uint16)
    elif image.format == "TIFF" and image.mode == "I":
        signed = _tag(image, _SAMPLE_FORMAT, (1,)) != (1,)
        values_HW = values_HW.astype(np.int16) if bits == (16,) else values_HW
        values_HW = values_HW if signed else values_HW.view(np.uint32)
    clear = image.info.get("transparency") if image.format == "PNG" else None
    return replace(
        as_bands(values_HW[..., None], "", 12 if bits == (12,) else None),
        inverted=_tag(image, _PHOTOMETRIC) == _WHITE_IS_ZERO,
        alpha_HW=(values_HW != clear).astype(np.float32) if isinstance(clear, int) else None,
    )


# Pillow keeps the high bytes of a PNG's colors; asked in this way it gives what it left out. Of
# gray with opacity it gives all four bytes.
_LOW_BYTES = {"RGB;16B": "RGB;16L", "RGBA;16B": "RGBA;16L", "LA;16B": "RGBA"}


def _deep_png(image: ImageFile.ImageFile, file: Path | BinaryIO) -> Bands:
    (part,) = image.tile
    load_pixels(image)
    high_HWC = np.asarray(image)
    with Image.open(file, formats=("PNG",)) as other:
        other.tile = [part._replace(args=_LOW_BYTES[str(part.args)])]
        load_pixels(other)
        low_HWC = np.asarray(other)
        clear, turn = other.info.get("transparency"), orientation_of(other)
    if part.args == "LA;16B":
        values_HWC = low_HWC.view(">u2").astype(np.uint16)
    else:
        values_HWC = high_HWC.astype(np.uint16) << 8 | low_HWC
    bands = Bands(values_HWC, format="PNG")
    if values_HWC.shape[2] in (2, 4):
        bands = replace(bands, values_HWC=values_HWC[..., :-1], alpha_HW=_unit(values_HWC[..., -1]))
    elif isinstance(clear, tuple):
        visible_HW = (values_HWC != np.array(clear)).any(2)
        bands = replace(bands, alpha_HW=visible_HW.astype(np.float32))
    return bands._upright(turn)


def _deep_ppm(image: ImageFile.ImageFile, file: Path | BinaryIO) -> Bands | None:
    """Colors of 16 bits, brought to the whole range as Pillow brings gray."""
    (part,), (width, height) = image.tile, image.size
    most = cast(tuple[str, int], part.args)[1]
    if most <= 255:
        return None
    with file.open("rb") if isinstance(file, Path) else nullcontext(file) as content:
        content.seek(part.offset)
        values = np.frombuffer(content.read(6 * width * height), ">u2")
    values_HWC = np.rint(values.reshape(height, width, 3) * (65535 / most)).clip(0, 65535)
    return Bands(values_HWC.astype(np.uint16), format="PPM")


def _tag(image: Image.Image, number: int, default: Any = None) -> Any:
    """What a TIFF says; the default of other files, and where it says nothing."""
    return getattr(image, "tag_v2", {}).get(number, default)


# ------------------------------------------------------------------------------- what it does not


def read_array(file: BinaryIO, max_pixels: int | None = None) -> Bands:
    """The array of a .npy file: (H, W), (H, W, C), or (C, H, W) where C cannot be the last."""
    from numpy.lib import format as npy

    old = npy.read_magic(file) == (1, 0)
    length = int.from_bytes(file.read(2 if old else 4), "little")
    if length > _HEADER:  # as much memory would be taken
        raise ValueError(f"an array with a header of {length:,} bytes")
    file.seek(-2 if old else -4, os.SEEK_CUR)
    header = npy.read_array_header_1_0 if old else npy.read_array_header_2_0
    shape, by_columns, dtype = header(file)
    leads = len(shape) == 3 and shape[0] <= MOST_CHANNELS and shape[0] < min(shape[1:])
    ends = len(shape) == 3 and shape[2] <= MOST_CHANNELS
    if (len(shape) != 2 and leads == ends) or min(shape) < 1 or dtype.hasobject:
        raise ValueError(
            f"an array of {dtype} of shape {shape}, where (H, W), (H, W, C) and (C, H, W) are read "
            f"with 1 to {MOST_CHANNELS} channels" + ", if only one axis can be these" * leads
        )
    height, width = shape[1:] if leads else shape[:2]
    refuse_size(width, height, max_pixels)
    count, begin = math.prod(shape), file.tell()
    if file.seek(0, os.SEEK_END) - begin < count * dtype.itemsize:
        raise ValueError(f"too short for an array of {dtype} of shape {shape}")
    file.seek(begin)
    values = np.frombuffer(file.read(count * dtype.itemsize), dtype, count)
    values = values.reshape(shape, order="F" if by_columns else "C")
    return as_bands(np.moveaxis(values, 0, 2) if leads else np.atleast_3d(values), "NPY")


def read_tiff(file: Path | BinaryIO, page: int, max_pixels: int | None = None) -> Bands:
    """A page of a TIFF, of any depth and of up to 16 channels."""
    try:
        import imagecodecs  # noqa: F401 (what tifffile needs for most of what is compressed)
        from tifffile import TiffFile, TiffPage, logger
    except ImportError:
        raise needs("bands") from None
    logger().setLevel("CRITICAL")  # tags that it cannot read, and that do not matter here
    if not isinstance(file, Path):
        file.seek(0)
    with TiffFile(file, _multifile=False) as tiff:
        # as no frames are asked for
        found = cast(TiffPage, tiff.pages[checked(page, len(tiff.pages))])
        every = cast(Sequence[TiffPage], tiff.pages if page == 0 else ())
        pages = [at for at, each in enumerate(every) if not (each.is_reduced or each.is_mask)]
        bits, uses = found.bitspersample, found.extrasamples
        kind, samples = found.photometric, found.samplesperpixel
        sides = (found.imagewidth, found.imagelength, found.tilewidth, found.tilelength)
        others = (found.imagedepth, found.tiledepth, found.rowsperstrip, samples, bits)
        if not all(isinstance(number, int) for number in (*sides, *others)):
            raise ValueError("a TIFF with several sizes, or other bits for each band")
        pixels, tile = found.imagewidth * found.imagelength, found.tilewidth * found.tilelength
        refuse_size(found.imagewidth, found.imagelength, max_pixels)
        if tile > max(pixels, _TILE) or max(found.imagedepth, found.tiledepth) > 1:
            raise ValueError("a TIFF in volumes, or in tiles that are larger than it is")
        if kind not in (0, 1, 2, _CMYK) and (kind, found.compression) != (6, 7):  # JPEG of YCbCr
            raise ValueError(f"a TIFF of {kind!r}, which is not read where Pillow does not")
        if found.compression not in (*_STREAMS, *_IMAGES):
            raise ValueError(f"a TIFF compressed by {found.compression!r}, which is not read")
        if found.dtype is None or samples > MOST_CHANNELS + 1:
            raise ValueError(f"a TIFF of {samples} samples of {bits} bits")
        ends = map(sum, zip(found.dataoffsets, found.databytecounts, strict=False))
        cut_off = found.compression > 1 and max(ends, default=0) > tiff.filehandle.size
        if cut_off or len(found.dataoffsets) < math.prod(found.chunked):
            raise ValueError("not all of its strips or tiles are there")
        memory = max(pixels, tile) * samples * found.dtype.itemsize
        if memory > _RATIO * tiff.filehandle.size:  # then no more than Pillow may take
            refuse_size(memory // 4, 1, max_pixels)
        width = found.tilewidth or found.imagewidth
        height = found.tilelength or min(found.rowsperstrip, found.imagelength)
        parts = zip(found.dataoffsets, found.databytecounts, strict=True)
        for at, size in parts if found.compression in _IMAGES else ():
            if not size:  # as GDAL leaves out what is all the same
                continue
            tiff.filehandle.seek(at)
            content, kinds = BytesIO(tiff.filehandle.read(size)), (_IMAGES[found.compression],)
            with Image.open(content, formats=kinds) as part:
                if part.width > width or part.height > height:
                    raise ValueError("a strip or tile that is larger than the TIFF says")
        values_SDHWC = found.asarray(squeeze=False, maxworkers=1)
        orientation, no_data, white = map(
            found.tags.valueof, (_ORIENTATION, _NO_DATA, _PHOTOMETRIC)
        )
    height, width = values_SDHWC.shape[2:4]
    values_HWC = values_SDHWC[:, 0].transpose(1, 2, 0, 3).reshape(height, width, samples)
    first, alpha_HW = samples - len(uses), None
    if opaque := [at for at, use in enumerate(uses, first) if (use,) in _ALPHA]:
        alpha_HW = _unit(values_HWC[..., opaque[0]], bits)
        values_HWC = np.delete(values_HWC, opaque[0], 2)
        if (uses[opaque[0] - first],) == _ASSOCIATED:
            values_HWC = _divided(values_HWC, alpha_HW)
    if kind == _CMYK and values_HWC.shape[2] == 4:
        values_HWC = _rgb(values_HWC, bits)
    bands = as_bands(values_HWC, "TIFF", bits, no_data)
    bands = replace(bands, inverted=white == _WHITE_IS_ZERO, alpha_HW=alpha_HW, pages=pages)
    return bands._upright(orientation)


# ------------------------------------------------------------------------------------------- both


def needs(extra: str) -> ModuleNotFoundError:
    """What is said of a file whose reader is not installed."""
    return ModuleNotFoundError(f"needs the extra {extra}: pip install 'mast-ssl[{extra}]'")


def checked(page: int, pages: int) -> int:
    """A page that there is."""
    if page >= pages:
        raise ValueError(f"has no page {page + 1}, but {pages}")
    return page


def as_bands(
    values_HWC: np.ndarray, kind: str, bits: int | None = None, no_data: Any = None
) -> Bands:
    """An image of the values in a file, in any order of bytes.

    Args:
        values_HWC: Numbers of up to 64 bits.
        kind: The format.
        bits: How many of each value are used.
        no_data: What stands for no value, as a number or as text.
    """
    if not 1 <= (channels := values_HWC.shape[2]) <= MOST_CHANNELS:
        raise ValueError(f"{channels} channels, where 1 to {MOST_CHANNELS} are read")
    dtype = values_HWC.dtype
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        raise ValueError(f"values of {dtype}, where integers and floats of up to 64 bits are read")
    if dtype.kind == "b":
        dtype, values_HWC = np.dtype(np.uint8), values_HWC * np.uint8(255)
    values_HWC = values_HWC.astype(dtype.newbyteorder("="), copy=False)
    all_bits = dtype.kind == "f" or bits == 8 * dtype.itemsize
    return Bands(
        values_HWC, None if all_bits else bits, no_data=_number(no_data, dtype), format=kind
    )


def _number(text: Any, dtype: np.dtype) -> float | None:
    """What a tag of GDAL says in text, as the values have it."""
    with suppress(ValueError, TypeError), np.errstate(over="ignore"):
        number = float(str(text).strip("\0 "))
        return float(dtype.type(number)) if dtype.kind == "f" else number
    return None


def _unit(values: np.ndarray, bits: int | None = None) -> np.ndarray:
    """Opacity in [0, 1]."""
    top = _top(values.dtype, bits)
    return np.nan_to_num(values.astype(np.float32) / np.float32(top)).clip(0, 1)


def _divided(values_HWC: np.ndarray, alpha_HW: np.ndarray) -> np.ndarray:
    """Colors that were multiplied by opacity, as they were before."""
    straight_HWC = values_HWC / np.maximum(alpha_HW, 1e-6)[..., None]
    if values_HWC.dtype.kind == "f":
        return straight_HWC.astype(values_HWC.dtype)
    return np.rint(straight_HWC).clip(0, _top(values_HWC.dtype)).astype(values_HWC.dtype)


def _rgb(cmyk_HWC: np.ndarray, bits: int) -> np.ndarray:
    """Of inks, as Pillow does it with 8 bits."""
    top = _top(cmyk_HWC.dtype, bits)
    paper_HWC = top - cmyk_HWC.astype(np.float64)
    rgb_HWC = paper_HWC[..., :3] * paper_HWC[..., 3:] / top
    return (rgb_HWC if cmyk_HWC.dtype.kind == "f" else np.rint(rgb_HWC)).astype(cmyk_HWC.dtype)


def _top(dtype: np.dtype, bits: int | None = None) -> float:
    """The largest value; 1 of floats."""
    return 1.0 if dtype.kind == "f" else float(2 ** (bits or 8 * dtype.itemsize) - 1)


def page_numbers(image: "Image.Image | Bands") -> Sequence[int]:
    """Which pages or frames of a file, open at the first, are images of their own.

    A photo's previews (MPO) are not, nor are overviews and masks of a TIFF.
    """
    if isinstance(image, Bands):
        return image.pages
    if image.format == "MPO" or not getattr(image, "is_animated", False):
        return (0,)
    numbers: Sequence[int] = range(getattr(image, "n_frames", 1))
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        kinds = []
        for number in numbers:
            image.seek(number)
            kinds.append(image.tag_v2.get(_SUBFILE, 0))
        image.seek(0)
        numbers = [at for at, kind in zip(numbers, kinds, strict=True) if not kind & _NOT_OWN]
    return numbers


def is_deep(bands: Bands) -> bool:
    """Whether an image has more than 8 bits."""
    wide = bands.values_HWC.dtype not in (np.uint8, np.bool_)
    return wide and (bands.bits is None or bands.bits > 8)
