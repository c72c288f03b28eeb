"""Digests and perceptual hashes of images, independent of the file format."""

import hashlib
import itertools
import math

import numpy as np
from PIL import Image

FAINT = 64  # clear distance of a frequency from the median (noise of one gray level)
ALIKE = 8  # gray levels by which a border may differ from its corner
COMMON = 308**2  # size in pixels for measuring sharpness
BITS = 24  # clear bits that a hash needs to count; docs/log.md
# Basis of the 8 lowest frequencies over 32 pixels, as in `scipy.fft.dct`.
_COSINES = 2 * np.cos(np.pi / 64 * np.outer(np.arange(8), np.arange(1, 64, 2)))
_ODD = np.array([1, -1] * 4)


def pixel_digest(sheets_SHWC: np.ndarray) -> bytes:
    """Digest of an image's pixels (uint8) and shape."""
    digest = hashlib.blake2b(repr(sheets_SHWC.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(sheets_SHWC).data)
    return digest.digest()


def sharpness_and_border(image_HWC: np.ndarray) -> tuple[float, float]:
    """Sharpness of an image, and the share of its plain border.

    Both are comparable between copies of different size. Sharpness is the standard deviation of the
    Laplacian in gray levels, with the image resized to `COMMON` pixels; enlarged, blurred or
    compressed copies have less than the original. The border is the region connected to a corner
    with its color: bars, frames and the corners of a rotated photo.
    """
    import cv2

    image = Image.fromarray(image_HWC).convert("RGB")
    scale = math.sqrt(COMMON / (image.width * image.height))
    width, height = (max(1, round(scale * side)) for side in image.size)
    small_HWC = np.array(image.resize((width, height), Image.Resampling.BICUBIC))
    found_HW = np.zeros((height + 2, width + 2), np.uint8)
    flags = cv2.FLOODFILL_MASK_ONLY | cv2.FLOODFILL_FIXED_RANGE | 1 << 8
    for corner in itertools.product((0, width - 1), (0, height - 1)):
        cv2.floodFill(small_HWC, found_HW, corner, 0, (ALIKE,) * 3, (ALIKE,) * 3, flags)
    border = float(found_HW[1:-1, 1:-1].mean())
    gray_HW = cv2.cvtColor(small_HWC, cv2.COLOR_RGB2GRAY).astype(np.float32)
    inside_HW = cv2.dilate(found_HW, np.ones((5, 5), np.uint8))[1:-1, 1:-1] == 0
    detail = cv2.Laplacian(gray_HW, cv2.CV_32F)[inside_HW]
    # The resize factor without the border.
    return float(detail.std()) * (1 - border) if detail.size else 0.0, border


def perceptual_hashes(image_HWC: np.ndarray) -> np.ndarray:
    """Perceptual hashes, robust to brightness, hue, blur, noise and compression.

    Each bit tells whether one of the 64 lowest frequencies of the gray image, resized to 32 by 32
    pixels, exceeds their median, as in `imagehash.phash`.

    Args:
        image_HWC: (H, W, 3) uint8.

    Returns:
        (8, 64) int8, -1 or 1, for the image and its mirrored and quarter-turned versions; 0 if
        fewer than 24 bits are clear, as for images of one color or that vary along one axis.
    """
    gray = Image.fromarray(image_HWC).convert("L")
    gray_HW = np.array(gray.resize((32, 32), Image.Resampling.LANCZOS), np.float64)
    low_88 = _COSINES @ gray_HW @ _COSINES.T
    ways = [low_88, low_88 * _ODD]  # mirroring flips the signs of odd frequencies
    for way in range(6):
        ways.append(ways[way].T * _ODD[:, None])  # a quarter turn flips those of the columns
    low_TB = np.reshape([*ways[::2], *ways[1::2]], (8, 64))
    low_TB -= np.median(low_TB, axis=1, keepdims=True)
    clear_TB = np.abs(low_TB[:, 1:]) > FAINT  # without the mean
    clear_T1 = clear_TB.sum(axis=1, keepdims=True) >= BITS
    return (np.where(low_TB > 0, 1, -1) * clear_T1).astype(np.int8)
