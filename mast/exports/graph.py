"""Formats that hold what an encoder computes, not how it is called: one file, any architecture."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from mast.core.errors import UserError
from mast.exports.format import Format, Place, read_classes, transforms, write_classes
from mast.exports.original import Original


class Graph(Format):
    """What the original computes of images, normalization included, for batches of any number.

    Asked for are a module from images (B, channels, S, S) to (B, C), S and a name, whatever it is.

    Attributes:
        ending: Of the file's name.
    """

    normalises = True
    ending: ClassVar[str]

    def __init__(self, original: Original) -> None:
        self.original = original

    @property
    def file(self) -> str:
        """Its name in the folder."""
        return f"{self.original.kind}{self.ending}"

    @abstractmethod
    def encode(self, images_BCHW: Tensor) -> bytes:
        """The file.

        Args:
            images_BCHW: An example of two images; any other number must do as well.
        """

    def write(self, folder: Path) -> None:
        original = self.original
        try:
            content = self.encode(original.encoder.blank(2, original.size))
        except Exception as error:  # of TorchDynamo, of the translation, of what it runs
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            raise UserError(
                f"PyTorch cannot write {original.name!r} as {self.file} ({type(error).__name__}: "
                f"{reason}); choose another format"
            ) from error
        (folder / self.file).write_bytes(content)
        write_classes(original, folder, normalised=True)

    def outputs(self, model: Any, images_BCHW: Tensor) -> Tensor:
        outputs_BC: Tensor = model(images_BCHW)
        return outputs_BC

    def example(self, place: Place) -> str:
        return self._around(
            place,
            transforms(self.original, normalise=False),
            "with torch.inference_mode():\n"
            f"    {self.original.output} = "
            "model(torch.stack([prepare(image) for image in images]))",
        )

    def _around(self, place: Place, prepare: str, run: str) -> str:
        """Python that prepares images and runs the model, and for a classifier names classes."""
        if self.original.classifier is None:
            return f"{prepare}\n{run}"
        names = "names = [classes[at] for at in probabilities.argmax(axis=1)]"
        return f"import json\n\n{prepare}\n{read_classes(place)}\n{run}\n{names}"
