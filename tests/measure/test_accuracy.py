"""Top-k with ties, mean per class, intervals and by which method they are found."""

from collections.abc import Iterable

import pytest
import torch

from mast.measure.accuracy import accuracies, accuracy, chance_level, correct_within
from mast.measure.bootstrap import (
    BOOTSTRAP,
    TANGO,
    WILSON,
    Measured,
    difference_interval,
    mean_interval,
    measured,
    percentiles,
    resampled_means,
)
from mast.measure.proportions import tango, wilson


def numbers(stream: Iterable[Measured]) -> dict[str, float]:
    return {name: value for name, value in stream if isinstance(value, float)}


def test_hits_without_ties() -> None:
    scores = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    assert correct_within(scores, torch.tensor([2, 0]), k=1).tolist() == [0, 1]
    assert correct_within(scores, torch.tensor([2, 0]), k=2).tolist() == [1, 1]


def test_ties_count_their_expectation() -> None:
    scores = torch.zeros(4, 8)
    assert correct_within(scores, torch.arange(4), k=1).tolist() == [1 / 8] * 4
    scores[:, 7] = 1  # one place is taken; four are drawn from seven
    assert correct_within(scores, torch.arange(4), k=5).tolist() == pytest.approx([4 / 7] * 4)


def test_mean_per_class_ignores_how_many() -> None:
    scores, labels = torch.eye(5)[[0, 0, 0, 1]], torch.tensor([0, 0, 0, 4])
    assert accuracy(scores, labels, "mean_per_class") == pytest.approx(50)
    assert accuracy(scores, labels, "top1") == pytest.approx(75)


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


def test_bootstrap_interval() -> None:
    credit = (torch.arange(1000) % 5 > 0).float()
    means = resampled_means(credit, seed=3)
    assert torch.equal(means, resampled_means(credit, seed=3))
    assert not torch.equal(means, resampled_means(credit, seed=4))
    low, high = percentiles(means)
    spread = 1.96 * (0.8 * 0.2 / 1000) ** 0.5
    assert low == pytest.approx(0.8 - spread, abs=0.004)
    assert high == pytest.approx(0.8 + spread, abs=0.004)
    assert percentiles(resampled_means(torch.ones(9), seed=0)) == (1, 1)


def test_proportions_of_images_have_score_intervals() -> None:
    right = torch.ones(100)
    assert mean_interval(right, seed=0) == (*wilson(100, 100), WILSON)  # no bootstrap: 100 to 100 %
    right[:3] = 0
    assert mean_interval(right, seed=0) == (*wilson(97, 100), WILSON)
    assert difference_interval(right.roll(2) - right, seed=0) == (*tango(2, 2, 100), TANGO)
    assert difference_interval(right - 1, seed=0) == (*tango(0, 3, 100), TANGO)


def test_other_means_have_the_interval_of_the_bootstrap() -> None:
    shares = torch.ones(100)
    shares[0] = 0.5  # two classes are tied, or one of two copies is right
    assert mean_interval(shares, 3) == (*percentiles(resampled_means(shares, 3)), BOOTSTRAP)
    gains = shares - 0.5
    assert difference_interval(gains, 3) == (*percentiles(resampled_means(gains, 3)), BOOTSTRAP)


def test_the_method_of_each_interval_is_said() -> None:
    scores, labels = torch.rand(40, 12), torch.arange(40) % 12
    said = dict(accuracies("class", scores, labels, seed=0, resamples=20))
    assert [said[f"class/interval/{measure}"] for measure in ("top1", "top5")] == [WILSON] * 2
    assert said["class/interval/mean_per_class"] == BOOTSTRAP
    scores[0] = 0
    said = dict(accuracies("class", scores, labels, seed=0, resamples=20))
    assert said["class/interval/top1"] == BOOTSTRAP
    gains = torch.tensor([1.0, 0, 0, 0])  # none is lost, but it is no proportion
    said = dict(measured("class", "change", gains, 0, 20, difference=True))
    low, high = tango(1, 0, 4)
    assert said["class/interval/change"] == TANGO
    assert (said["class/change_low"], said["class/change_high"]) == (100 * low, 100 * high)


def test_copies_are_drawn_with_their_image() -> None:
    credit = torch.rand(50) < 0.6
    scores = torch.stack([~credit, credit], dim=1).float()
    labels = torch.ones(50, dtype=torch.long)
    once = dict(accuracies("class", scores, labels, seed=0, resamples=200))
    four = accuracies("class", scores.repeat(4, 1), labels.repeat(4), 0, 200, copies=4)
    assert numbers(four) == pytest.approx(numbers(once.items()))


@pytest.mark.parametrize(("classes", "expected"), [(9, False), (10, True)])
def test_top5_from_ten_classes(classes: int, expected: bool) -> None:
    labels = torch.arange(30) % classes
    values = numbers(accuracies("class", torch.rand(30, classes), labels, seed=0, resamples=50))
    assert ("class/top5" in values) is expected
    assert values["class/top1_low"] <= values["class/top1"] <= values["class/top1_high"]


def test_the_interval_of_the_mean_per_class_counts_classes_as_they_are_drawn() -> None:
    # Twenty of one class and two of another, all right: whatever is drawn, all of it is right.
    labels = torch.tensor([0] * 20 + [1] * 2)
    values = numbers(accuracies("class", torch.eye(2)[labels], labels, seed=0, resamples=200))
    ends = [values[f"class/mean_per_class{end}"] for end in ("", "_low", "_high")]
    assert ends == pytest.approx([100, 100, 100])
    # One of the rare two is wrong: a drawn set says 50, 75 or 100, or lacks the class.
    scores = torch.eye(2)[labels]
    scores[-1] = scores[0]
    values = numbers(accuracies("class", scores, labels, seed=0, resamples=200))
    assert values["class/mean_per_class"] == pytest.approx(75)
    assert values["class/mean_per_class_low"] == pytest.approx(50)
    assert values["class/mean_per_class_high"] == pytest.approx(100)
