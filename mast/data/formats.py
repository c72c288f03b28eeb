"""Which files are images, by their endings and by their content, and what Pillow says of them."""

import functools
from contextlib import suppress
from importlib.util import find_spec

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
