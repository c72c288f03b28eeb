"""Images that Pillow has no mode for: more than 8 bits, or other channels than gray and colours.

Legend: H height, W width, C channels.
"""

from dataclasses import dataclass, replace
from types import TracebackType
from typing import final

import numpy as np


@final
@dataclass(frozen=True)
class Bands:
    """The values of an image, opened as Pillow opens others.

    Attributes:
        values_HWC: Integers or floats, as the file has them.
        bits: How many of an integer's the file says that it uses; None: all.
        inverted: Whether the smallest value is white.
        alpha_HW: Opacity in [0, 1], where the file has it.
        no_data: The value that the file says to stand for none.
        format: What Pillow, or its own project, calls the format.
    """

    values_HWC: np.ndarray
    bits: int | None = None
    inverted: bool = False
    alpha_HW: np.ndarray | None = None
    no_data: float | None = None
    format: str | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        height, width, _ = self.values_HWC.shape
        return width, height

    @property
    def channels(self) -> int:
        """C."""
        return self.values_HWC.shape[2]

    def crop(self, box: tuple[int, int, int, int]) -> "Bands":
        """The part from left and top up to right and bottom, which lie inside."""
        left, top, right, bottom = box
        inside = slice(top, bottom), slice(left, right)
        alpha_HW = None if self.alpha_HW is None else self.alpha_HW[inside]
        return replace(self, values_HWC=self.values_HWC[inside], alpha_HW=alpha_HW)

    def __enter__(self) -> "Bands":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        """Nothing is open: the file was read whole."""
