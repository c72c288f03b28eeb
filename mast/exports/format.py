"""The contract of an export format.

Images (B, channels, H, W) are float in [0, 1], H and W the model's input size; C features or
classes.
"""

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from mast.data import crop_fraction
from mast.exports.original import Original

ANY = "onnx and pt2 hold any encoder or classifier"


class Format(ABC):
    """A format, for one encoder or classifier.

    Attributes:
        library: The Hugging Face Hub's name of the library that loads it; none if empty.
        tags: Its tags on the Hub.
        modules: Modules to import for loading.
        normalises: Whether it takes images in [0, 1] like the original, and normalizes them.
        tolerance: Largest difference of an output from the original's, relative to itself and to
            the largest.
    """

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

    @abstractmethod
    def example(self, folder: str) -> str:
        """Python from `model` and `images` to `features`, or to `probabilities` and `names`.

        Images are RGB images of Pillow or, if the original takes others, arrays of file values,
        (H, W, channels).
        """

    def line(self, folder: str) -> str:
        """The line to copy."""
        return f"import {', '.join(self.modules)}; {self.load(folder)}"


def preparing(original: Original, normalise: bool = False, tensors: bool = False) -> str:
    """Python that defines `prepare`, from one of `images` to the model's input.

    It uses NumPy and Pillow, and its pixels equal those of `mast`.
    """
    size, reading = original.size, original.reading
    lines = ["import numpy", "from PIL import Image", *(["import torch"] * tensors)]
    lines += [
        "\n\ndef cut(image):  # its short side resized, then its centre",
        f"    wide, high = ({resized(size)} * side // min(image.size) for side in image.size)",
        f"    left, top = (round((side - {size}) / 2) for side in (wide, high))",
        "    image = image.resize((wide, high), Image.Resampling.BILINEAR)",
        f"    image = image.crop((left, top, left + {size}, top + {size}))",
        "    return numpy.asarray(image, numpy.float32)",
    ]
    if original.of_photos:
        lines += ["\n\ndef prepare(image):", "    view = cut(image) / 255"]
    else:
        ends = ", ".join(f"numpy.array({list(end)})" for end in (reading.low, reading.high))
        if reading.layout.deep:  # 8-bit files in such a set have their own range
            ends = f"(0, 255) if values.dtype == numpy.uint8 else ({ends})"
        known = "numpy.abs(values) < 1e37"  # false for non-finite values
        if reading.no_data is not None:
            known = f"({known}) & (values != {reading.no_data!r})"
        lines += [
            "\n\ndef prepare(values):  # (H, W, channels), as files have them",
            f"    low, high = {ends}",
            f"    known = {known}",
            "    shares = numpy.where(known, (values - low) / (high - low), 0).clip(0, 1)",
            "    bands = numpy.float32(shares).transpose(2, 0, 1)",
            "    view = numpy.stack([cut(Image.fromarray(band)) for band in bands], axis=2)",
        ]
    if normalise:
        mean, std = map(list, original.encoder.config.normalization)
        lines += [f"    view = (view - numpy.float32({mean})) / numpy.float32({std})"]
    view = "view.transpose(2, 0, 1)"
    return "\n".join([*lines, f"    return {f'torch.tensor({view})' if tensors else view}", "\n"])


def resized(size: int) -> int:
    """Short side to resize an image to before cropping the central `size` pixels."""
    return math.floor(size / crop_fraction(size))  # as timm rounds
