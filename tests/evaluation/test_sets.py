"""Splits for tuning, and sets that do not fit together."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_evaluation import tiny_set

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.evaluation.labelled_sets import (
    EvaluationData,
    cross_validation,
    hold_out,
    labelled_images,
    tasks,
)
from mast.evaluation.protocols.learn import one_task

MakeSet = Callable[..., CanvasSet]


def test_a_cross_validation_holds_each_image_out_once() -> None:
    labels = np.array([0] * 20 + [1] * 7 + [2])
    splits = cross_validation(labels, seed=0)
    assert len(splits) == 5
    held = np.concatenate([held for _, held in splits])
    assert sorted(held) == list(range(27))  # the only one of its class is always fitted
    for fitted, held in splits:
        assert sorted([*fitted, *held]) == list(range(28))
        assert (labels[held] == 0).sum() == 4
        assert 1 <= (labels[held] == 1).sum() <= 2
    again = cross_validation(labels, seed=0)
    assert all(np.array_equal(one[1], other[1]) for one, other in zip(splits, again, strict=True))
    assert len(cross_validation(np.array([0, 0, 1, 1]), seed=0)) <= 4  # none without an image


def test_small_sets_without_validation_are_cross_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    train, val, test = (tiny_set(per_class, seed=per_class) for per_class in (40, 20, 10))
    task, *_ = tasks(EvaluationData(train, None, test, 16), seed=0)
    assert len(task.splits) == 5
    chosen, *_ = tasks(EvaluationData(train, val, test, 16), seed=0)
    assert [len(part) for part in chosen.splits[0]] == [len(train), len(val)]
    monkeypatch.setattr("mast.evaluation.labelled_sets.FEW", len(train))
    large, *_ = tasks(EvaluationData(train, None, test, 16), seed=0)
    assert large.splits == ((large.fit_F, large.choose_V),)


def test_images_without_a_label_are_left_out_or_the_labels_that_few_have(
    make_set: MakeSet, caplog: pytest.LogCaptureFixture
) -> None:
    whole = make_set(4)
    assert labelled_images(whole) is whole
    class_N, bright_N = (whole.targets[task].copy() for task in ("class", "bright"))
    class_N[3] = -1
    some = labelled_images(replace(whole, targets={"class": class_N}))
    assert some.identifiers == [*np.delete(whole.identifiers, 3)]
    assert some.targets["class"].tolist() == np.delete(class_N, 3).tolist()
    assert f"1 of 12, the first is {whole.identifiers[3]}" in caplog.text
    one = labelled_images(replace(whole, targets={"class": class_N, "bright": bright_N}))
    assert (len(one), list(one.targets)) == (12, ["bright"])
    assert "left out: class" in caplog.text
    bright_N[:] = -1  # nothing is left to learn from, which is refused later
    assert len(labelled_images(replace(whole, targets={"bright": bright_N}))) == 12


def relabelled(canvases: CanvasSet, labels: np.ndarray) -> CanvasSet:
    return replace(canvases, targets={"class": labels.astype(np.int64)})


def renamed(canvases: CanvasSet, *names: str) -> CanvasSet:
    return replace(canvases, classes={"class": names, "bright": ("no", "yes")})


def first_of_each(canvases: CanvasSet) -> CanvasSet:
    label_N = canvases.targets["class"]
    return canvases.subset([int(np.argmax(label_N == label)) for label in range(3)])


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (None, lambda test: replace(test, targets={}),
         "no label to predict in all sets: train .* has class, bright; test .* no lab"),
        (None, lambda test: renamed(test, "color0", "color1", "green"),
         "test has images of 'green', but train has none"),
        (lambda train: relabelled(train, train.targets["class"] % 2), None,
         "test has images of 'color2', but train has none"),
        (lambda train: relabelled(train, train.targets["class"] * 0), None,
         r"every training image has the same 'class' \(color0\)"),
        (first_of_each, None, "Give a validation set"),
    ],
)  # fmt: skip
def test_sets_that_do_not_fit(
    make_set: MakeSet,
    train: Callable[[CanvasSet], CanvasSet] | None,
    test: Callable[[CanvasSet], CanvasSet] | None,
    message: str,
) -> None:
    sets = make_set(10), make_set(5, seed=2)
    first, other = (each if spoil is None else spoil(each)
                    for each, spoil in zip(sets, (train, test), strict=True))  # fmt: skip
    with pytest.raises(UserError, match=message):
        tasks(EvaluationData(first, None, other, 16), seed=0)


def test_a_part_may_lack_a_class_and_number_the_others_otherwise(make_set: MakeSet) -> None:
    train, test = make_set(10), make_set(5, seed=2)
    label_N = test.targets["class"]
    some_N, kept_N = np.flatnonzero(label_N), label_N[label_N > 0]
    part = replace(
        test.part(some_N), targets={"class": 2 - kept_N}, classes={"class": ("color2", "color1")}
    )
    task = one_task(EvaluationData(train, part, part, 16), None, 0)
    assert task.classes == ("color0", "color1", "color2")
    assert task.pool_labels_N[len(train) :].tolist() == kept_N.tolist()
    (tested,) = tasks(EvaluationData(train, None, part, 16), 0)
    assert tested.test_labels_M.tolist() == kept_N.tolist()


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=2, max_size=40))
def test_groups_of_any_classes_are_never_parted(images: list[tuple[int, int]]) -> None:
    """Nor is a class held out of which nothing is fitted."""
    groups, labels = np.array(images).T
    folds = cross_validation(labels, 0, groups_N=groups)
    assert len({*chain(*(held for _, held in folds))}) == sum(len(held) for _, held in folds)
    for fitted, held in [hold_out(labels, 0, groups_N=groups), *folds]:
        assert sorted([*fitted, *held]) == list(range(len(images)))
        assert not {*groups[fitted]} & {*groups[held]}
        assert {*labels[held]} <= {*labels[fitted]}
