"""Distances of Gaussian embeddings: by hand, and against Eq. 4 with the whole B x K x D tensor.

Shapes: B batch, D embedding dimensions, K operators.
"""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from mast.losses import (
    covariance,
    intersection,
    invariance,
    masked_distance,
    masked_uncertainty,
    subspace_mean,
    symmetric_kl,
    variance,
)


def case(batch=4, dim=6, count=3, seed=0, dtype=torch.float64):
    """Squared differences, masks, which are active, and two covariances."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=dtype)

    squared_BD = 2.0 * uniform(batch, dim)
    mask_DK = 0.1 + uniform(dim, count)
    active_BK = uniform(batch, count) < 0.6
    active_BK[0], active_BK[1] = False, True
    return squared_BD, mask_DK, active_BK, 0.2 + uniform(batch, dim), 0.2 + uniform(batch, dim)


# ------------------------------------------------ masked_distance and masked_uncertainty


def test_distance_over_uncertainty_is_eq_4():
    squared_BD, mask_DK, _, first_BD, second_BD = case(5, 7, 3)
    # Eq. 4 before any algebra: masked difference, masked covariances, one pair of subspaces each.
    difference_BKD = squared_BD.sqrt()[:, None] * mask_DK.T[None]
    first_BKD = first_BD[:, None] * mask_DK.T[None]
    second_BKD = second_BD[:, None] * mask_DK.T[None]
    expected_BK = 2 * difference_BKD.square().sum(-1) / (first_BKD.sum(-1) + second_BKD.sum(-1))
    distance_BK = masked_distance(squared_BD, mask_DK)
    uncertainty_BK = masked_uncertainty((first_BD + second_BD) / 2, mask_DK)
    torch.testing.assert_close(distance_BK / uncertainty_BK, expected_BK, rtol=1e-12, atol=0)


# --------------------------------------------------------------------------- subspace_mean


def test_subspace_mean_by_hand():
    distance_BK = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0], [5.0, 5.0, 5.0]])
    active_BK = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])
    active = subspace_mean(distance_BK, active_BK)
    assert active.item() == pytest.approx((5 / 2 + 16 + 0) / 3)
    everyone = subspace_mean(distance_BK, active_BK, "all")
    assert everyone.item() == pytest.approx((5 / 3 + 16 / 3 + 0) / 3)


# ---------------------------------------------------------------------------- intersection


def test_intersection_by_hand():
    mask_DK = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 0.0]]).double()
    active_BK = torch.tensor([[True, False], [True, True], [False, False]])
    weight_BD = intersection(mask_DK, active_BK, eps=1e-12)
    # Products 1, 4, 9; then 4, 4, 0 in the intersection; the third sample has no operator.
    expected = [[1 / 14, 4 / 14, 9 / 14], [1 / 2, 1 / 2, 0.0], [1 / 3, 1 / 3, 1 / 3]]
    torch.testing.assert_close(weight_BD, torch.tensor(expected).double())


def test_many_operators_do_not_underflow():
    # 60 masks of 0.01 multiply to 10^-240; in float32 the plain product is 0 / 0.
    squared_BD = torch.tensor([[1.0, 3.0]])
    mask_DK = torch.full((2, 60), 0.01, requires_grad=True)
    weight_BD = intersection(mask_DK, torch.ones(1, 60, dtype=torch.bool))
    value = (weight_BD * squared_BD).sum()
    value.backward()
    assert value.item() == pytest.approx(2.0, rel=1e-3)  # float32 of exponents near 500
    # d/dm of sum w d / sum w = w_j (d_j - mean) 2 / m_jk, half the weight each.
    expected = torch.tensor([[-1.0], [1.0]]).expand(2, 60) / 0.01
    torch.testing.assert_close(mask_DK.grad, expected, rtol=1e-3, atol=0)


# --------------------------------------------------------------------------- symmetric_kl


def test_symmetric_kl_is_both_directions():
    squared_BD, _, _, first_BD, second_BD = case(5, 7)
    mean_BD = torch.randn(5, 7, dtype=torch.float64)
    first = Normal(mean_BD, first_BD.sqrt())
    second = Normal(mean_BD + squared_BD.sqrt(), second_BD.sqrt())
    expected = (kl_divergence(first, second) + kl_divergence(second, first)).mean()
    value = symmetric_kl(squared_BD, first_BD, second_BD)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(symmetric_kl(squared_BD, second_BD, first_BD), value)


# ------------------------------------------------------------------------------ precision


def values(squared_BD, mask_DK, active_BK, first_BD, second_BD):
    """Every loss of this module once, and those of VICReg."""
    return [
        invariance(squared_BD, first_BD),
        variance(squared_BD),
        covariance(squared_BD),
        masked_distance(squared_BD, mask_DK).sum(),
        masked_uncertainty(first_BD, mask_DK).sum(),
        intersection(mask_DK, active_BK).square().sum(),
        symmetric_kl(squared_BD, first_BD, second_BD),
    ]


def test_half_precision_is_computed_in_float32():
    inputs = case(8, 32, 19, dtype=torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        halves = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        floats = [x.float() if x.is_floating_point() else x for x in halves]
        for value, expected in zip(values(*halves), values(*floats), strict=True):
            assert value.dtype == torch.float32
            torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
