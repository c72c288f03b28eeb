"""Sets as users name them, their splits for tuning, and sets that do not fit together."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tiny_evaluation import tiny_set

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.data import CanvasSet, open_canvas
from mast.data.pieces import file_of
from mast.evaluation.labelled_sets import (
    EvaluationData,
    cross_validation,
    hold_out,
    image_identity,
    labelled_images,
    one_task,
    tasks,
)
from mast.evaluation.named_sets import NamedSets
from mast.evaluation.result import Result
from paper.protocols.detection.data import ObjectData


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
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = tiny_set(4)
    assert labelled_images(whole) is whole
    class_N, bright_N = (whole.targets[task].copy() for task in ("class", "bright"))
    class_N[3] = -1
    some = labelled_images(replace(whole, targets={"class": class_N}))
    assert some.identifiers == [*np.delete(whole.identifiers, 3)]
    assert some.targets["class"].tolist() == np.delete(class_N, 3).tolist()
    assert f"1 of 12, the first is {whole.identifiers[3]}" in caplog.text
    one = labelled_images(replace(whole, targets={"class": class_N, "bright": bright_N}))
    assert (len(one), list(one.targets)) == (12, ["bright"])
    assert "which are left out: class" in caplog.text
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
         "share a kind of label, .* got none: train .* has class, bright; test .* no lab"),
        (None, lambda test: renamed(test, "color0", "color1", "green"),
         "test: expected only values of 'class' that train has, got 'green'"),
        (lambda train: relabelled(train, train.targets["class"] % 2), None,
         "test: expected only values of 'class' that train has, got 'color2'"),
        (lambda train: relabelled(train, train.targets["class"] * 0), None,
         "train: expected at least two classes of 'class', got only color0"),
        (first_of_each, None, "give a validation set"),
    ],
)  # fmt: skip
def test_sets_that_do_not_fit(
    train: Callable[[CanvasSet], CanvasSet] | None,
    test: Callable[[CanvasSet], CanvasSet] | None,
    message: str,
) -> None:
    sets = tiny_set(10), tiny_set(5, seed=2)
    first, other = (each if spoil is None else spoil(each)
                    for each, spoil in zip(sets, (train, test), strict=True))  # fmt: skip
    with pytest.raises(UserError, match=message):
        tasks(EvaluationData(first, None, other, 16), seed=0)


def test_a_part_may_lack_a_class_and_number_the_others_otherwise() -> None:
    train, test = tiny_set(10), tiny_set(5, seed=2)
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


def divided(folder: Path, seed: int = 0) -> EvaluationData:
    return NamedSets(folder).open(EvaluationData, 32, seed)


def fill(root: Path, *paths: str) -> None:
    for number, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(root / path)


def test_val_is_tested_where_there_is_no_test(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, *(f"{p}/{c}/{n}.png" for p in ("train", "val") for c in "ab" for n in "12345"))
    data = NamedSets(tmp_path).open(EvaluationData, 32)
    assert (len(data.train), len(data.test), data.val) == (10, 10, None)
    assert f"{tmp_path}/val is tested" in caplog.text


def test_a_split_is_by_class_and_seed(photos: Path) -> None:
    folder = photos / "train"
    data, again, other = divided(folder), divided(folder), divided(folder, seed=1)
    learned, tested = set(data.train.identifiers), set(data.test.identifiers)
    whole = open_canvas(folder, 32)
    assert learned | tested == set(whole.identifiers)
    assert not learned & tested
    assert np.bincount(data.test.targets["class"]).tolist() == [3, 3, 3]  # of 16 each
    assert data.fingerprints == again.fingerprints
    assert data.test.identifiers == again.test.identifiers
    assert tested != set(other.test.identifiers)
    assert set(data.fingerprints.values()).isdisjoint(other.fingerprints.values())
    assert data.split == {"by": "class", "share": 0.2, "seed": 0, "of": image_identity(whole)}
    pools = NamedSets(photos).learning(32), NamedSets(photos / "test").learning(32)
    assert [([*of.named], of.whole) for of in pools] == [
        (["train", "val"], False),
        (["train"], True),
    ]


def test_a_result_says_how_it_was_split(
    ours: RunFolder, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", str(ours.path), "--data", str(photos / "train"), "--seed", "3"]
    assert main([*words, "--protocols", "knn"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    note = "9 of 48 images were tested, 20 % of each class, drawn by seed 3; the others were"
    assert note in said
    (file,) = ours.evaluations.glob("knn-*-train-test.json")
    result = Result.read(file)
    whole = image_identity(open_canvas(photos / "train", 32))
    assert result.split == {"by": "class", "share": 0.2, "seed": 3, "of": whole}
    assert result.sizes == {"train": 39, "test": 9}
    assert any(note in text for text in mast.compare(ours.path).notes)
    (usual,) = mast.evaluate(ours.path, photos, "knn")
    assert usual.split == {}
    assert not any("drawn by seed" in text for text in usual.notes())


def test_what_is_no_labelled_folder_is_refused(photos: Path, tmp_path: Path) -> None:
    flat = photos / "train" / "class0"
    for learn in (lambda sets: sets.open(EvaluationData, 32), lambda sets: sets.learning(32)):
        with pytest.raises(UserError, match="has no labels"):
            learn(NamedSets(flat))
        fill(tmp_path / "vehicles", "train/1.png", "ship/1.png")
        with pytest.raises(UserError, match="subfolders train among 2"):
            learn(NamedSets(tmp_path / "vehicles"))
        fill(tmp_path / "pets", *(f"{a}/{b}/1.png" for a in ("cat", "dog") for b in ("l", "r")))
        with pytest.raises(UserError, match=r"cat, dog.* the subfolders l, r"):
            learn(NamedSets(tmp_path / "pets"))
    with pytest.raises(UserError, match=r"test and train: expected .* has none"):
        NamedSets(photos / "train").open(ObjectData, 32)
    with pytest.raises(UserError, match=r"^train: expected labeled images, got .* has none"):
        NamedSets(photos / "train", test=photos / "test").open(EvaluationData, 32)
    with pytest.raises(UserError, match=r"^train: expected labeled images, got only test"):
        NamedSets(test=photos / "test").learning(32)


def test_tiles_of_one_scene_are_learned_from_or_tested(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(10):
        file = tmp_path / "scenes" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (32, 48, 3), np.uint8)).save(file)
    data = NamedSets(f"{tmp_path / 'scenes'}#tile=16").open(EvaluationData, 32)
    scenes = [{file_of(name) for name in part.identifiers} for part in (data.train, data.test)]
    assert list(map(len, scenes)) == [8, 2]
    assert not scenes[0] & scenes[1]
    assert (len(data.train), len(data.test)) == (48, 12)
    (task,) = tasks(data, 0)
    assert task.test_files_M.bincount().tolist() == [6, 6]
    for fit, choose in [(task.fit_F, task.choose_V), *task.folds]:
        names = [{file_of(data.train.identifiers[at]) for at in part} for part in (fit, choose)]
        assert names[1]
        assert not names[0] & names[1]
