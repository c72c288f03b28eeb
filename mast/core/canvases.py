"""A batch of images of different sizes.

Legend: B images, S sheets of each, H and W pixels of one, T numbers of all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from mast.core.reading import RGB, Layout
from mast.core.transfer import pinned, to_device


@final
@dataclass(frozen=True)
class Canvases:
    """Images one after the other in a flat tensor, without padding.

    Attributes:
        values_T: uint8: the sheets of every image, in rows with three bytes per pixel, such as
            red, green and blue; on any device. It may contain further images.
        size_B2: int64, height and width in pixels, on the CPU.
        start_B: int64, start of each image in `values_T`, on the CPU.
        aspect_B: float32, width / height of the originals, of which these are resized; on the CPU.
        layout: Pixel layout of all images.
    """

    values_T: Tensor
    size_B2: Tensor
    start_B: Tensor
    aspect_B: Tensor
    layout: Layout = RGB

    @classmethod
    def packed(
        cls,
        values_T: Tensor,
        size_B2: Tensor,
        aspect_B: Tensor | None = None,
        layout: Layout = RGB,
    ) -> "Canvases":
        """Images stored consecutively from the start of `values_T` (uint8).

        By default `aspect_B` is that of the sizes (height and width).
        """
        count_B = 3 * layout.sheets * size_B2.prod(1)
        assert values_T.dtype == torch.uint8
        assert count_B.sum() <= values_T.numel()
        if aspect_B is None:
            aspect_B = size_B2[:, 1] / size_B2[:, 0].clamp(min=1)
        start_B = count_B.cumsum(0) - count_B
        return cls(values_T, size_B2, start_B, aspect_B.cpu().float(), layout)

    @classmethod
    def of(cls, images_BHWC: Tensor, aspect_B: Tensor | None = None) -> "Canvases":
        """Images (B, H, W, 3) of one size, uint8.

        `aspect_B` is width / height of the originals, where these were stretched.
        """
        count, height, width, _ = images_BHWC.shape
        size_B2 = torch.tensor([[height, width]], device="cpu").repeat(count, 1)
        return cls.packed(images_BHWC.reshape(-1), size_B2, aspect_B)

    @classmethod
    def cat(cls, parts: Sequence["Canvases"]) -> "Canvases":
        """Concatenate batches of one device."""
        if len(parts) == 1:
            return parts[0]
        values = (part.sheets(at).flatten() for part in parts for at in range(len(part)))
        return cls.packed(
            torch.cat([parts[0].values_T[:0], *values]),
            torch.cat([part.size_B2 for part in parts]),
            torch.cat([part.aspect_B for part in parts]),
            parts[0].layout,
        )

    def __len__(self) -> int:
        return len(self.size_B2)

    def __getitem__(self, index: slice | Tensor) -> "Canvases":
        """A subset of the images, without copying."""
        return replace(
            self,
            size_B2=self.size_B2[index],
            start_B=self.start_B[index],
            aspect_B=self.aspect_B[index],
        )

    @property
    def device(self) -> torch.device:
        """Device of the pixels."""
        return self.values_T.device

    def sheets(self, index: int) -> Tensor:
        """The sheets (S, H, W, 3) of one image, without copying."""
        start, size = int(self.start_B[index]), self.size_B2[index].tolist()
        shape = self.layout.sheets, *size, 3
        return self.values_T[start : start + math.prod(shape)].view(shape)

    def image(self, index: int) -> Tensor:
        """One image (H, W, 3), uint8, for display: its colors, or its first channel as gray."""
        sheets_SHWC = self.sheets(index)
        if self.layout.channels < 3:
            return sheets_SHWC[0, :, :, :1].expand(-1, -1, 3)
        return sheets_SHWC[0]

    def apart(self) -> "Canvases":
        """All sheets as separate images, in the order of the images."""
        count = self.layout.sheets
        start_BS = self.start_B[:, None] + 3 * self.size_B2.prod(1)[:, None] * torch.arange(count)
        size_B2, aspect_B = (
            of_B.repeat_interleave(count, dim=0) for of_B in (self.size_B2, self.aspect_B)
        )
        return Canvases(self.values_T, size_B2, start_BS.flatten(), aspect_B)

    def to(self, device: torch.device) -> "Canvases":
        """With the pixels on a device; the host does not wait for a copy to a GPU."""
        return replace(self, values_T=to_device(self.values_T, device))

    def pinned(self, device: torch.device) -> "Canvases":
        """With the pixels in pinned memory."""
        return replace(self, values_T=pinned(self.values_T, device))
