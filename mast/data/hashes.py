"""What tells that images look alike, whatever file they are in: digests and perceptual hashes."""

import hashlib

import numpy as np
from PIL import Image

FAINT = 64  # of a frequency from the median: what noise of one level of 256 in each pixel makes
BITS = 24  # of more than that in a hash that tells images apart; docs/log.md


def pixel_digest(sheets_SHWC: np.ndarray) -> bytes:
    """A digest of all pixels of an image, uint8, and of its shape."""
    shape = repr(sheets_SHWC.shape).encode()
    return hashlib.blake2b(shape + sheets_SHWC.tobytes(), digest_size=16).digest()


def perceptual_hashes(image_HWC: np.ndarray) -> np.ndarray:
    """Hashes of an image that brightness, hue, blur, noise and compression hardly change.

    Bits say which of the 64 lowest frequencies of the gray image, resized to 32 by 32 pixels, are
    above their median, as those of `imagehash.phash`.

    Args:
        image_HWC: (H, W, 3) uint8.

    Returns:
        (8, 64) int8, -1 or 1, of the image as it is, then mirrored and turned by quarters; 0 where
        fewer than 24 bits are clear, as in images of one color or that vary along one axis.
    """
    from scipy.fft import dctn

    gray = Image.fromarray(image_HWC).convert("L")
    gray_HW = np.array(gray.resize((32, 32), Image.Resampling.LANCZOS), np.float32)
    bits_TB = np.zeros((8, 64), np.int8)
    for way, bits_B in enumerate(bits_TB):
        mirrored, quarters = 1 - way // 4 * 2, way % 4
        low_B = dctn(np.rot90(gray_HW[:, ::mirrored], quarters))[:8, :8].ravel()
        low_B -= np.median(low_B)
        if (np.abs(low_B[1:]) > FAINT).sum() >= BITS:  # the first is the mean
            bits_B[:] = np.where(low_B > 0, 1, -1)
    return bits_TB
