"""Distances from a set's own neighbours, by hand."""

import pytest
import torch

from mast.core.errors import UserError
from mast.measure.outliers import distances

ANGLES = torch.tensor([0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 90.0]).deg2rad()
BANK = 3 * torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)  # lengths do not count


def at(degrees: list[float]) -> torch.Tensor:
    angle_M = torch.tensor(degrees).deg2rad()
    return torch.stack([angle_M.cos(), angle_M.sin()], dim=1)


def test_the_fifth_neighbour_that_is_not_the_image_itself() -> None:
    found = distances(BANK, torch.cat([BANK[[0, 6]], at([-1.0])]))
    # 50 degrees from the first, itself apart; 80 from the last; 41 where all five are others.
    expected = 1 - torch.tensor([50.0, 80.0, 41.0]).deg2rad().cos()
    torch.testing.assert_close(found, expected)
    assert (distances(BANK[[0] * 7], BANK[:1]) >= 0).all()  # copies, in spite of rounding


def test_a_bank_with_fewer_images_gives_its_last() -> None:
    found = distances(BANK[:3], torch.cat([BANK[:1], at([-1.0])]))
    torch.testing.assert_close(found, 1 - torch.tensor([20.0, 21.0]).deg2rad().cos())
    torch.testing.assert_close(distances(BANK[:1], BANK[1:2]), 1 - ANGLES[1:2].cos())
    with pytest.raises(UserError, match="there is no other image to compare with"):
        distances(BANK[:1], BANK[:1])
