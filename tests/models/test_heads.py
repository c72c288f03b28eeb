"""Pooling and projectors: limits of GeM, shapes for every pool, covariances that start near 1.

Shapes: B batch, L locations, C features, H hidden width, D embedding dimensions.
"""

import pytest
import torch

from mast.models.heads import GaussianProjector, GaussianProjectorConfig, GeM
from mast.models.torchvision_models import Encoding

B, L, C, H, D = 16, 9, 12, 24, 20


def encoding(seed: int = 0) -> Encoding:
    features_BLC = torch.rand(B, L, C, generator=torch.Generator().manual_seed(seed))
    return Encoding(features_BLC.mean(dim=1), features_BLC)


def projector(pool, floor=0.1) -> GaussianProjector:
    torch.manual_seed(0)
    return GaussianProjector(C, GaussianProjectorConfig(hidden=H, dim=D, pool=pool), floor=floor)


# ------------------------------------------------------------------------------------- GeM


@pytest.mark.parametrize(("power", "scale"), [(1.0, 0.0), (3.0, 1.0), (10.0, 1e-6), (10.0, 1e5)])
def test_gem_is_its_formula_for_dead_and_for_large_channels(power: float, scale: float) -> None:
    """1e-6 to the tenth is 0 in float32, and 1e5 to the tenth is infinite."""
    generator = torch.Generator().manual_seed(0)
    gem = GeM(power)
    features_BLC = (scale * torch.rand(2, 5, 3, generator=generator)).requires_grad_()
    pooled_BC = gem(features_BLC)
    pooled_BC.sum().backward()
    wide_BLC = features_BLC.detach().double().clamp(min=1e-6)
    expected_BC = wide_BLC.pow(power).mean(dim=1).pow(1 / power)
    torch.testing.assert_close(pooled_BC.double(), expected_BC, rtol=1e-4, atol=0)
    for gradient in (features_BLC.grad, gem.power.grad):
        assert gradient is not None
        assert gradient.isfinite().all()


# ------------------------------------------------------------------------------ projectors


def test_pool_before_and_after_are_what_they_say():
    x = encoding()
    before, after = projector(pool="before").eval(), projector(pool="after").eval()
    with torch.no_grad():
        before.pools["mean"].power.fill_(2.0)
        after.pools["mean"].power.fill_(2.0)
        expected_BD = before.mean_head(before.trunk(x.features_BLC.square().mean(1).sqrt()))
        torch.testing.assert_close(before(x).mean_BD, expected_BD)
        hidden_BLH = torch.stack([after.trunk(x.features_BLC[:, i]) for i in range(L)], dim=1)
        pooled_BH = hidden_BLH.clamp(min=1e-6).square().mean(1).sqrt()
        torch.testing.assert_close(after(x).mean_BD, after.mean_head(pooled_BH))


@pytest.mark.parametrize("floor", [0.1, 1e-6])
def test_covariance_stays_positive(floor):
    head = projector("after", floor)
    with torch.no_grad():
        head.covariance_head.bias.fill_(-40.0)
    covariance_BD = head(encoding()).covariance_BD
    assert covariance_BD.min() > 0
    torch.testing.assert_close(covariance_BD, torch.full((B, D), floor))
    with torch.no_grad():
        head.covariance_head.bias.fill_(40.0)
    raw_BD = 40.0 + (head(encoding()).covariance_BD - 40.0 - floor)
    assert (raw_BD > 30.0).all()  # linear above: no ceiling


def test_a_power_that_left_its_range_is_brought_back():
    pool = GeM(power=12.0)
    pool.project()
    assert pool.power.item() == pytest.approx(9.999)
    pool(torch.rand(2, 4, 3)).sum().backward()
    assert pool.power.grad.item() != 0.0
