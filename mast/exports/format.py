"""What an encoder is written as, to be loaded elsewhere.

Images are float in [0, 1]: B a batch, 3 colours, H and W the encoder's size; C features.
"""

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from mast.measure.features import crop_fraction
from mast.models import Encoder

EXACT = (1e-4, 1e-5)
ANY = "onnx, pt2 and torchscript hold any encoder"


class Place(NamedTuple):
    """Where a folder lies, as the Python that loads it says it.

    Attributes:
        name: A path, or OWNER/NAME on the Hugging Face Hub.
        on_hub: Which of the two.
    """

    name: str
    on_hub: bool = False

    def file(self, name: str) -> str:
        """Python for the path of one of its files."""
        if self.on_hub:
            return f"huggingface_hub.hf_hub_download({self.name!r}, {name!r})"
        return repr(str(Path(self.name) / name))


class Format(ABC):
    """A format, for one encoder.

    Attributes:
        library: What the Hugging Face Hub calls the library that loads it; none if empty.
        tags: Its tags there.
        modules: What is imported to load it.
        normalises: Whether it takes images in [0, 1], as the encoder does.
        tolerance: How far a feature may be from the encoder's, as a share of itself and of the
            largest.
    """

    library: ClassVar[str] = ""
    tags: ClassVar[tuple[str, ...]] = ()
    modules: ClassVar[tuple[str, ...]]
    normalises: ClassVar[bool]
    tolerance: ClassVar[tuple[float, float]] = EXACT

    @abstractmethod
    def __init__(self, encoder: Encoder) -> None:
        """Look at an encoder, and refuse one that the format cannot hold.

        Args:
            encoder: In evaluation mode, on the CPU.

        Raises:
            UserError: Why, and which format can; or what has to be installed.
        """

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write its files into an empty folder.

        Raises:
            UserError: The encoder cannot be written so.
        """

    @abstractmethod
    def load(self, place: Place) -> str:
        """Python that makes `model` of the folder, in one line, with `modules` imported."""

    @abstractmethod
    def features(self, model: Any, images_BCHW: Tensor) -> Tensor:
        """Features (B, C) of images in [0, 1] by that model, normalised as the folder says."""

    @abstractmethod
    def example(self, place: Place) -> str:
        """Python from `model` and `images`, of Pillow and in RGB, to `features`."""

    def line(self, place: Place) -> str:
        """The line that a user copies."""
        modules = sorted({*self.modules, *(["huggingface_hub"] if self._fetches(place) else [])})
        return f"import {', '.join(modules)}; {self.load(place)}"

    def tried(self, place: Place) -> str:
        """The line by which a folder is loaded before it is kept, if not that which is printed."""
        return self.line(place)

    def _fetches(self, place: Place) -> bool:
        return "huggingface_hub." in self.load(place)


def alike(ours_BC: Tensor, theirs_BC: Tensor, tolerance: tuple[float, float]) -> bool:
    """Whether features differ by rounding alone; see `Format.tolerance`."""
    own, of_largest = tolerance
    scale = ours_BC.abs().max().item()
    return torch.allclose(theirs_BC, ours_BC, rtol=own, atol=of_largest * scale)


def transforms(encoder: Encoder, normalise: bool) -> str:
    """Python that makes `prepare`, from an image of Pillow to what a model takes, by torchvision.

    Args:
        encoder: Whose size and normalization it has.
        normalise: Whether the model does not do so itself.
    """
    steps = [
        f"v2.Resize({resized(encoder.size)})",
        f"v2.CenterCrop({encoder.size})",
        "v2.ToImage()",
        "v2.ToDtype(torch.float32, scale=True)",
    ]
    if normalise:
        mean, std = encoder.config.normalization
        steps.append(f"v2.Normalize({list(mean)}, {list(std)})")
    inside = "".join(f"    {step},\n" for step in steps)
    return f"from torchvision.transforms import v2\n\nprepare = v2.Compose([\n{inside}])"


def resized(size: int) -> int:
    """The short side of an image of which the central square of `size` pixels is shown."""
    return math.floor(size / crop_fraction(size))  # as timm rounds
