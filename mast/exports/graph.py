"""Formats that hold what an encoder computes, not how it is called: one file, any architecture."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.exports.format import Format, Place, transforms
from mast.models import Encoder


class Graph(Format):
    """What `encoder(images)` computes, normalization included, for batches of any number.

    Asked for are a module from images (B, 3, S, S) to (B, C), S and a name, whatever it is.

    Attributes:
        file: Its name in the folder.
    """

    normalises = True
    file: ClassVar[str]

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    @abstractmethod
    def encode(self, images_BCHW: Tensor) -> bytes:
        """The file.

        Args:
            images_BCHW: An example of two images; any other number must do as well.
        """

    def write(self, folder: Path) -> None:
        size = self.encoder.size
        with _following(self.encoder.config.name, self.file):
            content = self.encode(torch.zeros(2, 3, size, size))
        (folder / self.file).write_bytes(content)

    def features(self, model: Any, images_BCHW: Tensor) -> Tensor:
        features_BC: Tensor = model(images_BCHW)
        return features_BC

    def example(self, place: Place) -> str:
        return (
            f"{transforms(self.encoder, normalise=False)}\n"
            "with torch.inference_mode():\n"
            "    features = model(torch.stack([prepare(image) for image in images]))"
        )


@contextmanager
def _following(name: str, file: str) -> Iterator[None]:
    """Say in one line that PyTorch cannot follow a model's code."""
    try:
        yield
    except Exception as error:  # of TorchDynamo, of the translation, of what it runs
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        raise UserError(
            f"PyTorch cannot write {name!r} as {file} ({type(error).__name__}: {reason}); choose "
            "another format"
        ) from error
