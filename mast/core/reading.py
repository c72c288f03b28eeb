"""How the values of image files become pixels in [0, 1], and how canvases hold them.

Legend: B images, C channels of an image, P planes of bytes, H and W pixels.
"""

from dataclasses import dataclass, field
from typing import final

MOST_CHANNELS = 16


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


RGB = Layout()


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
