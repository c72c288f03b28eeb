"""The share of variance that predictions leave, against hand computation and scikit-learn."""

import pytest
import torch
from sklearn.metrics import r2_score

from mast.losses import unexplained


def test_by_hand() -> None:
    target_BT = torch.tensor([[1.0, 10.0], [3.0, 10.0]])
    mean_T, variance_T = target_BT.mean(dim=0), target_BT.var(dim=0, correction=0)
    perfect_BT = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])  # the second does not vary
    assert unexplained(perfect_BT, target_BT, mean_T, variance_T).item() == pytest.approx(
        0, abs=1e-6
    )
    nothing_BT = torch.zeros(2, 2)
    assert unexplained(nothing_BT, target_BT, mean_T, variance_T).item() == pytest.approx(0.5)
    wrong_BT = torch.tensor([[1.0, 0.0], [-1.0, 2.0]])
    # squares 4, 4 of the first number and 0, 4 of the second
    assert unexplained(wrong_BT, target_BT, mean_T, variance_T).item() == pytest.approx(3.0)


def test_is_one_minus_r_squared() -> None:
    generator = torch.Generator().manual_seed(0)
    target_BT = 5 + 3 * torch.randn(50, 4, generator=generator)
    mean_T, variance_T = target_BT.mean(dim=0), target_BT.var(dim=0, correction=0)
    predicted_BT = torch.randn(50, 4, generator=generator)
    found = unexplained(predicted_BT, target_BT, mean_T, variance_T)
    own_units_BT = mean_T + predicted_BT * variance_T.sqrt()
    assert 1 - found.item() == pytest.approx(r2_score(target_BT, own_units_BT), abs=1e-5)


def test_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match=r"\(4, 2\), got \(4, 3\)"):
        unexplained(torch.zeros(4, 3), torch.zeros(4, 2), torch.zeros(2), torch.ones(2))
