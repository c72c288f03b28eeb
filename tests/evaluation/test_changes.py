"""Operators at a magnitude stay within what pretraining draws."""

import pytest
import torch

from mast.augment import OPERATORS
from mast.evaluation.changes import changed_by


@pytest.mark.parametrize("name", OPERATORS)
def test_magnitudes_stay_within_what_pretraining_draws(name: str) -> None:
    operator = OPERATORS[name](64)
    drawn = operator.sample(200, torch.Generator().manual_seed(0))
    for magnitude in (0.0, 0.3, 1.0):
        changed = operator.at_magnitude(magnitude, drawn)
        assert changed.keys() == drawn.keys()
        for key, values in changed.items():
            assert values.shape == drawn[key].shape
            assert values.dtype == drawn[key].dtype
            slack = 0.1 * (drawn[key].max() - drawn[key].min()).abs() + 1e-6
            assert values.min() >= drawn[key].min() - slack
            assert values.max() <= drawn[key].max() + slack
    assert operator.graded or operator.at_magnitude(0.5, drawn) is drawn


def test_a_change_does_not_depend_on_batches() -> None:
    images = torch.rand(6, 3, 32, 32)
    change = changed_by("rotate", 0.6, 32, 6, seed=1)
    whole = change.apply(images, torch.arange(6))
    parts = [change.apply(images[i : i + 2], torch.arange(i, i + 2)) for i in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-6)
