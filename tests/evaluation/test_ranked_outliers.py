"""Wrong labels by confident learning, and images far from their neighbours."""

import numpy as np
import pytest
import torch

from mast.evaluation.label_errors import (
    NO_CLASS,
    confident_classes,
    likely_errors,
    out_of_fold,
    self_confidence,
)
from mast.search.outliers import distances

# Three images of each of two classes; no image has the third label.
LABELS = np.array([0, 0, 0, 1, 1, 1])
PROBABILITIES = np.array(
    [
        [0.8, 0.1, 0.1],
        [0.3, 0.4, 0.3],
        [0.1, 0.9, 0.0],  # of the other class
        [0.2, 0.6, 0.2],
        [0.0, 0.9, 0.1],
        [0.6, 0.3, 0.1],  # of the other class
    ]
)


def test_by_hand() -> None:
    assert confident_classes(LABELS, PROBABILITIES).tolist() == [0, NO_CLASS, 1, 1, 1, 0]
    assert likely_errors(LABELS, PROBABILITIES).tolist() == [False, False, True, False, False, True]
    assert self_confidence(LABELS, PROBABILITIES).tolist() == [0.8, 0.3, 0.1, 0.6, 0.9, 0.3]


def test_an_image_does_not_vote_on_its_own_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features without a class in them: a probe that had seen the labels would know them."""
    monkeypatch.setattr("mast.evaluation.label_errors.PENALTIES", (0.1,))
    random = np.random.default_rng(0)
    labels = np.arange(60) % 2
    features = torch.from_numpy(random.normal(size=(60, 80))).float()
    probabilities = out_of_fold(features, labels, 2, seed=0)
    assert (probabilities.argmax(axis=1) == labels).mean() < 0.75


ANGLES = torch.tensor([0.0, 10.0, 20.0, 30.0, 40.0]).deg2rad()
BANK = 3 * torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)  # lengths do not count


def test_a_bank_with_fewer_images_gives_its_last() -> None:
    found = distances(BANK[:3], np.arange(3), BANK[[0, 4]])
    torch.testing.assert_close(found, 1 - torch.tensor([20.0, 40.0]).deg2rad().cos())
    torch.testing.assert_close(distances(BANK[:1], np.arange(1), BANK[1:2]), 1 - ANGLES[1:2].cos())
