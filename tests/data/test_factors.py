"""The generated set: the same everywhere, balanced, independent."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from mast.core.errors import UserError
from mast.data import Factors, open_source
from mast.data.factors import CLASSES, draw


def test_same_index_gives_the_same_pixels_whatever_the_count():
    small, large = Factors("train", 20), Factors("train", 500)
    for index in (0, 7, 19):
        np.testing.assert_array_equal(small.load(index), large.load(index))
    for task in CLASSES:
        np.testing.assert_array_equal(small.targets[task], large.targets[task][:20])


def test_pixels_are_pinned():
    """Another machine, another day: the same set. Raise `_DRAWING` when this must change."""
    mean = np.mean([Factors("test").load(index).mean((0, 1)) for index in range(32)], 0)
    np.testing.assert_allclose(mean, (116.368, 115.674, 116.431), atol=0.05)


@pytest.mark.parametrize("task", CLASSES)
def test_balanced(task):
    for count in (100, 2048):
        counts = np.bincount(Factors("val", count).targets[task], minlength=len(CLASSES[task]))
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("first", "second"), list(combinations(CLASSES, 2)))
def test_independent(first, second):
    source = Factors("train")
    table = np.zeros((len(CLASSES[first]), len(CLASSES[second])))
    np.add.at(table, (source.targets[first], source.targets[second]), 1)
    assert chi2_contingency(table).pvalue > 1e-3


def test_splits_share_no_image():
    images = {Factors(split).load(index).tobytes()
              for split in ("train", "val", "test") for index in range(50)}  # fmt: skip
    assert len(images) == 150


@pytest.mark.parametrize("task", CLASSES)
def test_only_the_named_factor_changes_between_classes(task):
    """Every class of a task is drawn differently under the same chance."""
    labels = dict.fromkeys(CLASSES, 0)
    drawn = [
        draw(labels | {task: number}, 48, np.random.default_rng(5)).astype(float)
        for number in range(len(CLASSES[task]))
    ]
    for one, other in combinations(drawn, 2):
        assert np.abs(one - other).mean() > 0.2


def test_flip_swaps_the_diagonals():
    """The eye's quadrant moves with a flip: nothing that is invariant to it can tell them apart."""
    labels = dict.fromkeys(CLASSES, 0) | {"position": 4}
    random = np.random.default_rng
    for number, (right, lower) in enumerate([(1, 1), (0, 1), (0, 0), (1, 0)]):
        image = draw(labels | {"orientation": number}, 96, random(1)).astype(float)
        eye_y, eye_x = np.nonzero(image.min(-1) > 220)  # only the eye is white
        object_y, object_x = np.nonzero(image[..., 0] - image[..., 1] > 60)
        assert (eye_x.mean() > object_x.mean()) == bool(right)
        assert (eye_y.mean() > object_y.mean()) == bool(lower)


@pytest.mark.parametrize(
    ("spec", "name", "count"),
    [
        ("factors", "factors@train", 8192),
        ("factors@test", "factors@test", 2048),
        ("factors@train:64", "factors@train", 64),
    ],
)
def test_spec(spec, name, count):
    source = open_source(spec)
    assert (source.name, len(source)) == (name, count)
    assert source.load(0).shape == (48, 48, 3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("factors@trian", "Did you mean 'train'"),
        ("factors@train:0", "count of 1 or more"),
        ("factors@train:many", "expected factors, factors@test or"),
    ],
)
def test_wrong_spec(spec, message):
    with pytest.raises(UserError, match=message):
        open_source(spec)
