"""The loss of Barlow Twins, in the normalisation of its code.

Shapes: B batch, D embedding dimensions.
"""

from typing import NamedTuple

from torch import Tensor

from mast.core.arguments import checked
from mast.losses.precision import full, product


class Redundancy(NamedTuple):
    """The two parts of the loss, before the second is weighted.

    Attributes:
        invariance: How far the correlation of every dimension between the views is from one.
        redundancy: How far every dimension is correlated with the others, between the views.
    """

    invariance: Tensor
    redundancy: Tensor


@checked
def redundancy(first_BD: Tensor, second_BD: Tensor, eps: float = 1e-5) -> Redundancy:
    """Distance of the cross-correlation between two views from the identity.

    Args:
        first_BD: Embeddings of the first view over the global batch, shape (B, D).
        second_BD: Those of the second view.
        eps: Added to the variance, as BatchNorm does, which standardises in the official code.

    Returns:
        Sums over dimensions and over pairs of them, scalars.

    Reference:
        Barlow Twins (Zbontar et al., ICML 2021), Eq. 1 and 2.
    """
    first_BD, second_BD = _standardised(first_BD, eps), _standardised(second_BD, eps)
    correlation_DD = product(first_BD.T, second_BD) / len(first_BD)
    diagonal_D = correlation_DD.diagonal()
    off_diagonal = correlation_DD.square().sum() - diagonal_D.square().sum()
    return Redundancy((1 - diagonal_D).square().sum(), off_diagonal)


def _standardised(embedding_BD: Tensor, eps: float) -> Tensor:
    embedding_BD = full(embedding_BD)
    variance_D = embedding_BD.var(dim=0, correction=0)
    return (embedding_BD - embedding_BD.mean(dim=0)) * (variance_D + eps).rsqrt()
