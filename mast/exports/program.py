"""A program of torch.export: one file for PyTorch alone."""

import io

import torch
from torch import Tensor

from mast.exports.format import Place
from mast.exports.graph import Graph


class Program(Graph):
    """`torch.export.load`."""

    tags = ("pytorch",)
    modules = ("torch",)
    ending = ".pt2"

    def encode(self, images_BCHW: Tensor) -> bytes:
        batch = torch.export.Dim("batch")
        program = torch.export.export(
            self.original.module, (images_BCHW,), dynamic_shapes=({0: batch},)
        )
        content = io.BytesIO()
        torch.export.save(program, content)
        return content.getvalue()

    def load(self, place: Place) -> str:
        return f"model = torch.export.load({place.file(self.file)}).module()"
