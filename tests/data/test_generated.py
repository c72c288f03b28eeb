"""The generated sets: the same everywhere, balanced, independent."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from mast.core.errors import UserError
from mast.data import open_source
from mast.data.generated import SPLITS, Factors, Toys

sets = pytest.mark.parametrize("build", [Factors, Toys])


@pytest.mark.parametrize(
    ("build", "mean", "signed"),
    [(Factors, (116.368, 115.674, 116.431), 26924), (Toys, (127.670, 126.259, 127.664), 39089)],
)
def test_pixels_are_pinned(build, mean, signed):
    """Another machine, another day: the same set. New pixels need a new `drawing`."""
    assert build.drawing == 2
    pixels = np.stack([build("test").load(index) for index in range(32)]).astype(np.int64)
    np.testing.assert_allclose(pixels.mean((0, 1, 2)), mean, atol=0.05)
    # every pixel with a sign of its own; a few may round the other way elsewhere
    signs = np.random.default_rng(0).integers(-1, 2, pixels.shape)
    assert abs((signs * pixels).sum() - signed) <= 20
    small = build("test", 20)  # the beginning of a larger one
    for index in (0, 7, 19):
        np.testing.assert_array_equal(small.load(index), pixels[index])
    images = {build(split).load(index).tobytes() for split in SPLITS for index in range(5)}
    assert len(images) == 15


@sets
def test_labels_are_balanced_and_independent(build):
    for task, names in build.tasks.items():
        for count in (100, 2048):
            counts = np.bincount(build("val", count).targets[task], minlength=len(names))
            assert counts.max() - counts.min() <= 1
    source = build("train")
    for first, second in combinations(build.tasks, 2):
        table = np.zeros((len(build.tasks[first]), len(build.tasks[second])))
        np.add.at(table, (source.targets[first], source.targets[second]), 1)
        assert chi2_contingency(table).pvalue > 1e-3


@sets
def test_every_class_of_a_task_is_drawn_differently(build):
    """A flip moves the eye's quadrant: nothing that is invariant to it can tell them apart."""
    labels = dict.fromkeys(build.tasks, 0) | {"position": 4}
    for task, names in build.tasks.items():
        drawn = [
            build.draw(labels | {task: number}, 96, np.random.default_rng(1)).astype(float)
            for number in range(len(names))
        ]
        for one, other in combinations(drawn, 2):
            assert np.abs(one - other).mean() > 0.2
        for image, (right, lower) in zip(drawn, [(1, 1), (0, 1), (0, 0), (1, 0)], strict=False):
            if task == "orientation":
                eye_y, eye_x = np.nonzero(image.min(-1) > 220)  # only the eye is white
                object_y, object_x = np.nonzero(image[..., 0] - image[..., 1] > 60)
                assert (eye_x.mean() > object_x.mean()) == bool(right)
                assert (eye_y.mean() > object_y.mean()) == bool(lower)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("factors", ("factors@train", 8192)),
        ("factors@train:64", ("factors@train", 64)),
        ("toys@test", ("toys@test", 2048)),
        ("factors@trian", "Did you mean 'train'"),
        ("factors@train:0", "count of 1 or more"),
        ("toys@train:many", "expected toys, toys@test or"),
    ],
)
def test_names(spec, expected):
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            open_source(spec)
    else:
        assert (open_source(spec).name, len(open_source(spec))) == expected
