"""Pooling and projectors: limits of GeM, shapes for every pool, covariances that start near 1.

Shapes: B batch, L locations, C features, H hidden width, D embedding dimensions.
"""

import pytest
import torch
from torch import nn

from mast.models import MLP, Encoding, GaussianProjector, GaussianProjectorConfig, GeM, MLPConfig

B, L, C, H, D = 16, 9, 12, 24, 20


def encoding(seed: int = 0) -> Encoding:
    features_BLC = torch.rand(B, L, C, generator=torch.Generator().manual_seed(seed))
    return Encoding(features_BLC.mean(dim=1), features_BLC)


def projector(**options) -> GaussianProjector:
    torch.manual_seed(0)
    return GaussianProjector(C, GaussianProjectorConfig(hidden=H, dim=D, **options))


# ------------------------------------------------------------------------------------- GeM


def test_gem_of_one_is_the_average():
    features_BLC = torch.rand(4, L, C)
    torch.testing.assert_close(GeM(1.0)(features_BLC), features_BLC.mean(dim=1))


def test_gem_by_hand():
    features_BLC = torch.tensor([[[1.0], [2.0], [3.0]]])
    assert GeM(3.0)(features_BLC).item() == pytest.approx(((1 + 8 + 27) / 3) ** (1 / 3))


def test_gem_of_ten_is_nearly_the_maximum():
    features_BLC = torch.rand(64, 4, C) + 0.5
    largest_BC = features_BLC.amax(dim=1)
    pooled_BC = GeM(10.0)(features_BLC)
    # One of four locations at the maximum: between (1/4)^(1/10) of it and all of it.
    assert (pooled_BC <= largest_BC * 1.000001).all()
    assert (pooled_BC >= largest_BC * 0.25**0.1 * 0.999999).all()


@pytest.mark.parametrize(("outside", "limit"), [(-2.0, 1.0), (0.3, 1.0), (25.0, 10.0)])
def test_gem_clamps_its_power(outside, limit):
    features_BLC = torch.rand(4, L, C)
    assert torch.equal(GeM(outside)(features_BLC), GeM(limit)(features_BLC))


def test_gem_of_zero_features_has_finite_gradients():
    features_BLC = torch.zeros(2, L, C, requires_grad=True)
    pool = GeM()
    pooled_BC = pool(features_BLC)
    pooled_BC.sum().backward()
    assert pooled_BC.max() < 2e-6
    assert torch.isfinite(features_BLC.grad).all()
    assert torch.isfinite(pool.power.grad)


def test_gem_learns_its_power():
    pool = GeM()
    pool(torch.rand(2, L, C)).sum().backward()
    assert pool.power.grad > 0  # a larger power gives a larger mean


# ------------------------------------------------------------------------------ projectors


@pytest.mark.parametrize("pool", ["after", "before", "average"])
def test_pools(pool):
    head = projector(pool=pool)
    gaussian = head(encoding())
    assert gaussian.mean_BD.shape == gaussian.covariance_BD.shape == (B, D)
    powers = {name for name, _ in head.named_parameters() if name.endswith("power")}
    expected = {"pools.mean.power", "pools.covariance.power"} if pool != "average" else set()
    assert powers == expected
    (gaussian.mean_BD.square().sum() + gaussian.covariance_BD.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in head.parameters())


@pytest.mark.parametrize("pool", ["after", "before", "average"])
def test_without_uncertainty_there_is_no_covariance(pool):
    head = GaussianProjector(C, GaussianProjectorConfig(8, D, pool=pool), uncertain=False)
    gaussian = head(encoding())
    assert gaussian.covariance_BD is None
    assert not any("covariance" in name for name, _ in head.named_parameters())
    assert list(head.powers()) == ([] if pool == "average" else ["mean"])
    gaussian.mean_BD.sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())


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


def test_pools_of_the_two_heads_are_separate():
    for pool in ("before", "after"):
        head = projector(pool=pool).eval()
        mean_BD, covariance_BD = head(encoding())
        with torch.no_grad():
            head.pools["covariance"].power.fill_(9.0)
        changed = head(encoding())
        assert torch.equal(changed.mean_BD, mean_BD)
        assert not torch.equal(changed.covariance_BD, covariance_BD)


@pytest.mark.parametrize(("positivity", "floor"), [("relu", 0.1), ("paper", 1e-6)])
def test_covariance_stays_positive(positivity, floor):
    head = projector(positivity=positivity)
    with torch.no_grad():
        head.covariance_head.bias.fill_(-40.0)
    covariance_BD = head(encoding()).covariance_BD
    assert covariance_BD.min() > 0
    torch.testing.assert_close(covariance_BD, torch.full((B, D), floor))
    with torch.no_grad():
        head.covariance_head.bias.fill_(40.0)
    raw_BD = 40.0 + (head(encoding()).covariance_BD - 40.0 - floor)
    assert (raw_BD > 30.0).all()  # linear above: no ceiling


@pytest.mark.parametrize("positivity", ["relu", "paper"])
@pytest.mark.parametrize("pool", ["after", "before", "average"])
def test_covariance_starts_near_one(pool, positivity):
    torch.manual_seed(0)
    config = GaussianProjectorConfig(hidden=256, dim=64, pool=pool, positivity=positivity)
    covariance_BD = GaussianProjector(C, config)(encoding()).covariance_BD
    assert 0.9 < covariance_BD.mean() < 1.5
    assert covariance_BD.std() < 0.6
    assert (covariance_BD < 0.15).float().mean() < 0.05  # few on the floor


@pytest.mark.parametrize(
    ("cls", "config"),
    [(MLP, MLPConfig), (GaussianProjector, GaussianProjectorConfig)],
)
def test_layers_are_those_of_vicreg(cls, config):
    head = cls(C, config(hidden=H, dim=D))
    kinds = [type(layer) for layer in head.trunk]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2
    last = head.head if cls is MLP else head.mean_head
    assert last.bias is None
    assert (head.trunk[0].in_features, last.in_features, last.out_features) == (C, H, D)


@pytest.mark.parametrize("last_norm", ["none", "affine", "plain"])
@pytest.mark.parametrize("layers", [2, 3])
def test_an_mlp_has_the_layers_that_are_asked_for(layers, last_norm):
    options = {"inner_norm": False, "bias": True, "last_norm": last_norm}
    head = MLP(C, MLPConfig(hidden=H, dim=D), layers=layers, **options)
    assert [type(layer) for layer in head.trunk] == [nn.Linear, nn.ReLU] * (layers - 1)
    assert (head.head.in_features, head.head.out_features, len(head.head.bias)) == (H, D, D)
    scales = {"none": 0, "affine": 2, "plain": 0}  # learned: scale and shift
    assert len(list(head.norm.parameters())) == scales[last_norm]
    output_BD = head(encoding().representation_BC)
    centred = output_BD.mean(dim=0).abs().max() < 1e-5
    assert bool(centred) == (last_norm != "none")


@pytest.mark.parametrize("pool", ["after", "before", "average"])
def test_autocast_gives_float32(pool):
    with torch.autocast("cpu", torch.bfloat16):
        gaussian = projector(pool=pool)(encoding())
        embedding_BD = MLP(C, MLPConfig(hidden=H, dim=D))(encoding().representation_BC)
    assert gaussian.mean_BD.dtype == gaussian.covariance_BD.dtype == embedding_BD.dtype
    assert embedding_BD.dtype == torch.float32


def test_a_power_that_left_its_range_is_brought_back():
    pool = GeM(power=12.0)
    pool.project()
    assert pool.power.item() == pytest.approx(9.999)
    pool(torch.rand(2, 4, 3)).sum().backward()
    assert pool.power.grad.item() != 0.0
