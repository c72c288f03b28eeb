"""VICReg's terms against the published formula, lightly's code and finite differences.

Legend: B samples, D embedding dimensions.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightly.loss import VICRegLoss
from torch import Tensor

from mast.losses import covariance, invariance, variance

SHAPES = [(8, 24), (24, 24), (40, 24)]


def embedding(batch: int, dim: int, seed: int = 0) -> Tensor:
    """Correlated float64 embeddings_BD whose deviations lie on both sides of the hinge."""
    generator = torch.Generator().manual_seed(seed)
    values_BD = torch.randn(batch, dim, generator=generator, dtype=torch.float64)
    mix_DD = torch.randn(dim, dim, generator=generator, dtype=torch.float64) / dim**0.5
    scale_D = torch.linspace(0.2, 2.5, dim, dtype=torch.float64)
    return values_BD @ (torch.eye(dim, dtype=torch.float64) + 0.5 * mix_DD) * scale_D + 3.0


def published_variance(z_BD: Tensor) -> float:
    """VICReg, Eq. 1 and 2, one dimension after the other."""
    batch, dim = z_BD.shape
    total = 0.0
    for j in range(dim):
        column = z_BD[:, j].tolist()
        mean = sum(column) / batch
        var = sum((value - mean) ** 2 for value in column) / (batch - 1)
        total += max(0.0, 1.0 - (var + 1e-4) ** 0.5)
    return total / dim


def published_covariance(z_BD: Tensor) -> float:
    """VICReg, Eq. 3 and 4, from the whole D x D matrix."""
    batch, dim = z_BD.shape
    mean_D = z_BD.sum(dim=0) / batch
    matrix_DD = torch.zeros(dim, dim, dtype=torch.float64)
    for z_D in z_BD:
        matrix_DD += torch.outer(z_D - mean_D, z_D - mean_D) / (batch - 1)
    return sum(matrix_DD[i, j].item() ** 2 for i in range(dim) for j in range(dim) if i != j) / dim


def published_invariance(a_BD: Tensor, b_BD: Tensor) -> float:
    """Squared distances, a mean over samples and dimensions as in the published code."""
    return (
        sum(
            (x - y) ** 2 for x, y in zip(*(z.flatten().tolist() for z in (a_BD, b_BD)), strict=True)
        )
        / a_BD.numel()
    )


def total(a_BD: Tensor, b_BD: Tensor) -> Tensor:
    return (
        25 * invariance(a_BD, b_BD)
        + 25 * (variance(a_BD) + variance(b_BD)) / 2
        + covariance(a_BD)
        + covariance(b_BD)
    )


@pytest.mark.parametrize(("batch", "dim"), SHAPES)
def test_terms_equal_the_published_formula(batch: int, dim: int) -> None:
    a_BD, b_BD = embedding(batch, dim, 1), embedding(batch, dim, 2)
    distance = published_invariance(a_BD, b_BD)
    hinges = [published_variance(z_BD) for z_BD in (a_BD, b_BD)]
    squares = [published_covariance(z_BD) for z_BD in (a_BD, b_BD)]
    assert min(hinges) > 0.0
    assert invariance(a_BD, b_BD).item() == pytest.approx(distance, rel=1e-12)
    assert variance(a_BD).item() == pytest.approx(hinges[0], rel=1e-12)
    assert covariance(a_BD).item() == pytest.approx(squares[0], rel=1e-11)
    expected = 25 * distance + 25 * sum(hinges) / 2 + sum(squares)
    assert total(a_BD, b_BD).item() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("batch", "dim"), SHAPES)
def test_total_and_gradient_equal_lightly(batch: int, dim: int) -> None:
    gradients = []
    losses = []
    for loss in (total, VICRegLoss()):
        a_BD, b_BD = (embedding(batch, dim, seed).requires_grad_() for seed in (1, 2))
        value = loss(a_BD, b_BD)
        losses.append(value.detach())
        gradients.append(torch.autograd.grad(value, (a_BD, b_BD)))
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("batch", "dim"), [(3, 6), (7, 4)])
def test_gradients_equal_finite_differences(batch: int, dim: int) -> None:
    a_BD, b_BD = (embedding(batch, dim, seed).requires_grad_() for seed in (1, 2))
    assert torch.autograd.gradcheck(invariance, (a_BD, b_BD))
    assert torch.autograd.gradcheck(variance, (a_BD,))
    assert torch.autograd.gradcheck(covariance, (a_BD,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_only_half_types_are_promoted(dtype: torch.dtype) -> None:
    a_BD, b_BD = (embedding(8, 6, seed).to(dtype) for seed in (1, 2))
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    for value in (invariance(a_BD, b_BD), variance(a_BD), covariance(a_BD)):
        assert value.dtype == expected


def test_autocast_does_not_round_the_covariance() -> None:
    z_BD = embedding(16, 12).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = covariance(z_BD)
    torch.testing.assert_close(value, covariance(z_BD), rtol=0, atol=0)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(2, 12),
    dim=st.integers(1, 12),
    seed=st.integers(0, 2**31 - 1),
    shift=st.floats(-100, 100),
)
def test_translation_and_order_do_not_matter(batch: int, dim: int, seed: int, shift: float) -> None:
    a_BD, b_BD = embedding(batch, dim, seed), embedding(batch, dim, seed // 2 + 1)
    generator = torch.Generator().manual_seed(seed)
    shift_D = shift * torch.randn(dim, generator=generator, dtype=torch.float64)
    rows = torch.randperm(batch, generator=generator)
    columns = torch.randperm(dim, generator=generator)
    for term in (variance, covariance):
        expected = term(a_BD)
        for changed_BD in (a_BD + shift_D, a_BD[rows], a_BD[:, columns]):
            torch.testing.assert_close(term(changed_BD), expected, rtol=1e-8, atol=1e-8)
    distance = invariance(a_BD, b_BD)
    torch.testing.assert_close(invariance(a_BD[rows], b_BD[rows]), distance)
    torch.testing.assert_close(invariance(a_BD[:, columns], b_BD[:, columns]), distance)
    torch.testing.assert_close(invariance(b_BD, a_BD), distance, rtol=0, atol=0)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one shape \(B, D\); got \(4, 3\) and \(1, 3\)"):
        invariance(torch.zeros(4, 3), torch.zeros(1, 3))
    for term in (variance, covariance):
        for shape in ((1, 3), (3,), (2, 3, 4)):
            with pytest.raises(ValueError, match="B >= 2"):
                term(torch.zeros(shape))
