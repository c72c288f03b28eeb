"""ONNX, for what runs without PyTorch."""

from typing import Any

import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.exports.format import Place, transforms
from mast.exports.graph import Graph
from mast.exports.original import Original

LARGEST = 2**31 - 2**20  # bytes of weights: one file of ONNX has less than 2 GiB


class Onnx(Graph):
    """`onnxruntime.InferenceSession`."""

    tags = ("onnx",)
    modules = ("onnxruntime",)
    ending = ".onnx"
    tolerance = (1e-3, 1e-4)

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        try:
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
            import onnxscript  # noqa: F401
        except ImportError as error:
            raise UserError("writing ONNX needs `pip install 'mast-ssl[onnx]'`") from error
        size = sum(tensor.nbytes for tensor in original.module.state_dict().values())
        if size > LARGEST:
            raise UserError(
                f"one file of ONNX holds less than 2 GiB, and the weights of "
                f"{original.name!r} have {size / 2**30:.1f}; choose pt2"
            )

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

    def load(self, place: Place) -> str:
        return f"model = onnxruntime.InferenceSession({place.file(self.file)})"

    def outputs(self, model: Any, images_BCHW: Tensor) -> Tensor:
        return torch.from_numpy(model.run(None, {"images": images_BCHW.numpy()})[0])

    def example(self, place: Place) -> str:
        return self._around(
            place,
            f"import torch\n{transforms(self.original, normalise=False)}",
            "batch = torch.stack([prepare(image) for image in images]).numpy()\n"
            f'({self.original.output},) = model.run(None, {{"images": batch}})',
        )
