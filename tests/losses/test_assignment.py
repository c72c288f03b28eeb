"""Assignments and their prediction against SwAV's official steps and lightly's.

Shapes: B batch, P prototypes, L locations, W words.
"""

import math

import pytest
import torch
from lightly.loss.swav_loss import sinkhorn as lightlys
from torch import Tensor

from mast.losses import bag_of_words, sinkhorn


def scores(batch: int, prototypes: int, seed: int) -> Tensor:
    """Cosines, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(batch, prototypes, generator=generator, dtype=torch.float64) - 1


def official(score_BP: Tensor, epsilon: float, iterations: int) -> Tensor:
    """facebookresearch/swav, main_swav.py, `distributed_sinkhorn` in one process."""
    share_PB = (score_BP / epsilon).exp().T
    share_PB = share_PB / share_PB.sum()
    prototypes, batch = share_PB.shape
    total_P = share_PB.sum(dim=1)
    for _ in range(iterations):
        share_PB = share_PB * (1 / prototypes / total_P)[:, None]
        share_PB = share_PB * (1 / batch / share_PB.sum(dim=0))[None]
        total_P = share_PB.sum(dim=1)
    return (share_PB / share_PB.sum(dim=0, keepdim=True)).T


@pytest.mark.parametrize(("batch", "prototypes"), [(8, 3), (5, 20)])
@pytest.mark.parametrize("iterations", [1, 3])
def test_sinkhorn_is_the_official_codes_and_lightlys(
    batch: int, prototypes: int, iterations: int
) -> None:
    score_BP = scores(batch, prototypes, 0)
    found = sinkhorn(score_BP, 0.05, iterations)
    torch.testing.assert_close(found, official(score_BP, 0.05, iterations), rtol=1e-9, atol=0)
    torch.testing.assert_close(found, lightlys(score_BP, iterations, 0.05), rtol=1e-9, atol=0)


def test_all_prototypes_are_used_equally_in_the_end() -> None:
    score_BP = scores(60, 6, 0) + torch.linspace(0, 1, 6).double()  # some are nearer to all
    usage_P = sinkhorn(score_BP, 0.5, 100).sum(dim=0)
    torch.testing.assert_close(usage_P, torch.full_like(usage_P, 10), rtol=1e-6, atol=0)


def test_a_bag_of_words_is_its_formula() -> None:
    """By hand: softmax over words, maximum over locations, sum of one."""
    distances = [[[0.2, 1.5, 0.9], [2.0, 0.1, 0.4]], [[0.3, 0.3, 0.3], [1.0, 5.0, 0.0]]]
    expected = []
    for image in distances:
        shares = [[math.exp(-3 * d) for d in location] for location in image]
        shares = [[share / sum(location) for share in location] for location in shares]
        largest = [max(column) for column in zip(*shares, strict=True)]
        expected.append([value / sum(largest) for value in largest])
    found_BW = bag_of_words(torch.tensor(distances, dtype=torch.float64), 3.0)
    torch.testing.assert_close(found_BW, torch.tensor(expected, dtype=torch.float64))
