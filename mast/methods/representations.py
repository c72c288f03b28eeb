"""What a whole method says of an image, beside its encoder's representation.

B images, D dimensions of the embedding, K operators.
"""

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.methods.base import Method
from mast.methods.mast import Mast
from mast.models.heads import Gaussian


class Embedding(nn.Module):
    """The embedding of an image, where it is a Gaussian its mean: (B, 3, H, W) to (B, D).

    Args:
        method: A trained method.

    Attributes:
        operators: Names of the K operators that have a mask; empty for a method without masks.
    """

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method
        self.operators = method.operators if isinstance(method, Mast) else ()

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Embeddings in float32."""
        embedding = self.method.projector(self.method.encoder.encode(images_BCHW))
        mean_BD: Tensor = embedding.mean_BD if isinstance(embedding, Gaussian) else embedding
        return mean_BD

    def masks(self) -> Tensor | None:
        """The masks as the distance uses them, mask_DK; None for a method without masks."""
        return self.method.masks() if isinstance(self.method, Mast) else None


class PredictedUncertainty(nn.Module):
    """The trace of the covariance that is predicted for an image: (B, 3, H, W) to (B, 1).

    Args:
        method: A trained method that predicts one.

    Raises:
        UserError: It predicts none.

    Reference:
        MAST, appendix ("Uncertainty visualization").
    """

    def __init__(self, method: Method) -> None:
        super().__init__()
        if not isinstance(method, Mast) or not method.mode.uncertainty:
            raise UserError(
                "this run predicts no uncertainty; MAST does with --objective.uncertainty true"
            )
        self.method = method

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Traces in float32."""
        covariance_BD = self.method.projector(self.method.encoder.encode(images_BCHW)).covariance_BD
        return covariance_BD.sum(dim=1, keepdim=True)


class MaskedEnsemble(nn.Module):
    """The K masked embeddings of an image side by side: (B, 3, H, W) to (B, K D).

    Args:
        method: A trained method with masks.

    Raises:
        UserError: It has none.

    Reference:
        MAST, Table 3 ("ensemble").
    """

    def __init__(self, method: Method) -> None:
        super().__init__()
        if not isinstance(method, Mast):
            raise UserError("the ensemble is of masked embeddings; this run has no masks")
        self.embedding = Embedding(method)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Masked embeddings, operator by operator, in float32."""
        mean_BD, mask_DK = self.embedding(images_BCHW), self.embedding.masks()
        assert mask_DK is not None
        return torch.cat([mean_BD * mask_D for mask_D in mask_DK.unbind(1)], dim=1)
