"""Which files are images, by their endings and content; files that would take minutes are refused.

Sizes that a file declares are Pillow's own concern, which refuses more than 179 million pixels;
what other readers open has the same limit.
"""

import functools
import math
import os
import re
import struct
from contextlib import suppress
from importlib.util import find_spec
from typing import IO

from PIL import Image, ImageFile, features

EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".pgm", ".ppm", ".pnm",
)  # fmt: skip
ARRAY = ".npy"  # may as well hold features or labels of images beside it
DICOM = (".dcm", ".dicom")  # read where the extra dicom is installed
HEIF = (".heic", ".heif")  # read where the extra heif is installed
AVIF = ".avif"  # read where Pillow was built with it, as its wheels are
# What is left out with a warning: raw files of cameras, and images of other kinds.
UNREAD = (
    ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef", ".mos",
    ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f",
    ".fff", ".gpr", ".apng", ".dib", ".exr", ".gif", ".hdr", ".heics", ".hif", ".ico", ".j2k",
    ".jfif", ".jpe", ".jp2", ".jxl", ".pbm", ".psd", ".tga",
    ".fits", ".mat", ".nii", ".npz", ".svg",
    *DICOM, *HEIF, AVIF,
)  # fmt: skip

# What a file may hold, whatever its ending, as Pillow calls it. Of the forty others that it knows,
# EPS is a program, which it runs.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF", "HEIF")
_ORIENTATION_TAG = 0x0112


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


@functools.cache
def formats() -> tuple[str, ...]:
    """Those of `_FORMATS` that this Pillow reads."""
    extensions()
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def load_pixels(image: Image.Image) -> None:
    """Decodes an opened image; one of a format that is not read, only if that was done before.

    Raises:
        ValueError: It is none that is read here.
    """
    waits = isinstance(image, ImageFile.StubImageFile) or getattr(image, "tile", None)
    if waits and image.format not in (*formats(), "MPO"):  # MPO is a JPEG with more images in it
        raise ValueError(f"the format {image.format} is not read")
    image.load()


def orientation_of(image: Image.Image) -> int:
    """The EXIF orientation of an image, 1 to 8; 1 where there is none."""
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # Pillow raises many kinds here, and a damaged tag does not spoil the pixels
        return 1
    return orientation if orientation in range(2, 9) else 1


_FEW = 1000  # of what images have dozens of
_MANY = 200_000  # of what holds pixels: chunks of 8 KiB of a PNG, strips and tiles of a TIFF
_EXIF = 100  # segments of a JPEG; Pillow copies all that were before
_SCANS = 100  # over all pixels of a progressive JPEG; thirty bytes may be one
_HEADER = 65_536  # bytes of a PPM's, and of what a JPEG may have between its segments

_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])(?=(.{0,2}))", re.DOTALL)
_STRIPS, _TILES = 0x0111, 0x0144  # tags of where they are


def refuse_bomb(file: IO[bytes]) -> None:
    """Looks at the outline of a file.

    Args:
        file: Anything, at its beginning.

    Raises:
        ValueError: It has more parts than images have.
    """
    begin = file.read(16)
    for signature, too_many in _KINDS.items():
        if begin.startswith(signature) and too_many(file, begin):
            raise ValueError("more parts than an image has, as if made to keep its reader busy")


def refuse_size(width: int, height: int, max_pixels: int | None = None) -> None:
    """Checks what a file declares before memory is taken for it.

    Args:
        width: In pixels.
        height: In pixels.
        max_pixels: The most that it may have; as many as Pillow decodes if not given.

    Raises:
        ValueError: It has more.
    """
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
