"""The contract that every source of images fulfils.

Legend: N images, H height, W width, S side of the canvas, C classes of a task.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from PIL import Image

from mast.data.decode import BrokenImageError, to_canvas, to_pixels


class Source(ABC):
    """Images by index, with names and, where the set has them, labels.

    `open`, `load` and `canvas` are called from several threads at once.

    Attributes:
        name: What the user called it.
        targets: Label arrays, each (N,) int64, by task; empty where there are no labels.
        multilabels: Labels of tasks in which an image has several classes or none, each (N, C)
            int8 by task: 1 present, 0 absent, -1 unknown, which is neither right nor wrong.
        classes: Class names by task, with the keys of `targets` and of `multilabels`.
    """

    name: str
    targets: dict[str, np.ndarray]
    classes: dict[str, tuple[str, ...]]
    multilabels: Mapping[str, np.ndarray] = MappingProxyType({})

    @abstractmethod
    def __len__(self) -> int:
        """The number of images."""

    @abstractmethod
    def open(self, index: int) -> Image.Image:
        """Opens one image; its pixels may not be decoded yet."""

    @abstractmethod
    def identifier(self, index: int) -> str:
        """A name for one image that finds it again: a relative path or an index."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes when the images may have changed; cheap, without decoding."""

    def load(self, index: int) -> np.ndarray:
        """One image at full size.

        Returns:
            (H, W, 3) uint8.

        Raises:
            BrokenImageError: If it cannot be decoded.
        """
        try:
            with self.open(index) as image:
                return to_pixels(image)
        except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
            raise self._broken(index, error) from error

    def canvas(self, index: int, size: int) -> tuple[np.ndarray, float]:
        """One whole image stretched to a square.

        Args:
            index: Which image.
            size: Side of the canvas in pixels.

        Returns:
            The canvas, (S, S, 3) uint8, and width / height of the original.

        Raises:
            BrokenImageError: If it cannot be decoded.
        """
        try:
            with self.open(index) as image:
                return to_canvas(image, size)
        except Exception as error:
            raise self._broken(index, error) from error

    def _broken(self, index: int, error: Exception) -> BrokenImageError:
        reason = " ".join(str(error).split()) or type(error).__name__
        return BrokenImageError(f"{self.name}/{self.identifier(index)}", reason)
