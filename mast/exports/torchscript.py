"""TorchScript, for what still reads it, such as programs in C++."""

import io
import warnings

import torch
from torch import Tensor

from mast.exports.format import Place
from mast.exports.graph import Graph


class TorchScript(Graph):
    """`torch.jit.load`. PyTorch calls both ends deprecated in favour of torch.export (2.15)."""

    tags = ("pytorch",)
    modules = ("torch",)
    ending = ".torchscript"

    def encode(self, images_BCHW: Tensor) -> bytes:
        content = io.BytesIO()
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # of the deprecation, which the format's title says
            torch.jit.save(torch.jit.trace(self.original.module, images_BCHW), content)
        return content.getvalue()

    def load(self, place: Place) -> str:
        return f"model = torch.jit.load({place.file(self.file)})"
