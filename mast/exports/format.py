"""The contract of an export format.

Images (B, channels, H, W) are float in [0, 1], H and W the model's input size; C features or
classes.
"""

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from jinja2 import Environment

from mast.data.decode import crop_fraction
from mast.exports.original import Original

EXAMPLE = Path(__file__).with_name("example.py.jinja")
CLASSES = "classes.json"  # of a classifier, next to a graph
ANY = "onnx and pt2 hold any encoder or classifier"


class Format(ABC):
    """A format, for one encoder or classifier.

    Attributes:
        original: The encoder or classifier.
        library: The Hugging Face Hub's name of the library that loads it; none if empty.
        tags: Its tags on the Hub.
        modules: Modules to import for loading.
        normalises: Whether it takes images in [0, 1] like the original, and normalizes them.
        tolerance: Largest difference of an output from the original's, relative to itself and to
            the largest.
    """

    original: Original
    library: ClassVar[str] = ""
    tags: ClassVar[tuple[str, ...]] = ()
    modules: ClassVar[tuple[str, ...]]
    normalises: ClassVar[bool]
    tolerance: ClassVar[tuple[float, float]] = (1e-4, 1e-5)

    @abstractmethod
    def __init__(self, original: Original) -> None:
        """Raises if the format cannot store the original.

        Raises:
            UserError: The reason, and another format or the package to install.
        """

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the files into an empty folder."""

    @abstractmethod
    def load(self, folder: str) -> str:
        """One line of Python that loads `model` from a folder, with `modules` imported."""

    def line(self, folder: str) -> str:
        """The line to copy."""
        return f"import {', '.join(self.modules)}; {self.load(folder)}"

    def example(self, folder: str) -> str:
        """Python from `model` and `images` to `features`, or to `probabilities` and `names`.

        Images are RGB images of Pillow or, if the original takes others, arrays of file values,
        (H, W, channels). Its pixels equal those of `mast`.
        """
        environment = Environment(trim_blocks=True, lstrip_blocks=True)
        return environment.from_string(EXAMPLE.read_text(encoding="utf-8")).render(
            form=self,
            original=self.original,
            resized=resized(self.original.size),
            classes=repr(str(Path(folder) / CLASSES)),
        )


def resized(size: int) -> int:
    """Short side to resize an image to before cropping the central `size` pixels."""
    return math.floor(size / crop_fraction(size))  # as timm rounds
