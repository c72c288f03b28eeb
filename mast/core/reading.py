"""How values of image files become pixels in [0, 1], how canvases hold them, and their centres.

Legend: B images, C channels of an image, P planes of bytes, H and W pixels.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from PIL import Image
from torch import Tensor

MOST_CHANNELS = 16
_WHOLE = 50_000_000  # pixels up to which an image is resized whole, as torchvision does


@final
@dataclass(frozen=True)
class Layout:
    """How canvases hold an image: in sheets of three bytes a pixel, which all kernels read.

    Each channel is a plane of bytes; with 16 bits it is two, the high bytes and the low ones.
    Resampling is linear, so both are resampled on their own and added. Planes are in the order of
    the channels, all high ones first, then zeros up to a multiple of three.

    Attributes:
        channels: C.
        deep: Whether a channel has 16 bits.
    """

    channels: int = 3
    deep: bool = False

    @property
    def sheets(self) -> int:
        """Of an image: P / 3."""
        return -(-self.channels * (1 + self.deep) // 3)

    def split(self, image_CHW: np.ndarray) -> np.ndarray:
        """An image in [0, 1] as planes (P, H, W) of bytes, rounded to 8 or 16 bits."""
        planes_PHW = np.zeros((3 * self.sheets, *image_CHW.shape[1:]), np.uint8)
        for channel, image_HW in enumerate(image_CHW):
            level_HW = np.rint(image_HW * (65535.0 if self.deep else 255.0)).astype(np.uint16)
            if self.deep:
                planes_PHW[self.channels + channel] = level_HW & 255
                level_HW >>= 8
            planes_PHW[channel] = level_HW
        return planes_PHW

    def joined(self, planes_BPHW: Tensor) -> Tensor:
        """Images (B, C, H, W) in [0, 1] of their planes, which are bytes divided by 255."""
        images_BCHW = planes_BPHW[:, : self.channels]
        if not self.deep:
            return images_BCHW
        low_BCHW = planes_BPHW[:, self.channels : 2 * self.channels]
        return (images_BCHW * (256 / 257)).add_(low_BCHW, alpha=1 / 257)


RGB = Layout()


def shown(images_BCHW: Tensor) -> Tensor:
    """Images (B, 3, H, W) to look at: their first three channels, or the first one as gray."""
    if images_BCHW.shape[1] < 3:
        return images_BCHW[:, :1].expand(-1, 3, -1, -1)
    return images_BCHW[:, :3]


@final
@dataclass(frozen=True)
class Reading:
    """How the values of a set's files become pixels.

    Attributes:
        layout: Of its canvases.
        low: What becomes 0: one number, or one for each channel. In a set with files of more than
            8 bits it is theirs, and values of 8 bits are divided by 255.
        high: What becomes 1.
        no_data: What stands for no value, and becomes 0; values that are not finite do, too.
    """

    layout: Layout = field(default_factory=Layout)
    low: tuple[float, ...] = (0.0,)
    high: tuple[float, ...] = (255.0,)
    no_data: float | None = None

    @property
    def ends(self) -> str:
        """The range of values that becomes 0 to 1, or that of each channel, in words."""
        pairs = np.stack(np.broadcast_arrays(self.low, self.high), -1)
        return ", ".join(f"{low:g} to {high:g}" for low, high in pairs)


def read_reading(described: Any, channels: int | None = None) -> Reading:
    """A reading from JSON, as `dataclasses.asdict` gives it, of this many channels if given."""
    try:
        layout, no_data = Layout(**described["layout"]), described["no_data"]
        low, high = (tuple(map(float, described[end])) for end in ("low", "high"))
        reading = Reading(layout, low, high, None if no_data is None else float(no_data))
        count = layout.channels
        is_whole = 1 <= count <= MOST_CHANNELS and type(layout.deep) is bool
        if not is_whole or channels not in (None, count):
            raise ValueError(f"files of {count} channels are read for {channels or 'canvases'}")
        lows, highs = (np.broadcast_to(ends, count).tolist() for ends in (low, high))
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError("it says how files are read, but not as this version does") from error
    spans = [most - least for least, most in zip(lows, highs, strict=True)]
    if not (min(spans) > 0 and all(map(math.isfinite, [*spans, reading.no_data or 0]))):
        raise ValueError(f"values from {low!s:.100} to {high!s:.100} cannot become 0 to 1")
    return reading


def cut_center(image: Image.Image, resized: tuple[int, int], size: int) -> np.ndarray:
    """Resize an image (RGB, or one channel of floats) to a width and height, and cut its centre.

    Returns:
        (3, V, V) uint8, or (V, V) float32, V = size.

    Reference: torchvision `Resize` and `CenterCrop` of Pillow's images, bit for bit; of images that
        would have more than 50 million pixels only the part that is shown is resized.
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
    """`cut_center` of channels (H, W) in [0, 1], as planes of bytes (P, V, V), uint8."""
    views = [cut_center(Image.fromarray(image_HW), resized, size) for image_HW in channels]
    return layout.split(np.stack(views).clip(0, 1))
