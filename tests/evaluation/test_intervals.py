"""Accuracies, intervals and calibration: published examples, SciPy, closed forms, coverage."""

import itertools
import math
from collections.abc import Iterable

import numpy as np
import pytest
import scipy.stats
import torch
from interval_coverage import CLASSES, of_files
from scipy.stats import binomtest

from mast.evaluation.accuracy import (
    accuracies,
    accuracy,
    chance_level,
    class_mean_interval,
    class_weights,
    correct_within,
)
from mast.evaluation.calibration import BINS, calibrate, calibration_error, fit_temperature
from mast.evaluation.intervals import (
    BOOTSTRAP,
    OF_FILES,
    STUDENT,
    TANGO,
    WILSON,
    Measured,
    difference_interval,
    effective_images,
    mean_interval,
    percentiles,
    resampled_means,
    student_interval,
    tango,
    wilson,
)


@pytest.mark.parametrize("n", [1, 7, 100])
def test_a_proportion_is_that_of_scipy(n: int) -> None:
    for right in range(n + 1):
        expected = binomtest(right, n).proportion_ci(method="wilson")
        low, high = wilson(right, n)
        assert (low, high) == pytest.approx((expected.low, expected.high))
        assert low <= right / n <= high


@pytest.mark.parametrize(
    ("gained", "lost", "n", "low", "high"),
    [
        (9, 3, 32, -0.027, 0.390),  # Tango, 1998
        (16, 8, 86, -0.020, 0.207),  # Agresti and Min, 2005
        (1, 7, 21, -0.517, -0.026),  # Fagerland, Lydersen and Laake, 2014
    ],
)
def test_published_intervals_of_a_paired_difference(
    gained: int, lost: int, n: int, low: float, high: float
) -> None:
    assert tango(gained, lost, n) == pytest.approx((low, high), abs=5e-4)


def test_a_paired_difference_at_the_edges() -> None:
    bound = 1.959964**2 / (50 + 1.959964**2)  # no unit differs: Wilson's interval of none of 50
    assert tango(0, 0, 50) == pytest.approx((-bound, bound))
    assert wilson(0, 50)[1] == pytest.approx(bound)
    low, high = tango(50, 0, 50)
    assert 0.8 < low < high == 1
    low, high = tango(3, 9, 40)
    assert tango(9, 3, 40) == pytest.approx((-high, -low))
    for lost, won in ((6, 7), (12, 14)):  # all differ, in weights that are rounded
        label_N = torch.tensor([0] * lost + [1] * won)
        weight_N, gain_N = class_weights(label_N).float(), 2.0 * label_N - 1
        interval = difference_interval(gain_N * weight_N, 0, weight_N=weight_N)
        assert interval.low < 0 < interval.high


def test_it_leaves_out_zero_where_mcnemar_rejects() -> None:
    for gained, lost in itertools.product(range(15), repeat=2):
        low, high = tango(gained, lost, 40)
        assert low <= (gained - lost) / 40 <= high
        statistic = abs(gained - lost) / math.sqrt(max(gained + lost, 1))
        assert (low > 0 or high < 0) == (statistic > 1.959964)


def numbers(stream: Iterable[Measured]) -> dict[str, float]:
    return {name: value for name, value in stream if isinstance(value, float)}


def test_ties_count_their_expectation() -> None:
    scores = torch.zeros(4, 8)
    assert correct_within(scores, torch.arange(4), k=1).tolist() == [1 / 8] * 4
    scores[:, 7] = 1  # one place is taken; four are drawn from seven
    assert correct_within(scores, torch.arange(4), k=5).tolist() == pytest.approx([4 / 7] * 4)


def test_chance_is_what_a_constant_guess_reaches() -> None:
    labels = torch.tensor([0] * 6 + [1, 1, 2, 3, 4, 5, 6, 7, 9])  # of fifteen images; none of 8
    assert chance_level(labels, "top1") == pytest.approx(100 * 6 / 15)
    assert chance_level(labels, "top5") == pytest.approx(100 * (6 + 2 + 3) / 15)
    assert chance_level(labels, "mean_per_class") == pytest.approx(100 / 9)
    for guess in (0, 1, 7):  # in mean per class, all constant guesses are worth the same
        scores = torch.eye(10)[torch.full((15,), guess)]
        assert accuracy(scores, labels, "mean_per_class") == pytest.approx(100 / 9)
    found = numbers(accuracies("class", torch.zeros(15, 10), labels, 0, 10))
    for measure in ("top1", "top5", "mean_per_class"):
        assert found[f"class/by_chance/{measure}"] == chance_level(labels, measure)
    assert "class/top5" not in numbers(
        accuracies("class", torch.rand(9, 9), torch.arange(9), 0, 10)
    )


def test_proportions_of_images_have_score_intervals_and_other_means_those_of_the_bootstrap() -> (
    None
):
    right = torch.ones(100)
    assert mean_interval(right, seed=0) == (*wilson(100, 100), WILSON)  # no bootstrap: 100 to 100 %
    right[:3] = 0
    assert mean_interval(right, seed=0) == (*wilson(97, 100), WILSON)
    assert difference_interval(right.roll(2) - right, seed=0) == (*tango(2, 2, 100), TANGO)
    assert difference_interval(right - 1, seed=0) == (*tango(0, 3, 100), TANGO)
    shares = torch.ones(100)
    shares[0] = 0.5  # two classes are tied, or one of two copies is right
    assert mean_interval(shares, 3) == (*percentiles(resampled_means(shares, 3)), BOOTSTRAP)
    # A bootstrap of units that are alike draws nothing else.
    assert mean_interval(torch.tensor([0.25] * 24), 0) == (*wilson(6, 24), WILSON)
    assert difference_interval(torch.tensor([-0.5]), 0) == (*tango(0, 0.5, 1), TANGO)
    gains = shares - 0.5
    assert difference_interval(gains, 3) == (*percentiles(resampled_means(gains, 3)), BOOTSTRAP)


@pytest.mark.parametrize(
    ("p", "name"), [(0.5, "50 of 1, 10 of 20"), *((0.99, of) for of in CLASSES)]
)
def test_coverage_of_a_mean_per_class(p: float, name: str) -> None:
    """Also of classes with a single image; the bootstrap over all images has 22 to 95 %."""
    labels_N = torch.arange(len(CLASSES[name])).repeat_interleave(torch.tensor(CLASSES[name]))
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(300):
        credit_N = (torch.rand(len(labels_N), generator=generator) < p).double()
        low, high, _ = class_mean_interval(credit_N, labels_N)
        mean = float((credit_N * class_weights(labels_N)).mean())
        assert low - 1e-9 <= mean <= high + 1e-9
        assert low < high
        covered += low <= p <= high
    assert covered / 300 > 0.91


def test_a_difference_in_the_mean_per_class_weighs_images() -> None:
    labels_N = torch.arange(300) % 3  # alike: what it is of images
    weight_N = class_weights(labels_N)
    gain_N = torch.zeros(300)
    gain_N[:20], gain_N[20:26] = 1, -1
    expected = (*tango(20, 6, 300), TANGO)
    assert difference_interval(gain_N * weight_N, 0, weight_N=weight_N) == pytest.approx(expected)
    # Of ten images of a rare class eight changed: 40 % of the mean, with the variance of 20 images.
    weight_N, gain_N = class_weights((torch.arange(510) < 10).long()), torch.zeros(510)
    none = difference_interval(gain_N, 0, weight_N=weight_N)
    gain_N[:8] = 1
    found = difference_interval(gain_N * weight_N, 0, weight_N=weight_N)
    assert found[:2] == pytest.approx(tango(8, 0, 20))
    assert none[:2] == pytest.approx(tango(0, 0, 4 / (1 / 10 + 1 / 500)))


def test_pieces_of_files_by_hand() -> None:
    """Of F files of one size, all right, are F + 1 images, but that Student's t is wider."""
    files_N = torch.arange(12).repeat_interleave(36) * 7  # numbered with gaps
    wider = (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, 11)) ** 2
    assert effective_images(torch.ones(432), files_N) == pytest.approx((13, 12))
    low, high, method = mean_interval(torch.ones(432), 0, files_N=files_N)
    assert (low, high) == pytest.approx(wilson(13 * wider, 13 * wider))
    assert method == "Wilson of files"
    # A file of which all is wrong is one of 14 that count, whatever the number of its tiles.
    value_N = (files_N > 0).double()
    share = 12 / 14
    variance = 14 / 13 * (12 * (1 - share) ** 2 + 2 * share**2) / 14**2
    assert effective_images(value_N, files_N)[0] == pytest.approx(share * (1 - share) / variance)
    # One file says little of others; of two tiles that are no more alike than others each counts.
    one_N = torch.zeros(36, dtype=torch.long)
    assert mean_interval(torch.ones(36), 0, files_N=one_N)[:2] == pytest.approx(wilson(1, 1))
    assert difference_interval(torch.ones(36), 0, files_N=one_N)[:2] == pytest.approx(
        tango(1, 0, 1)
    )
    many, _ = effective_images((torch.arange(4000) % 2).double(), torch.arange(4000) // 2)
    assert many == 4000


def test_other_means_and_differences_over_files_have_students_t() -> None:
    generator = torch.Generator().manual_seed(0)
    files_N, gain_N = torch.arange(432) // 36, torch.randn(432, generator=generator) / 10
    expected = scipy.stats.ttest_1samp(gain_N.view(12, 36).mean(1), 0).confidence_interval(0.95)
    found = difference_interval(gain_N, 0, files_N=files_N)
    assert found == (pytest.approx(expected.low), pytest.approx(expected.high), STUDENT + OF_FILES)
    found = mean_interval(gain_N + 0.5, 0, files_N=files_N)
    assert found[:2] == pytest.approx((0.5 + expected.low, 0.5 + expected.high))
    # Files that gain alike: as many images as there are files.
    same = difference_interval(torch.zeros(432), 0, files_N=files_N)
    assert same == (*tango(0, 0, 12), TANGO + OF_FILES)
    # A file that is larger counts more, and leaves fewer degrees of freedom.
    weights = torch.tensor([1.0] * 216 + [3.0] * 216) / 2
    assert difference_interval(gain_N * weights, 0, files_N=files_N, weight_N=weights).high > 0


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_coverage_over_pieces_of_files(alike: float) -> None:
    """Intervals that take tiles for independent hold the truth in 20 to 40 % of all draws."""
    for of, covered in of_files(0.9, alike, 12, 36, vary=True, simulations=150).items():
        assert covered["files"] > 92, of
        assert (covered["pieces"] < 60) is (alike > 0)


def test_an_interval_over_draws_is_that_of_scipy() -> None:
    value_D = torch.tensor([0.71, 0.68, 0.75, 0.7, 0.69], dtype=torch.float64)
    expected = scipy.stats.ttest_1samp(value_D.numpy(), 0).confidence_interval(0.95)
    *found, method = student_interval(value_D, least=0)
    assert (found, method) == (pytest.approx([expected.low, expected.high]), STUDENT)
    near = torch.tensor([1.0, 1.0, 0.9])
    assert student_interval(near, least=0).high == 1
    assert student_interval(-near, least=-1).low == -1
    for none in (value_D[:1], torch.ones(10)):
        assert student_interval(none, least=0) is None


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
