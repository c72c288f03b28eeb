"""The share of variance that predictions leave, against hand computation and scikit-learn."""

import pytest
import torch
from sklearn.metrics import r2_score

from mast.losses import unexplained


def test_is_one_minus_r_squared() -> None:
    generator = torch.Generator().manual_seed(0)
    target_BT = 5 + 3 * torch.randn(50, 4, generator=generator)
    predicted_BT = torch.randn(50, 4, generator=generator)
    target_BT[:, 3] = 10.0  # does not vary
    found = unexplained(predicted_BT, target_BT, target_BT)
    own_units_BT = target_BT.mean(dim=0) + predicted_BT * target_BT.std(dim=0, correction=0)
    expected = r2_score(target_BT[:, :3], own_units_BT[:, :3])
    assert 1 - found.item() == pytest.approx(expected, abs=1e-5)


def test_what_nobody_can_tell_is_not_asked() -> None:
    generator = torch.Generator().manual_seed(1)
    target_BT, predicted_BT = torch.randn(2, 20, 1, generator=generator)
    target_BT[::3] = torch.nan
    asked_B = ~target_BT[:, 0].isnan()
    found = unexplained(predicted_BT.requires_grad_(), target_BT, target_BT)
    alone = unexplained(predicted_BT[asked_B], target_BT[asked_B], target_BT[asked_B])
    torch.testing.assert_close(found, alone)
    found.backward()
    assert torch.equal(predicted_BT.grad[:, 0] != 0, asked_B)
    for nothing_BT in (torch.full((4, 2), torch.nan), torch.ones(4, 2)):
        predicted_BT = torch.ones(4, 2, requires_grad=True)
        found = unexplained(predicted_BT, nothing_BT, nothing_BT)
        assert found == 1.0  # nothing was told
        found.backward()
        assert not predicted_BT.grad.any()


def test_the_mean_over_processes_is_that_of_the_global_batch() -> None:
    generator = torch.Generator().manual_seed(2)
    target_NT, predicted_NT = torch.randn(2, 12, 3, generator=generator)
    target_NT[:5, 0] = torch.nan  # the processes know of different numbers
    parts = [
        unexplained(predicted_NT[own], target_NT[own], target_NT)
        for own in (slice(0, 6), slice(6, 12))
    ]
    whole = unexplained(predicted_NT, target_NT, target_NT)
    torch.testing.assert_close(sum(parts) / 2, whole)
