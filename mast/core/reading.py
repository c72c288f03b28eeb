"""Convert values of image files to pixels in [0, 1], store them in canvases, crop centers.

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
_WHOLE = 50_000_000  # pixels up to which a whole image is resized, as in torchvision


@final
@dataclass(frozen=True)
class Layout:
    """How canvases store an image: in sheets of three bytes per pixel, which all kernels read.

    An 8-bit channel is one plane of bytes; a 16-bit channel is two, the high and the low bytes.
    Resampling is linear, so both are resampled separately and added. Planes are in the order of
    the channels, all high bytes first, padded with zeros to a multiple of three.

    Attributes:
        channels: C.
        deep: Whether a channel has 16 bits.
    """

    channels: int = 3
    deep: bool = False

    @property
    def sheets(self) -> int:
        """Sheets per image: P / 3."""
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
        """Images (B, C, H, W) in [0, 1] from their planes, which are bytes divided by 255."""
        images_BCHW = planes_BPHW[:, : self.channels]
        if not self.deep:
            return images_BCHW
        low_BCHW = planes_BPHW[:, self.channels : 2 * self.channels]
        return (images_BCHW * (256 / 257)).add_(low_BCHW, alpha=1 / 257)


RGB = Layout()


def shown(images_BCHW: Tensor) -> Tensor:
    """Images (B, 3, H, W) for display: the first three channels, or the first one as gray."""
    if images_BCHW.shape[1] < 3:
        return images_BCHW[:, :1].expand(-1, 3, -1, -1)
    return images_BCHW[:, :3]


@final
@dataclass(frozen=True)
class Reading:
    """Mapping from file values of a set to pixels.

    Attributes:
        layout: Layout of the canvases.
        low: Value that becomes 0: one number, or one per channel. It applies to files of more than
            8 bits, if the set has any; 8-bit values are then divided by 255.
        high: Value that becomes 1.
        no_data: Value that means "no data"; it becomes 0, as do non-finite values.
    """

    layout: Layout = field(default_factory=Layout)
    low: tuple[float, ...] = (0.0,)
    high: tuple[float, ...] = (255.0,)
    no_data: float | None = None

    @property
    def ends(self) -> str:
        """The range that becomes 0 to 1, for all channels or each, in words."""
        pairs = np.stack(np.broadcast_arrays(self.low, self.high), -1)
        return ", ".join(f"{low:g} to {high:g}" for low, high in pairs)


def read_reading(described: Any, channels: int | None = None) -> Reading:
    """Load from JSON of `dataclasses.asdict`; `channels` is the expected number, if any."""
    try:
        layout, no_data = Layout(**described["layout"]), described["no_data"]
        low, high = (tuple(map(float, described[end])) for end in ("low", "high"))
        reading = Reading(layout, low, high, None if no_data is None else float(no_data))
        count = layout.channels
        is_whole = 1 <= count <= MOST_CHANNELS and type(layout.deep) is bool
        if not is_whole or channels not in (None, count):
            raise ValueError(f"expected files of {channels or 'some'} channels, got {count}")
        lows, highs = (np.broadcast_to(ends, count).tolist() for ends in (low, high))
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError("its description of how to read files is of another version") from error
    spans = [most - least for least, most in zip(lows, highs, strict=True)]
    if not (min(spans) > 0 and all(map(math.isfinite, [*spans, reading.no_data or 0]))):
        raise ValueError(f"expected a range of values, got {low!s:.100} to {high!s:.100}")
    return reading


def cut_center(image: Image.Image, resized: tuple[int, int], size: int) -> np.ndarray:
    """Resize an image (RGB, or one channel of floats) to a width and height, and crop its center.

    Returns:
        (3, V, V) uint8, or (V, V) float32, V = size.

    Reference: torchvision `Resize` and `CenterCrop` on Pillow images, bit for bit; if the resized
        image would exceed 50 million pixels, only the visible part is resized.
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
    """`cut_center` for channels (H, W) in [0, 1]; returns planes of bytes (P, V, V), uint8."""
    views = [cut_center(Image.fromarray(image_HW), resized, size) for image_HW in channels]
    return layout.split(np.stack(views).clip(0, 1))
