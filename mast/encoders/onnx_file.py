"""Encoders in `.onnx` files, such as SSCD's, run on the CPU by ONNX Runtime.

B images, H, W pixels, D dimensions.
"""

from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from mast.core.errors import UserError, reason_of

EXPECTED = (
    "expected one input of RGB images, normalized inside: float32 in [0, 1] (B, 3, H, W), "
    "or bytes (B, H, W, 3)"
)


@final
class OnnxFile(nn.Module):
    """A graph from RGB images (B, 3, H, W) in [0, 1] to its first output, (B, D).

    Attributes:
        size: Input size in pixels, if the file fixes it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError as error:
            raise UserError("reading .onnx needs `pip install 'mast-ssl[onnx]'`") from error
        if not path.is_file():
            raise UserError(f"no encoder at {path}")
        try:
            self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's exception types
            raise UserError(f"{path} is no ONNX file ({reason_of(error):.200})") from error
        (first, *others) = self.session.get_inputs()
        self.is_bytes = first.type == "tensor(uint8)"
        self.batch, *sides = first.shape
        channels = sides.pop(-1 if self.is_bytes else 0) if len(sides) == 3 else None
        if others or channels != 3 or not (self.is_bytes or first.type == "tensor(float)"):
            raise UserError(f"{path}: {EXPECTED}, got {first.type} {first.shape}")
        self.name = first.name
        self.size = sides[0] if isinstance(sides[0], int) else None

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnnxFile":
        return self  # a session has no mutable state

    def forward(self, images_BCHW: Tensor) -> Tensor:
        at_once = self.batch if isinstance(self.batch, int) else len(images_BCHW)
        parts = [self._run(part) for part in images_BCHW.detach().cpu().split(at_once)]
        return torch.from_numpy(np.concatenate(parts)).flatten(1).to(images_BCHW.device)

    def _run(self, images_BCHW: Tensor) -> np.ndarray:
        if self.is_bytes:
            values = (255 * images_BCHW).round().byte().permute(0, 2, 3, 1)
        else:
            values = images_BCHW.float()
        found: np.ndarray = self.session.run(None, {self.name: values.contiguous().numpy()})[0]
        return found.astype(np.float32)
