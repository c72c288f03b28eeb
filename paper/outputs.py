"""Outputs of a method that only the paper looks at.

Shapes: B images, C dimensions of the representation, D of the embedding, H hidden units of a head,
K operators.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.methods import Mast, Method
from mast.methods.parts import OperatorPrediction
from mast.models.encoders import evaluating

LACKING = {
    "ensemble": "the ensemble needs the parts of a method, such as masked embeddings; this run has "
    "no masks and no other parts",
    "uncertainty": "this run predicts no uncertainty; MAST does when it is pretrained with "
    "objective.uncertainty",
}


class MethodOutput(nn.Module):
    """One of a method's outputs for an image: (B, channels, H, W) to (B, D) in float32.

    Args:
        method: A trained method.
        output: "both" representation and embedding side by side; the "ensemble" of its parts, such
            as the K masked embeddings of MAST (Table 3); its "uncertainty", the trace of the
            predicted covariance, (B, 1) (appendix, "Uncertainty visualization").
    """

    def __init__(self, method: Method, output: Literal["both", "ensemble", "uncertainty"]) -> None:
        super().__init__()
        self.method = method
        self.given = {"both": both, "ensemble": ensemble, "uncertainty": uncertainty}[output]
        with evaluating(method), torch.no_grad():
            if self.given(method, method.encoder.blank(1)) is None:
                raise UserError(LACKING[output])

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The output."""
        output = self.given(self.method, images_BCHW)
        assert output is not None
        return output.float() if output.ndim == 2 else output[:, None]


def both(method: Method, images_BCHW: Tensor) -> Tensor:
    """Representation and embedding side by side, (B, C + D)."""
    outputs = (method.final_encoder(images_BCHW), method.embed(images_BCHW))
    return torch.cat([output_BD.float() for output_BD in outputs], dim=1)


def ensemble(method: Any, images_BCHW: Tensor) -> Tensor | None:
    """The method's own `ensemble`, or the K masked embeddings, (B, K D); None without masks."""
    if hasattr(method, "ensemble"):
        output: Tensor = method.ensemble(images_BCHW)
        return output
    mask_DK = method.subspaces()
    if mask_DK is None:
        return None
    embedding_BD = method.embed(images_BCHW).float()
    return torch.cat([embedding_BD * mask_D for mask_D in mask_DK.unbind(1)], dim=1)


def uncertainty(method: Any, images_BCHW: Tensor) -> Tensor | None:
    """The method's own `uncertainty`, or the trace of MAST's covariance, (B,); None without one."""
    if hasattr(method, "uncertainty"):
        output: Tensor = method.uncertainty(images_BCHW)
        return output
    if not (isinstance(method, Mast) and method.config.uncertainty):
        return None
    covariance_BD: Tensor = method.projector(method.encoder.encode(images_BCHW)).covariance_BD
    return covariance_BD.sum(dim=1)


def head_weights(module: nn.Module) -> dict[str, Tensor]:
    """By operator that a head predicts from the representation, its first layer, weight_HC."""
    weights = dict[str, Tensor]()
    for part in module.modules():
        if isinstance(part, OperatorPrediction) and part.source == "representation":
            for name, head in part.heads.items():
                layer, *_ = head.children()
                assert isinstance(layer, nn.Linear)
                weights[name] = layer.weight.detach()[:, : layer.in_features // 2]
    return weights
