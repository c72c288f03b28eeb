"""Many masks, and half precision; the formulas are in `tests/methods/test_mast_formula.py`.

Shapes: B batch, D embedding dimensions, K operators.
"""

import pytest
import torch

from mast.losses import (
    covariance,
    intersection,
    invariance,
    masked_distance,
    masked_uncertainty,
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
