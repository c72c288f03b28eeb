"""Directions to which embeddings are compared.

Shapes: B embeddings, D dimensions, P prototypes.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Prototypes(nn.Module):
    """Cosines of embeddings to P learned directions.

    Args:
        dim: D.
        count: P.

    Attributes:
        weight_PD: The directions, of unit length after `project`.

    Reference:
        SwAV, section 3.1; DINO's last layer with `norm_last_layer`.
    """

    def __init__(self, dim: int, count: int) -> None:
        super().__init__()
        self.weight_PD = nn.Parameter(F.normalize(torch.randn(count, dim), dim=1))

    def forward(self, embedding_BD: Tensor) -> Tensor:
        """Cosines (B, P) in float32 of embeddings of any length."""
        with torch.autocast(embedding_BD.device.type, enabled=False):
            return F.normalize(embedding_BD.float(), dim=1) @ self.weight_PD.T

    @torch.no_grad()
    def project(self) -> None:
        """Bring the prototypes back to unit length."""
        self.weight_PD.copy_(F.normalize(self.weight_PD, dim=1))
