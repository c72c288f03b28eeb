"""Formats that store the computation, normalization included: one file, any architecture."""

import io
from abc import abstractmethod
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from mast.core.checkpoint import write_json
from mast.core.errors import UserError
from mast.exports.format import CLASSES, Format, resized
from mast.exports.original import Original


class ExportedGraph(Format):
    """The computation graph, for any batch size.

    Attributes:
        ending: The file's extension.
        loader: Python that loads the file, whose path it takes.
    """

    normalises = True
    ending: ClassVar[str]
    loader: ClassVar[str]

    def __init__(self, original: Original) -> None:
        self.original = original
        self.file = f"{original.kind}{self.ending}"

    @abstractmethod
    def encode(self, images_BCHW: Tensor) -> bytes:
        """The file's content, traced with two images."""

    def write(self, folder: Path) -> None:
        original = self.original
        try:
            content = self.encode(original.encoder.blank(2, original.size))
        except Exception as error:  # errors of TorchDynamo, the export or the model's code
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            raise UserError(
                f"format: cannot write {original.name!r} as {self.file} ({type(error).__name__}: "
                f"{reason}); choose another format"
            ) from error
        (folder / self.file).write_bytes(content)
        if original.classifier is not None:  # for programs that read no `README.md`
            facts = {
                "classes": original.classifier.classes,
                "size": original.size,
                "resized": resized(original.size),
                "normalization": "inside the model",
                **({} if original.of_photos else {"reading": asdict(original.reading)}),
            }
            write_json(folder / CLASSES, facts)

    def load(self, folder: str) -> str:
        return f"model = {self.loader.format(str(Path(folder) / self.file))}"


class Program(ExportedGraph):
    """`torch.export.load`, for PyTorch alone."""

    tags = ("pytorch",)
    modules = ("torch",)
    ending = ".pt2"
    loader = "torch.export.load({!r}).module()"

    def encode(self, images_BCHW: Tensor) -> bytes:
        batch = torch.export.Dim("batch")
        program = torch.export.export(
            self.original.module, (images_BCHW,), dynamic_shapes=({0: batch},)
        )
        content = io.BytesIO()
        torch.export.save(program, content)
        return content.getvalue()


class Onnx(ExportedGraph):
    """`onnxruntime.InferenceSession`, which needs NumPy and Pillow but no PyTorch."""

    tags = ("onnx",)
    modules = ("onnxruntime",)
    ending = ".onnx"
    loader = "onnxruntime.InferenceSession({!r})"
    tolerance = (1e-3, 1e-4)

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        try:
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
            import onnxscript  # noqa: F401
        except ImportError as error:
            raise UserError("format: onnx needs `pip install 'mast-ssl[onnx]'`") from error

    def encode(self, images_BCHW: Tensor) -> bytes:
        program = torch.onnx.export(
            self.original.module,
            (images_BCHW,),
            input_names=["images"],
            output_names=[self.original.output],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        assert program is not None
        return program.model_proto.SerializeToString()
