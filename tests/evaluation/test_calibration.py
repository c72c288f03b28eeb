"""Temperature and calibration error, in closed forms."""

import math

import numpy as np
import pytest
import torch

from mast.evaluation.calibration import BINS, calibrate, calibration_error, fit_temperature


def test_the_temperature_of_two_classes_in_closed_form() -> None:
    """Right three times in four at scores ±1.5: σ(2 · 1.5 / T) = 3/4."""
    scores = torch.tensor([[1.5, -1.5]]).repeat(8, 1)
    labels = torch.tensor([0, 0, 0, 1] * 2)
    assert fit_temperature(scores, labels) == pytest.approx(3 / math.log(3))
    # Of four right images each counts as 5/6 of one.
    assert fit_temperature(scores[:4], labels[:4] * 0) == pytest.approx(3 / math.log(5))


def test_scores_that_tell_nothing_have_uniform_probabilities() -> None:
    labels = torch.tensor([0, 1, 2])
    assert fit_temperature(torch.ones(3, 3), labels) == 1.0
    against = -torch.eye(3)
    probabilities = (against / fit_temperature(against, labels)).softmax(dim=1)
    torch.testing.assert_close(probabilities, torch.full((3, 3), 1 / 3), atol=1e-4, rtol=0)


def test_the_error_is_that_of_a_loop_over_bins() -> None:
    generator = torch.Generator().manual_seed(1)
    probabilities = torch.randn(500, 5, generator=generator).double().softmax(dim=1)
    labels = torch.randint(5, (500,), generator=generator)
    confidence = probabilities.amax(dim=1).numpy()
    right = (probabilities.argmax(dim=1) == labels).numpy()
    expected = 0.0
    for low in np.arange(BINS) / BINS:
        inside = (confidence > low) & (confidence <= low + 1 / BINS)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert calibration_error(probabilities, labels) == pytest.approx(100 * expected)


def test_too_sure_a_classifier_is_mended_on_images_that_were_not_fitted() -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(3000, 4, generator=generator)
    labels = torch.multinomial(scores.softmax(dim=1), 1, generator=generator).squeeze(1)
    found, scaled = calibrate(scores, labels, seed=0), calibrate(5 * scores, labels, seed=0)
    assert found.temperature == pytest.approx(1, abs=0.1)
    assert scaled.temperature == pytest.approx(5 * found.temperature)
    assert scaled.error_after == pytest.approx(found.error_after)
    assert found.error_after < 4
    assert scaled.error_before > 20
    assert scaled.images == 3000
