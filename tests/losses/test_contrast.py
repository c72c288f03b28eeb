"""Losses of unit vectors against their formulas, one sample at a time; lightly is in test_oracles.

Shapes: B batch, D embedding dimensions, N negatives.
"""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.errors import UserError
from mast.losses import masked_nt_xent, negative_cosine, nt_xent, sinkhorn


def embeddings(batch: int, dim: int, seed: int) -> Tensor:
    """Of unequal length, in float64, that ask for a gradient."""
    generator = torch.Generator().manual_seed(seed)
    x_BD = torch.randn(batch, dim, generator=generator, dtype=torch.float64)
    length_B1 = 0.1 + 3 * torch.rand(batch, 1, generator=generator, dtype=torch.float64)
    return (x_BD * length_B1).requires_grad_()


def assert_same(ours: Tensor, theirs: Tensor, *inputs: Tensor, relative: float = 1e-9) -> None:
    """Equal values and gradients."""
    assert ours.item() == pytest.approx(theirs.item(), rel=relative)
    for mine, other in zip(
        torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-10)


def masked(first_BD: Tensor, second_BD: Tensor, weight_BD: Tensor) -> Tensor:
    """By the formula: cosines of weighted embeddings, by the anchor's weights."""
    both, roots = torch.cat([first_BD, second_BD]), weight_BD.sqrt().repeat(2, 1)
    total = torch.zeros((), dtype=torch.float64)
    for anchor, root_D in enumerate(roots):
        logit_N = F.cosine_similarity((root_D * both[anchor])[None], root_D * both) / 0.2
        others = [other for other in range(len(both)) if other != anchor]
        positive = others.index((anchor + len(first_BD)) % len(both))
        total = total - logit_N[others].log_softmax(dim=0)[positive] / len(both)
    return total


def test_masked_nt_xent_is_its_formula() -> None:
    """Equal weights are no weights."""
    views, weight_BD = [embeddings(5, 4, seed) for seed in (0, 1)], embeddings(5, 4, 2).square()
    expected = masked(*views, weight_BD)
    assert_same(masked_nt_xent(*views, weight_BD, 0.2), expected, *views, weight_BD)
    even = masked_nt_xent(*views, torch.full_like(weight_BD, 0.3), 0.2)
    assert_same(even, nt_xent(*views, 0.2), *views)


@pytest.mark.parametrize("length", [1e-12, 1.0, 1e19])
def test_masked_nt_xent_in_float32_takes_any_length_and_anchors_without_weights(
    length: float,
) -> None:
    views = [F.normalize(embeddings(6, 4, seed).detach()) for seed in (0, 1)]
    weight_BD = embeddings(6, 4, 2).detach().square()
    weight_BD[0] = 0  # as like to all as to any
    inputs = [(length * view_BD).float() for view_BD in views] + [(1e-20 * weight_BD).float()]
    found = masked_nt_xent(*(each.requires_grad_() for each in inputs), 0.2)
    assert found.item() == pytest.approx(masked(*views, weight_BD).item(), rel=1e-5)
    gradients = torch.autograd.grad(found, inputs)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert not gradients[2][0].any()


def test_losses_are_float32_in_mixed_precision() -> None:
    first_BD, second_BD = (embeddings(8, 16, seed).detach().bfloat16() for seed in (0, 1))
    with torch.autocast("cpu", torch.bfloat16):
        found = nt_xent(first_BD, second_BD, 0.1)
        assert negative_cosine(first_BD, second_BD).dtype == torch.float32
    assert found.dtype == torch.float32
    expected = nt_xent(first_BD.double(), second_BD.double(), 0.1)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("temperature", [0.0, math.nan, math.inf])
def test_what_is_no_temperature_is_refused(temperature: float) -> None:
    x_BD = torch.eye(4)
    with pytest.raises(UserError, match=r"temperature: expected a number in \(0, inf\), got"):
        nt_xent(x_BD, x_BD, temperature)
    with pytest.raises(UserError, match=r"epsilon: expected a number in \(0, inf\), got"):
        sinkhorn(x_BD, temperature, 3)
