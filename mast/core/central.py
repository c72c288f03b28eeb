"""The centre of an image whose short side was resized, as torchvision cuts it."""

from collections.abc import Iterable

import numpy as np
from PIL import Image

from mast.core.reading import Layout

_WHOLE = 50_000_000  # pixels up to which an image is resized whole, as torchvision does


def cut_center(image: Image.Image, resized: tuple[int, int], size: int) -> np.ndarray:
    """Resize an image and cut its centre.

    Args:
        image: RGB, or one channel of floats.
        resized: Width and height to which it is resized, at least `size`.
        size: Side of the view in pixels, V.

    Returns:
        (3, V, V) uint8, or (V, V) float32.

    Reference: torchvision `Resize` and `CenterCrop` of Pillow's images, bit for bit; of strips that
        would have more than 50 million pixels then only the part is resized that is shown.
    """
    left, top = (round((side - size) / 2) for side in resized)
    if resized[0] * resized[1] <= _WHOLE:
        whole = image.resize(resized, Image.Resampling.BILINEAR)
        view = whole.crop((left, top, left + size, top + size))
    else:
        wide, high = (of / side for of, side in zip(image.size, resized, strict=True))
        box = (left * wide, top * high, (left + size) * wide, (top + size) * high)
        view = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    view_VV = np.asarray(view)
    return view_VV if view_VV.ndim == 2 else np.ascontiguousarray(view_VV.transpose(2, 0, 1))


def cut_planes(
    channels: Iterable[np.ndarray], resized: tuple[int, int], size: int, layout: Layout
) -> np.ndarray:
    """`cut_center` of any number of channels (H, W) in [0, 1], as planes of bytes.

    Returns:
        (P, V, V) uint8.
    """
    views = [cut_center(Image.fromarray(image_HW), resized, size) for image_HW in channels]
    return layout.split(np.stack(views).clip(0, 1))
