"""Distances from a set's own neighbours, by hand."""

import numpy as np
import pytest
import torch

from mast.core.errors import UserError
from mast.measure.unlike import distances

ANGLES = torch.tensor([0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 90.0]).deg2rad()
BANK = 3 * torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)  # lengths do not count


def test_the_fifth_neighbour_that_is_not_the_image_itself() -> None:
    queries = BANK[[0, 0, 6]] * torch.tensor([[1.0], [2.0], [1.0]])
    found = distances(BANK, queries, np.array([True, False, True]))
    # 50 degrees from the first, itself apart; 40 where it counts as another; 80 from the last.
    expected = 1 - torch.tensor([50.0, 40.0, 80.0]).deg2rad().cos()
    torch.testing.assert_close(found, expected)


def test_a_bank_with_fewer_images_gives_its_last() -> None:
    found = distances(BANK[:3], BANK[:1], np.array([True]))
    torch.testing.assert_close(found, 1 - torch.tensor([20.0]).deg2rad().cos())
    with pytest.raises(UserError, match="expected k between 1 and the 1 training images"):
        distances(BANK[:1], BANK[:1], np.array([True]))
