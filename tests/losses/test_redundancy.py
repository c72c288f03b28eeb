"""Barlow Twins' loss against lightly's and against its official code in float64."""

import pytest
import torch
from lightly.loss import BarlowTwinsLoss
from torch import Tensor, nn

from mast.losses import redundancy

WEIGHT = 0.0051


def embeddings(batch: int, dim: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x_BD = torch.randn(batch, dim, generator=generator, dtype=torch.float64)
    mix_DD = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    return (x_BD @ mix_DD + 2.0).requires_grad_()


def official(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """facebookresearch/barlowtwins, main.py: BatchNorm standardises, with its own epsilon."""
    norm = nn.BatchNorm1d(first_BD.shape[1], affine=False).double()
    correlation_DD = norm(first_BD).T @ norm(second_BD) / len(first_BD)
    diagonal = (correlation_DD.diagonal() - 1).square().sum()
    eye = torch.eye(len(correlation_DD), dtype=torch.bool)
    return diagonal + WEIGHT * correlation_DD[~eye].square().sum()


@pytest.mark.parametrize(("batch", "dim"), [(3, 8), (16, 5), (40, 40)])
def test_it_is_the_official_codes_and_lightlys(batch: int, dim: int) -> None:
    first_BD, second_BD = embeddings(batch, dim, 0), embeddings(batch, dim, 1)
    diagonal, others = redundancy(first_BD, second_BD)
    ours = diagonal + WEIGHT * others
    theirs = official(first_BD, second_BD)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-9)
    inputs = (first_BD, second_BD)
    for mine, other in zip(
        torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-9)
    lightly = BarlowTwinsLoss(lambda_param=WEIGHT)(first_BD, second_BD)
    assert ours.item() == pytest.approx(lightly.item(), rel=1e-4)
