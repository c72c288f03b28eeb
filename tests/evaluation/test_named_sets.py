"""A folder with a subfolder per class and no parts: split by class and seed, or learned from."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.data import open_canvas
from mast.data.pieces import file_of
from mast.evaluation.labelled_sets import EvaluationData, image_identity, tasks
from mast.evaluation.named_sets import NamedSets
from mast.evaluation.result import Result
from paper.protocols.detection.data import ObjectData


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
    with pytest.raises(UserError, match="has no test and no train folder"):
        NamedSets(photos / "train").open(ObjectData, 32)
    with pytest.raises(UserError, match="has no train folder: give train"):
        NamedSets(photos / "train", test=photos / "test").open(EvaluationData, 32)
    with pytest.raises(UserError, match="has no train folder: give train"):
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
