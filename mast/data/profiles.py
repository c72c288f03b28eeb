"""Apply embedded color profiles: convert pixels to sRGB, which encoders and screens expect."""

import functools
from io import BytesIO

import numpy as np
from PIL import Image, ImageCms, features

_LARGEST = 4_000_000  # most bytes of a profile; printers' have half a megabyte
_MODES = {b"RGB ": "RGB", b"GRAY": "L", b"CMYK": "CMYK"}  # Pillow mode by color space
GRAYS = ("1", "L", "LA", "La")  # Pillow modes


def in_srgb(image: Image.Image) -> Image.Image:
    """A decoded 8-bit image with its profile applied, as L, RGB, LA or RGBA.

    The image is unchanged without a profile, or with one that is sRGB, damaged or of another space.
    """
    profile = image.info.get("icc_profile")
    mode = "L" if image.mode in GRAYS else "CMYK" if image.mode == "CMYK" else "RGB"
    if not isinstance(profile, bytes) or _MODES.get(profile[16:20]) != mode:
        return image
    to_srgb = _transform(profile, mode)
    if to_srgb is None:
        return image
    alpha = image.convert("RGBA").getchannel("A") if image.has_transparency_data else None
    shown = to_srgb.apply(image.convert(mode))
    shown = shown.getchannel(0) if mode == "L" else shown
    if alpha is not None:
        shown.putalpha(alpha)
    return shown


@functools.lru_cache(maxsize=32)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Transform from a profile to sRGB; None if no color of a grid changes by more than a level."""
    if len(profile) > _LARGEST or not features.check("littlecms2"):
        return None
    try:
        own, srgb = BytesIO(profile), ImageCms.createProfile("sRGB")
        found = ImageCms.buildTransform(own, srgb, mode, "RGB")
    except ImageCms.PyCMSError:  # damaged
        return None
    if mode == "CMYK":
        return found
    levels = np.linspace(0, 255, 18, dtype=np.uint8)
    grid_HWC = np.stack(np.meshgrid(*[levels] * 3), -1).reshape(18, -1, 3)
    grid = Image.fromarray(grid_HWC).convert(mode)
    changes_HWC = np.asarray(found.apply(grid), int) - np.asarray(grid.convert("RGB"), int)
    return found if np.abs(changes_HWC).max() > 1 else None
