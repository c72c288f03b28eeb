"""Distances between diagonal Gaussian embeddings, whole or inside masked subspaces.

Shapes: B batch, D embedding dimensions, K operators (subspaces). A Gaussian is given by its
mean and the diagonal of its covariance, both (B, D); the diagonal is strictly positive.
Everything is computed in float32, or in float64 for means that are float64.
"""

from typing import Literal

import torch
from torch import Tensor

from mast.core.arguments import checked
from mast.losses.precision import full, product


@checked
def masked_distance(squared_BD: Tensor, mask_DK: Tensor) -> Tensor:
    """Distance of two embeddings in each of K masked subspaces, `mean_j d_j m_jk^2`.

    One matrix product gives all K subspaces, so no B x K x D tensor is ever formed. Divided by
    `masked_uncertainty`, multiplied by 25 and averaged over the subspaces this is the term
    `lambda D_mg` of Eq. 7, whose `lambda = 25 d / K` stands for a mean over dimensions in
    the numerator and a sum in the trace.

    Args:
        squared_BD: Squared differences of the means, `(mu - mu')^2`, shape (B, D).
        mask_DK: Non-negative masks, shape (D, K).

    Returns:
        Shape (B, K), non-negative.

    Reference:
        MAST, Eq. 2.
    """
    return _masked_mean(squared_BD, full(mask_DK).square())


@checked
def masked_uncertainty(covariance_BD: Tensor, mask_DK: Tensor) -> Tensor:
    """Mean uncertainty of a pair in each of K masked subspaces, `mean_j c_j m_jk`.

    Args:
        covariance_BD: Mean of the two covariance diagonals, `(s + s') / 2`, shape (B, D).
        mask_DK: Non-negative masks, shape (D, K).

    Returns:
        Shape (B, K), non-negative; 0 for a mask that died.

    Reference:
        MAST, Eq. 4: its denominator over 2 d.
    """
    return _masked_mean(covariance_BD, full(mask_DK))


def _masked_mean(value_BD: Tensor, weight_DK: Tensor) -> Tensor:
    value_BD = full(value_BD)
    return product(value_BD, weight_DK.to(value_BD.dtype)) / value_BD.shape[1]


@checked
def subspace_mean(
    distance_BK: Tensor, active_BK: Tensor, count: Literal["active", "all"] = "active"
) -> Tensor:
    """Average the distances of the subspaces that each sample trains.

    Args:
        distance_BK: One distance a sample and subspace, shape (B, K).
        active_BK: Which operators were applied to either view, boolean, shape (B, K).
        count: The divisor: the number of active operators of each sample, or always K
            (`lambda = 25 d / K` with the full K). Either is a constant of one sample, so
            that the mean of several processes equals one process.

    Returns:
        Scalar, the mean over samples; a sample without an active operator contributes 0.

    Reference:
        MAST, Eq. 4 and section 3.2 ("setting K=1" in the first stage).
    """
    distance_BK = full(distance_BK)
    active_BK = active_BK.to(distance_BK.dtype)
    total_B = (distance_BK * active_BK).sum(dim=1)
    if count == "all":
        return (total_B / distance_BK.shape[1]).mean()
    return (total_B / active_BK.sum(dim=1).clamp(min=1.0)).mean()


@checked
def intersection(mask_DK: Tensor, active_BK: Tensor, eps: float = 1e-6) -> Tensor:
    """Weights of the dimensions in the intersection of all subspaces of a sample.

    Where several operators compose, a dimension can only be expected to agree if it is
    invariant to every one of them: dimension j weighs `prod_k m_jk^2` over the active k. The
    weights of a sample are normalised, so that a weighted distance does not depend on the
    scale of a mask and the number of active operators. One B x K by K x D product.

    Args:
        mask_DK: Non-negative masks, shape (D, K).
        active_BK: Which operators were applied to either view, boolean, shape (B, K).
        eps: Floor of a mask entry under the logarithm.

    Returns:
        Shape (B, D), non-negative, rows sum to 1; equal weights without an active operator.

    Reference:
        Ours; where one operator is active and its mask is 0 or 1, a weighted distance equals that
        of Eq. 2 and 4, up to a factor.
    """
    log_mask_DK = (full(mask_DK) + eps).log()
    # A constant for each mask changes nothing after normalisation; subtracting the largest
    # logarithm keeps the sums over operators small and exact.
    log_mask_DK = log_mask_DK - log_mask_DK.amax(dim=0).detach()
    return product(2.0 * active_BK.to(log_mask_DK.dtype), log_mask_DK.T).softmax(dim=1)


@checked
def symmetric_kl(
    squared_BD: Tensor, first_covariance_BD: Tensor, second_covariance_BD: Tensor
) -> Tensor:
    """Symmetric Kullback-Leibler divergence of two diagonal Gaussians, a mean over dimensions.

    The logarithms of the two directions cancel, and the constant that Eq. 6 drops is
    restored, so that the minimum is 0:
    `1/2 mean_j [(s_j - s'_j)^2 / (s_j s'_j) + d_j (1/s_j + 1/s'_j)]`.

    Args:
        squared_BD: Squared differences of the means, shape (B, D).
        first_covariance_BD: Diagonal of the first covariance, positive, shape (B, D).
        second_covariance_BD: Diagonal of the second covariance, positive, shape (B, D).

    Returns:
        Scalar, the mean over samples and dimensions.

    Reference:
        MAST, Eq. 5 and 6.
    """
    first_BD, second_BD = full(first_covariance_BD), full(second_covariance_BD)
    numerator_BD = (first_BD - second_BD).square() + full(squared_BD) * (first_BD + second_BD)
    return 0.5 * torch.mean(numerator_BD / (first_BD * second_BD))
