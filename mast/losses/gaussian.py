"""Distances between diagonal Gaussian embeddings, whole or inside masked subspaces.

Shapes: B batch, D embedding dimensions, K operators (subspaces). A Gaussian is given by its
mean and the diagonal of its covariance, both (B, D); the diagonal is strictly positive.
Everything is computed in float32, or in float64 for means that are float64.
"""

from typing import Literal

import torch
from torch import Tensor

from mast.losses.precision import full, product


def masked_distance(
    squared_BD: Tensor,
    mask_DK: Tensor,
    covariance_BD: Tensor | None = None,
    covariance_mask: Literal["m", "m2"] = "m",
    eps: float = 1e-6,
) -> Tensor:
    """Distance of two embeddings in each of K masked subspaces, divided by the uncertainty.

    With uncertainty, `2 sum_j d_j m_jk^2 / sum_j (s_j + s'_j) m_jk`; without it,
    `mean_j d_j m_jk^2`. Two matrix products give all K subspaces, so no B x K x D tensor is
    ever formed. Multiplied by 25 and averaged over the subspaces this is the term
    `lambda D_mg` of Eq. 7, whose `lambda = 25 d / K` stands for a mean over dimensions in
    the numerator beside a sum in the trace.

    Args:
        squared_BD: Squared differences of the means, `(mu - mu')^2`, shape (B, D).
        mask_DK: Non-negative masks, shape (D, K).
        covariance_BD: Sum of the two covariance diagonals, `s + s'`, shape (B, D), or None
            for the distance without uncertainty.
        covariance_mask: Power of the mask in the denominator; "m" is the paper's
            `Sigma diag(m)`, "m2" makes the distance independent of the scale of a mask.
        eps: Added to the denominator, which is zero for a mask that died.

    Returns:
        Shape (B, K), non-negative.

    Raises:
        ValueError: Shapes that do not fit.

    Reference:
        MAST, Eq. 2 (without uncertainty) and Eq. 4.
    """
    if squared_BD.ndim != 2 or mask_DK.ndim != 2 or squared_BD.shape[1] != mask_DK.shape[0]:
        raise ValueError(
            "expected squared differences (B, D) and masks (D, K); "
            f"got {tuple(squared_BD.shape)} and {tuple(mask_DK.shape)}"
        )
    squared_BD = full(squared_BD)
    mask_DK = mask_DK.to(squared_BD.dtype)
    weighted_BK = product(squared_BD, mask_DK.square())
    if covariance_BD is None:
        return weighted_BK / squared_BD.shape[1]
    _same_shape(covariance_BD, squared_BD)
    power_DK = mask_DK if covariance_mask == "m" else mask_DK.square()
    trace_BK = product(covariance_BD.to(squared_BD.dtype), power_DK)
    return 2.0 * weighted_BK / (trace_BK + eps)


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
    if distance_BK.shape != active_BK.shape:
        raise ValueError(
            f"expected distances and active operators of one shape (B, K); "
            f"got {tuple(distance_BK.shape)} and {tuple(active_BK.shape)}"
        )
    active_BK = active_BK.to(distance_BK.dtype)
    total_B = (distance_BK * active_BK).sum(dim=1)
    if count == "all":
        return (total_B / distance_BK.shape[1]).mean()
    return (total_B / active_BK.sum(dim=1).clamp(min=1.0)).mean()


def joint_distance(
    squared_BD: Tensor,
    mask_DK: Tensor,
    active_BK: Tensor,
    covariance_BD: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """Distance in the intersection of the subspaces of all operators a sample was given.

    Where several operators compose, a dimension can only be expected to agree if it is
    invariant to every one of them: dimension j weighs `w_j = prod_k m_jk^2` over the active
    k. The weights are normalised, `sum_j w_j d_j / sum_j w_j`, or with uncertainty
    `2 sum_j w_j d_j / sum_j w_j (s_j + s'_j)`, so that the distance does not depend on the
    scale of a mask and the number of active operators. One B x K by K x D product.

    Args:
        squared_BD: Squared differences of the means, shape (B, D).
        mask_DK: Non-negative masks, shape (D, K).
        active_BK: Which operators were applied to either view, boolean, shape (B, K).
        covariance_BD: Sum of the two covariance diagonals, shape (B, D), or None.
        eps: Floor of a mask entry under the logarithm.

    Returns:
        Scalar, the mean over samples; a sample without an active operator contributes 0.

    Raises:
        ValueError: Shapes that do not fit.

    Reference:
        Ours; equal to Eq. 2 and 4 (up to the scale of the mask) where one operator is active.
    """
    (batch, dim), count = squared_BD.shape, mask_DK.shape[-1]
    if mask_DK.shape != (dim, count) or active_BK.shape != (batch, count):
        raise ValueError(
            "expected squared differences (B, D), masks (D, K) and active operators (B, K); got "
            f"{tuple(squared_BD.shape)}, {tuple(mask_DK.shape)} and {tuple(active_BK.shape)}"
        )
    squared_BD = full(squared_BD)
    active_BK = active_BK.to(squared_BD.dtype)
    log_mask_DK = (mask_DK.to(squared_BD.dtype) + eps).log()
    # Subtracting the largest logarithm of a mask and then of a sample changes nothing after
    # normalisation; the first keeps the sums over operators small and exact, the second
    # prevents underflow.
    log_mask_DK = log_mask_DK - log_mask_DK.amax(dim=0).detach()
    log_weight_BD = product(2.0 * active_BK, log_mask_DK.T)
    log_weight_BD = log_weight_BD - log_weight_BD.amax(dim=1, keepdim=True).detach()
    weight_BD = log_weight_BD.exp()
    weighted_B = (weight_BD * squared_BD).sum(dim=1)
    if covariance_BD is None:
        distance_B = weighted_B / weight_BD.sum(dim=1)
    else:
        _same_shape(covariance_BD, squared_BD)
        distance_B = 2.0 * weighted_B / (weight_BD * covariance_BD).sum(dim=1)
    return (distance_B * active_BK.amax(dim=1)).mean()


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


def _same_shape(covariance_BD: Tensor, squared_BD: Tensor) -> None:
    if covariance_BD.shape != squared_BD.shape:
        raise ValueError(
            f"expected a covariance of shape {tuple(squared_BD.shape)}, "
            f"got {tuple(covariance_BD.shape)}"
        )
