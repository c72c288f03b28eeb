"""The power spherical distribution: a density on the sphere, with its published moments."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from mast.losses import power_spherical_log_density


@pytest.mark.parametrize("concentration", [0.0, 0.7, 20.0])
@pytest.mark.parametrize("dim", [2, 3, 6])
def test_it_integrates_to_one_and_has_its_mean(dim: int, concentration: float) -> None:
    """Over the cosine t, whose density on the sphere is (1 - t^2)^((d - 3) / 2)."""
    angle = torch.linspace(0, math.pi, 20_001, dtype=torch.float64)
    direction = torch.zeros(len(angle), dim, dtype=torch.float64)
    direction[:, 0], direction[:, 1] = angle.cos(), angle.sin()
    mean = torch.zeros_like(direction)
    mean[:, 0] = 1.0
    kappa = torch.full_like(angle, concentration)
    density = power_spherical_log_density(direction, mean, kappa).exp()
    ring = 2 * math.pi ** ((dim - 1) / 2) / math.gamma((dim - 1) / 2)  # area of the d-2 sphere
    weight = density * ring * angle.sin() ** (dim - 2)
    assert torch.trapezoid(weight, angle).item() == pytest.approx(1.0, rel=1e-4)
    expected = concentration / (concentration + dim - 1)  # (a - b) / (a + b) of the paper
    assert torch.trapezoid(weight * angle.cos(), angle).item() == pytest.approx(expected, abs=1e-4)


def test_opposite_directions_are_finite_with_their_gradient() -> None:
    mean = F.normalize(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    mean.requires_grad_()
    kappa = torch.full((4,), 50.0, requires_grad=True)
    power_spherical_log_density(-mean.detach(), mean, kappa).sum().backward()
    assert mean.grad is not None
    assert kappa.grad is not None
    assert bool(mean.grad.isfinite().all() and kappa.grad.isfinite().all())
