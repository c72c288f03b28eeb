"""GeM pooling and the two projectors.

Legend: B samples, L locations, C features, D embedding dimensions.
"""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from mast.models import Encoding, GaussianProjector, GeM, MLPProjector, ProjectorConfig

Pool = Literal["after", "before", "average"]
Positivity = Literal["relu", "softplus", "paper"]
POOLS: tuple[Pool, ...] = ("after", "before", "average")
POSITIVITIES: tuple[Positivity, ...] = ("relu", "softplus", "paper")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def encoding(batch: int = 16, locations: int = 9, features: int = 12) -> Encoding:
    features_BLC = torch.randn(batch, locations, features).relu()
    return Encoding(features_BLC.mean(dim=1), features_BLC)


def test_gem_by_hand() -> None:
    features_BLC = torch.tensor([[[1.0], [2.0], [3.0]]])
    assert GeM(1.0)(features_BLC).item() == pytest.approx(2.0)
    assert GeM(3.0)(features_BLC).item() == pytest.approx(12 ** (1 / 3))


def test_gem_goes_from_the_average_to_the_maximum() -> None:
    features_BLC = torch.rand(4, 49, 8)
    torch.testing.assert_close(GeM(1.0)(features_BLC), features_BLC.mean(dim=1))
    maximum_BC = features_BLC.amax(dim=1)
    pooled = [GeM(power)(features_BLC) for power in (1.0, 3.0, 6.0, 10.0)]
    for lower_BC, higher_BC in zip(pooled, [*pooled[1:], maximum_BC], strict=True):
        assert (lower_BC < higher_BC).all()
    # A mean over L locations is at least max / L ** (1 / p).
    assert (pooled[-1] >= maximum_BC * 49**-0.1 - 1e-6).all()


@pytest.mark.parametrize(("power", "clamped"), [(0.2, 1.0), (-3.0, 1.0), (50.0, 10.0)])
def test_gem_clamps_its_power(power: float, clamped: float) -> None:
    features_BLC = torch.rand(2, 5, 3)
    torch.testing.assert_close(GeM(power)(features_BLC), GeM(clamped)(features_BLC))


@pytest.mark.parametrize("power", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e5])
def test_gem_is_finite_for_dead_and_for_large_channels(power: float, scale: float) -> None:
    """1e-6 to the tenth is no float32, and neither is 1e5 to the tenth."""
    gem = GeM(power)
    features_BLC = (scale * torch.rand(2, 5, 3)).requires_grad_()
    pooled_BC = gem(features_BLC)
    pooled_BC.sum().backward()
    expected_BC = features_BLC.detach().double().clamp(min=1e-6).pow(power).mean(dim=1)
    torch.testing.assert_close(pooled_BC.double(), expected_BC.pow(1 / power), rtol=1e-4, atol=0)
    for gradient in (features_BLC.grad, gem.power.grad):
        assert gradient is not None
        assert gradient.isfinite().all()


def test_gem_gradients_equal_finite_differences() -> None:
    features_BLC = 0.1 + torch.rand(2, 4, 3)
    gem = GeM(2.5)
    eps = 1e-2
    (gradient,) = torch.autograd.grad(gem(features_BLC).sum(), gem.power)
    difference = (GeM(2.5 + eps)(features_BLC) - GeM(2.5 - eps)(features_BLC)).sum() / (2 * eps)
    torch.testing.assert_close(gradient, difference, rtol=1e-2, atol=1e-4)
    features_BLC.requires_grad_()
    (gradient_BLC,) = torch.autograd.grad(gem(features_BLC).sum(), features_BLC)
    pooled_B1C = gem(features_BLC)[:, None]
    torch.testing.assert_close(gradient_BLC, (features_BLC / pooled_B1C) ** 1.5 / 4)


@pytest.mark.parametrize("pool", POOLS)
def test_gaussian_projector_shapes(pool: Pool) -> None:
    projector = GaussianProjector(12, ProjectorConfig(hidden=20, dim=7, pool=pool))
    mean_BD, covariance_BD = projector(encoding())
    assert mean_BD.shape == covariance_BD.shape == (16, 7)
    assert mean_BD.dtype == covariance_BD.dtype == torch.float32
    (mean_BD.square().sum() + covariance_BD.sum()).backward()
    for name, parameter in projector.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    powers = [name for name, _ in projector.named_parameters() if name.endswith("power")]
    assert len(powers) == (0 if pool == "average" else 2)


def test_pools_read_what_they_say() -> None:
    """ "average" reads the representation alone; at one location the others agree with GeM off."""
    given = encoding()
    other = Encoding(given.representation_BC, torch.rand_like(given.features_BLC))
    results: dict[Pool, list[Tensor]] = {}
    for pool in POOLS:
        torch.manual_seed(1)
        projector = GaussianProjector(12, ProjectorConfig(hidden=20, dim=7, pool=pool)).eval()
        results[pool] = [projector(x).mean_BD for x in (given, other)]
    assert torch.equal(*results["average"])
    assert not torch.allclose(*results["after"])
    assert not torch.allclose(*results["before"])


def test_after_is_the_trunk_at_every_location() -> None:
    given = encoding(batch=3)
    projector = GaussianProjector(12, ProjectorConfig(hidden=20, dim=7)).eval()
    hidden_BLH = torch.stack([projector.trunk(x_BC) for x_BC in given.features_BLC.unbind(1)], 1)
    expected_BD = projector.mean_head(projector.mean_pool(hidden_BLH))
    torch.testing.assert_close(projector(given).mean_BD, expected_BD)


@pytest.mark.parametrize("positivity", POSITIVITIES)
@pytest.mark.parametrize("bias", [1.0, -1e4])
def test_covariance_is_strictly_positive(positivity: Positivity, bias: float) -> None:
    config = ProjectorConfig(hidden=20, dim=7, positivity=positivity)
    projector = GaussianProjector(12, config)
    torch.nn.init.constant_(projector.covariance_head.bias, bias)
    covariance_BD = projector(encoding()).covariance_BD
    assert (covariance_BD > 0).all()
    if bias < 0:
        floor = {"relu": 0.1, "softplus": 1e-3, "paper": 1e-6}[positivity]
        torch.testing.assert_close(covariance_BD, torch.full_like(covariance_BD, floor))


@pytest.mark.parametrize("positivity", POSITIVITIES)
@pytest.mark.parametrize("pool", POOLS)
def test_covariance_starts_near_one(pool: Pool, positivity: Positivity) -> None:
    config = ProjectorConfig(hidden=128, dim=64, pool=pool, positivity=positivity)
    covariance_BD = GaussianProjector(12, config)(encoding(64)).covariance_BD
    assert 0.5 < covariance_BD.mean().item() < 1.6


def test_mlp_projector_is_the_expander_of_vicreg() -> None:
    projector = MLPProjector(12, ProjectorConfig(hidden=20, dim=7))
    kinds = [type(layer).__name__ for layer in projector.trunk]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2
    assert projector.head.bias is None
    given = encoding()
    embedding_BD = projector(given)
    assert embedding_BD.shape == (16, 7)
    expected_BD = projector.head(projector.trunk(given.representation_BC))
    torch.testing.assert_close(embedding_BD, expected_BD)


@pytest.mark.parametrize("kind", [GaussianProjector, MLPProjector])
def test_projectors_give_float32_under_autocast(kind: Any) -> None:
    projector = kind(12, ProjectorConfig(hidden=20, dim=7))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = projector(encoding())
    for x in output if isinstance(output, tuple) else (output,):
        assert x.dtype == torch.float32
