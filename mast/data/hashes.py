"""Digests and perceptual hashes of images, which do not depend on the format of their file."""

import hashlib
import math

import numpy as np
from PIL import Image

FAINT = 64  # of a frequency from the median: what noise of one level of 256 in each pixel makes
COMMON = 308**2  # pixels in which sharpness is measured
BITS = 24  # of a hash that must exceed it for the hash to count; docs/log.md
# Of the 8 lowest frequencies along 32 pixels, as `scipy.fft.dct` has them.
_COSINES = 2 * np.cos(np.pi / 64 * np.outer(np.arange(8), np.arange(1, 64, 2)))
_ODD = np.array([1, -1] * 4)


def pixel_digest(sheets_SHWC: np.ndarray) -> bytes:
    """A digest of all pixels of an image, uint8, and of its shape."""
    digest = hashlib.blake2b(repr(sheets_SHWC.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(sheets_SHWC).data)
    return digest.digest()


def sharpness(image_HWC: np.ndarray) -> float:
    """The deviation of the Laplacian of an image, resized to `COMMON` pixels, in gray levels.

    So copies of one photo compare whatever their sizes; enlarged, blurred or compressed ones have
    less than the original.
    """
    gray = Image.fromarray(image_HWC).convert("L")
    scale = math.sqrt(COMMON / (gray.width * gray.height))
    width, height = (max(1, round(scale * side)) for side in gray.size)
    x_HW = np.asarray(gray.resize((width, height), Image.Resampling.BICUBIC), np.float32)
    x_HW = np.pad(x_HW, 1, "edge")
    inner_HW, rows, columns = x_HW[1:-1, 1:-1], x_HW[:, 1:-1], x_HW[1:-1]
    around_HW = rows[:-2] + rows[2:] + columns[:, :-2] + columns[:, 2:]
    return float((around_HW - 4 * inner_HW).std())


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
    gray = Image.fromarray(image_HWC).convert("L")
    gray_HW = np.array(gray.resize((32, 32), Image.Resampling.LANCZOS), np.float64)
    low_88 = _COSINES @ gray_HW @ _COSINES.T
    ways = [low_88, low_88 * _ODD]  # to mirror an image turns the signs of its odd frequencies
    for way in range(6):
        ways.append(ways[way].T * _ODD[:, None])  # as to turn it by a quarter does of its columns
    low_TB = np.reshape([*ways[::2], *ways[1::2]], (8, 64))
    low_TB -= np.median(low_TB, axis=1, keepdims=True)
    clear_T1 = (np.abs(low_TB[:, 1:]) > FAINT).sum(axis=1, keepdims=True) >= BITS  # without a mean
    return (np.where(low_TB > 0, 1, -1) * clear_T1).astype(np.int8)
