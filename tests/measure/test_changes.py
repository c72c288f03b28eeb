"""Operators at a magnitude: how much they change, and that they stay what pretraining draws."""

import pytest
import torch
from torch import nn

from mast.augment import OPERATORS
from mast.measure.changes import changed_by


@pytest.mark.parametrize("name", [name for name, kind in OPERATORS.items() if kind.graded])
def test_a_larger_magnitude_changes_more(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(4, 3, 2, 2, generator=generator)  # so that a longer way leads further off
    images = nn.functional.interpolate(coarse, size=224, mode="bilinear")
    images = (images + 0.2 * torch.rand(images.shape, generator=generator)).clamp(max=1)
    positions = torch.arange(4)
    changes = [
        (changed_by(name, m, 224, 4, seed=0).apply(images, positions) - images).abs().mean().item()
        for m in (0.0, 0.5, 1.0)
    ]
    assert changes[0] <= changes[1] <= changes[2]
    assert changes[0] < changes[2]


@pytest.mark.parametrize("name", OPERATORS)
def test_magnitudes_stay_within_what_pretraining_draws(name: str) -> None:
    operator = OPERATORS[name](64)
    drawn = operator.sample(200, torch.Generator().manual_seed(0))
    for magnitude in (0.0, 0.3, 1.0):
        given = operator.at_magnitude(magnitude, drawn)
        assert given.keys() == drawn.keys()
        for key, values in given.items():
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
