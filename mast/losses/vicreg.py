"""The three terms of VICReg and the two of Barlow Twins, with the normalisation of their codes.

Shapes: B batch, D embedding dimensions. Statistics are taken in float32, or in float64 for
embeddings that are float64; `covariance` says where that is not enough.
"""

from torch import Tensor

from mast.core.arguments import checked
from mast.core.errors import UserError
from mast.losses.precision import full, product


@checked
def invariance(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """Mean squared distance between the embeddings of two views.

    Args:
        first_BD: Embeddings of the first view, shape (B, D).
        second_BD: Embeddings of the second view, shape (B, D).

    Returns:
        Scalar, the mean over samples and dimensions.

    Reference:
        VICReg, Eq. 5 (a mean over dimensions, as in its code); MAST, Eq. 1.
    """
    return (full(first_BD) - full(second_BD)).square().mean()


@checked
def variance(embedding_BD: Tensor, eps: float = 1e-4) -> Tensor:
    """Hinge that keeps the standard deviation of every dimension above one.

    Args:
        embedding_BD: Embeddings of one view over the global batch, shape (B, D), B >= 2.
        eps: Added to the unbiased variance before the square root.

    Returns:
        Scalar, `mean_j max(0, 1 - sqrt(Var(z_j) + eps))`.

    Reference:
        VICReg, Eq. 1 and 2.
    """
    _at_least_two(embedding_BD)
    deviation_D = (full(embedding_BD).var(dim=0) + eps).sqrt()
    return (1.0 - deviation_D).relu().mean()


@checked
def covariance(embedding_BD: Tensor, part: int = 0, parts: int = 1) -> Tensor:
    """Sum of the squared off-diagonal covariances, divided by D.

    The D x D matrix is never formed when B < D: `|Z'Z|_F = |ZZ'|_F`, so the smaller of the two
    products is taken and the squared variances are subtracted. That is done in float64: where the
    deviation of one dimension is 1,000 times that of the others, nothing is left of the difference
    in float32.

    Args:
        embedding_BD: Embeddings of one view over the global batch, shape (B, D), B >= 2.
        part: Which part of the sum, from 0.
        parts: Into how many, of as many rows of the product each, it is split.

    Returns:
        Scalar; those of all parts add up to the term.

    Reference:
        VICReg, Eq. 3 and 4.
    """
    _at_least_two(embedding_BD)
    if not 0 <= part < parts:
        raise UserError(f"expected 0 <= part < parts, got {part} and {parts}")
    count, dim = embedding_BD.shape
    centred_BD = full(embedding_BD) - full(embedding_BD).mean(dim=0)
    rows = centred_BD.double() if count < dim else centred_BD.T
    split = rows.tensor_split(parts)
    gram = product(split[part], rows.T)
    if count < dim:
        squared_D = rows.square().sum(dim=0)
        total = gram.square().sum() - (split[part].square() @ squared_D).sum()
    else:
        before = sum(len(own) for own in split[:part])
        total = gram.diagonal_scatter(gram.new_zeros(len(gram)), before).square().sum()
    return total.to(centred_BD.dtype) / ((count - 1) ** 2 * dim)


@checked
def redundancy(first_BD: Tensor, second_BD: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """Distance of the cross-correlation between two views from the identity.

    Args:
        first_BD: Embeddings of the first view over the global batch, shape (B, D).
        second_BD: Those of the second view.
        eps: Added to the variance, as BatchNorm does, which standardises in the official code.

    Returns:
        How far every dimension's correlation between the views is from one, and how far it is
        correlated with the others: sums over dimensions and over pairs of them, scalars.

    Reference:
        Barlow Twins (Zbontar et al., ICML 2021), Eq. 1 and 2.
    """
    first_BD, second_BD = _standardised(first_BD, eps), _standardised(second_BD, eps)
    correlation_DD = product(first_BD.T, second_BD) / len(first_BD)
    diagonal_D = correlation_DD.diagonal()
    off_diagonal = correlation_DD.square().sum() - diagonal_D.square().sum()
    return (1 - diagonal_D).square().sum(), off_diagonal


def _standardised(embedding_BD: Tensor, eps: float) -> Tensor:
    embedding_BD = full(embedding_BD)
    variance_D = embedding_BD.var(dim=0, correction=0)
    return (embedding_BD - embedding_BD.mean(dim=0)) * (variance_D + eps).rsqrt()


def _at_least_two(embedding_BD: Tensor) -> None:
    if len(embedding_BD) < 2:
        raise UserError(f"expected shape (B, D) with B >= 2, got {tuple(embedding_BD.shape)}")
