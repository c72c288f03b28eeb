"""VICReg's terms: covariances of any scale, and collapse; `test_oracles.py` has lightly's.

Shapes: B batch, D embedding dimensions.
"""

import numpy as np
import pytest
import torch

from mast.losses import covariance, invariance, variance


def embeddings(batch: int, dim: int, seed: int = 0, scale: float = 0.7) -> torch.Tensor:
    """Correlated dimensions of unequal spread, some above the hinge and some below, off centre."""
    generator = torch.Generator().manual_seed(seed)
    x_BD = torch.randn(batch, dim, generator=generator, dtype=torch.float64)
    mix_DD = torch.randn(dim, dim, generator=generator, dtype=torch.float64) / dim**0.5
    return scale * (x_BD @ mix_DD + x_BD) + 3.0


def published_covariance(z_BD: torch.Tensor) -> float:
    """Eq. 3 and 4, with the whole D x D matrix."""
    covariance_DD = np.atleast_2d(np.cov(z_BD.numpy(), rowvar=False))
    return float((covariance_DD**2).sum() - (covariance_DD.diagonal() ** 2).sum()) / len(
        covariance_DD
    )


@pytest.mark.parametrize(("batch", "dim"), [(2, 7), (16, 64), (12, 12), (64, 16)])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e5])
def test_one_dimension_of_another_scale_hides_no_covariance(batch, dim, scale):
    z_BD = embeddings(batch, dim)
    z_BD[:, 3] *= scale
    expected = published_covariance(z_BD)
    z_BD = z_BD.float().requires_grad_()
    parts = [covariance(z_BD, part, 3) for part in range(3)]
    assert covariance(z_BD).item() == pytest.approx(expected, rel=1e-5)
    assert sum(parts).item() == pytest.approx(expected, rel=1e-5)
    twin_BD = z_BD.detach().double().requires_grad_()
    covariance(twin_BD).backward()
    covariance(z_BD).backward()
    torch.testing.assert_close(z_BD.grad.double(), twin_BD.grad, rtol=1e-3, atol=1e-3 * scale)


def test_variance_pushes_collapsed_dimensions_apart():
    # A constant embedding has a hinge of 0.99 and, at eps 1e-4, a finite gradient.
    z_BD = torch.full((6, 3), 2.0, requires_grad=True)
    value = variance(z_BD)
    value.backward()
    assert value.item() == pytest.approx(0.99)
    assert torch.isfinite(z_BD.grad).all()


def test_shapes_are_quoted():
    with pytest.raises(ValueError, match=r"\(3, 4\).*\(3, 5\)"):
        invariance(torch.zeros(3, 4), torch.zeros(3, 5))
    for term in (variance, covariance):
        with pytest.raises(ValueError, match=r"B >= 2, got \(1, 4\)"):
            term(torch.zeros(1, 4))
        with pytest.raises(ValueError, match=r"got \(4,\)"):
            term(torch.zeros(4))
