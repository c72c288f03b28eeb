"""The generated sets: the same everywhere, balanced, independent."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from mast.core.errors import UserError
from mast.data import Factors, Toys, open_source
from mast.data.generated import SPLITS

SETS = (Factors, Toys)
sets = pytest.mark.parametrize("build", SETS)
tasks = pytest.mark.parametrize(("build", "task"), [(s, task) for s in SETS for task in s.tasks])


@sets
def test_same_index_gives_the_same_pixels_whatever_the_count(build):
    small, large = build("train", 20), build("train", 500)
    for index in (0, 7, 19):
        np.testing.assert_array_equal(small.load(index), large.load(index))
    for task in build.tasks:
        np.testing.assert_array_equal(small.targets[task], large.targets[task][:20])


@pytest.mark.parametrize(
    ("build", "drawing", "mean", "signed"),
    [
        (Factors, 2, (116.368, 115.674, 116.431), 26924),
        (Toys, 2, (127.670, 126.259, 127.664), 39089),
    ],
)
def test_pixels_are_pinned(build, drawing, mean, signed):
    """Another machine, another day: the same set. New pixels need a new `drawing`."""
    assert build.drawing == drawing
    pixels = np.stack([build("test").load(index) for index in range(32)]).astype(np.int64)
    np.testing.assert_allclose(pixels.mean((0, 1, 2)), mean, atol=0.05)
    # every pixel with a sign of its own; a few may round the other way elsewhere
    signs = np.random.default_rng(0).integers(-1, 2, pixels.shape)
    assert abs((signs * pixels).sum() - signed) <= 20


@tasks
def test_balanced(build, task):
    for count in (100, 2048):
        counts = np.bincount(build("val", count).targets[task], minlength=len(build.tasks[task]))
        assert counts.max() - counts.min() <= 1


@sets
@pytest.mark.parametrize(("first", "second"), list(combinations(Factors.tasks, 2)))
def test_independent(build, first, second):
    source = build("train")
    table = np.zeros((len(build.tasks[first]), len(build.tasks[second])))
    np.add.at(table, (source.targets[first], source.targets[second]), 1)
    assert chi2_contingency(table).pvalue > 1e-3


@sets
def test_splits_share_no_image(build):
    images = {build(split).load(index).tobytes() for split in SPLITS for index in range(50)}
    assert len(images) == 150


@tasks
def test_only_the_named_factor_changes_between_classes(build, task):
    """Every class of a task is drawn differently under the same chance."""
    labels = dict.fromkeys(build.tasks, 0)
    drawn = [
        build.draw(labels | {task: number}, 48, np.random.default_rng(5)).astype(float)
        for number in range(len(build.tasks[task]))
    ]
    for one, other in combinations(drawn, 2):
        assert np.abs(one - other).mean() > 0.2


@sets
def test_flip_swaps_the_diagonals(build):
    """The eye's quadrant moves with a flip: nothing that is invariant to it can tell them apart."""
    labels = dict.fromkeys(build.tasks, 0) | {"position": 4}
    random = np.random.default_rng
    for number, (right, lower) in enumerate([(1, 1), (0, 1), (0, 0), (1, 0)]):
        image = build.draw(labels | {"orientation": number}, 96, random(1)).astype(float)
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
        ("toys", "toys@train", 8192),
        ("toys@val:64", "toys@val", 64),
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
        ("toys@tset", "unknown split of toys"),
        ("toys@train:many", "expected toys, toys@test or"),
    ],
)
def test_wrong_spec(spec, message):
    with pytest.raises(UserError, match=message):
        open_source(spec)
