"""Sets that other libraries know by name."""

import pickle
import sys
from contextlib import suppress

import numpy as np
import pytest
import torchvision.datasets
from PIL import Image
from tiny import Attack
from torchvision.datasets import CIFAR10

from mast.core.errors import UserError
from mast.data import DataConfig, open_canvas, open_source
from mast.data.registry import describe
from mast.data.source import unique_names


def test_torchvision_set(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(torchvision.datasets.Tiny, "classes", ("crane", "crane"))
    with pytest.raises(UserError, match=r"Tiny in .*not found.*allow the download"):
        open_source("torchvision:Tiny@train", root=tmp_path)
    source = open_source("torchvision:Tiny", root=tmp_path, download=True)
    assert source.name == "torchvision:Tiny@train"
    assert source.load(2).tolist() == np.full((3, 6, 3), 2).tolist()
    assert source.targets["class"].tolist() == [0, 1, 1, 0]
    assert source.classes == {"class": ("crane (0)", "crane (1)")}
    test = open_source("torchvision:Tiny@test", root=tmp_path)
    assert (len(test), test.fingerprint() != source.fingerprint()) == (2, True)
    config = DataConfig("torchvision:Tiny@test", root=tmp_path, cache=tmp_path / "cache")
    assert open_canvas(config, 8).aspect_N.tolist() == [2.0, 2.0]
    unlabelled = open_source("torchvision:FakeData")  # which has no root either
    assert (len(unlabelled), unlabelled.targets) == (1000, {})
    assert unlabelled.load(0).shape == (224, 224, 3)


def test_classes_of_one_name_have_their_numbers():
    assert unique_names(["a", "a (1)", "a"]) == ("a (0)", "a (1)", "a (2)")
    assert len(set(unique_names(["a", "a", "a (0)"]))) == 3
    assert unique_names(["\ud800", "\\ud800"]) == ("\\ud800 (0)", "\\ud800 (1)")


def test_hugging_face_set(hub, tmp_path):
    for download in (False, True):
        source = open_source("hf:someone/pets@test", root=tmp_path, download=download)
    assert hub == [("someone/pets", "test", True), ("someone/pets", "test", False)]
    assert len(source) == 2
    assert source.targets["label"].tolist() == [1, 0]
    assert source.classes == {"label": ("cat", "dog")}
    assert source.load(1)[0, 0].tolist() == [1, 2, 3]
    assert source.canvas(0, 4)[1] == 2.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody/nothing", "no such set.*allow the download"),
        ("words", "expected a column of images"),
    ],
)
def test_hugging_face_set_that_cannot_be_used(hub, tmp_path, name, message):
    with pytest.raises(UserError, match=message):
        open_source(f"hf:{name}", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "classes", "labels"),
    [
        ("hidden", ("cat", "dog"), [0, 1]),
        ("null", ("cat", "dog"), [1, -1, 0, -1]),
        ("numbers", ("0", "1", "2"), [2, -1, 0, -1]),
        ("two", ("cat", "dog"), [1, -1, 0, 0]),
        ("lists", ("cat", "dog"), [[0, 1], [0, 0], [-1, -1], [1, 1]]),
        ("texts", ("cat", "dog"), [[0, 1], [0, 0], [-1, -1], [1, 1]]),
    ],
)
def test_labels_of_any_kind_are_labels(hub, tmp_path, caplog, name, classes, labels):
    source = open_source(f"hf:{name}@train", root=tmp_path)
    assert source.classes == {"label": classes}
    ((task, found),) = {**source.targets, **source.multilabels}.items()
    assert (task, found.tolist()) == ("label", labels)
    assert ("breed" in caplog.text) == (name == "hidden")  # no label of which is known


@pytest.mark.parametrize(
    ("splits", "parts"),
    [
        ("train validation", {"train": "train", "val": "validation"}),
        ("train test validation", {"train": "train", "val": "validation", "test": "test"}),
        ("Training dev TEST extra", {"train": "Training", "val": "dev", "test": "TEST"}),
        ("full", {"all": "full"}),
        ("train", {"all": "train"}),
        ("train unlabeled", {"all": "train"}),
    ],
)
def test_splits_of_a_hub_set_are_parts_as_folders_are(hub, tmp_path, splits, parts):
    name = f"hf:of {splits}"
    found = describe(f"{name}#photo", tmp_path).parts
    assert found == {part: f"{name}@{split}#photo" for part, split in parts.items()}
    open_source(name, root=tmp_path)
    assert hub[-1][1] == next(iter(parts.values()))  # what is learned from


def test_splits_that_are_no_parts_are_named(hub, tmp_path):
    for splits in ("french german", "train_a train_b test_a test_b"):
        with pytest.raises(UserError, match=splits.replace(" ", ", ")):
            describe(f"hf:of {splits}", tmp_path)


def test_the_column_of_images_is_chosen_by_name_or_named(hub, tmp_path, caplog):
    assert open_source("hf:two@test", root=tmp_path).load(0)[0, 0].tolist() == [9, 8, 7]
    assert "column image, not mask" in caplog.text
    with pytest.raises(UserError, match=r"mask, photo; .*hf:three@test#mask"):
        open_source("hf:three@test", root=tmp_path)
    for spec in describe("hf:three#photo").parts.values():
        assert open_source(spec, root=tmp_path).load(0)[0, 0].tolist() == [9, 8, 7]
    with pytest.raises(UserError, match="Choose from: mask, photo"):
        open_source("hf:three@test#foto", root=tmp_path)


def test_a_folder_of_hugging_face_runs_no_code(tmp_path):
    """Neither a script of its own name, as earlier versions ran, nor a pickle."""
    pytest.importorskip("datasets")
    folder, trap = tmp_path / "pets", tmp_path / "executed"
    (folder / "cat").mkdir(parents=True)
    Image.new("RGB", (6, 3)).save(folder / "cat" / "a.png")
    (folder / "pets.py").write_text(f"open({str(trap)!r}, 'w')")
    (folder / "README.md").write_text("---\ntrust_remote_code: true\nbuilder_name: pandas\n---\n")
    (folder / "train.pkl").write_bytes(pickle.dumps(Attack(trap)))
    with suppress(UserError):  # a version may refuse the script
        open_source(f"hf:{folder}", root=tmp_path / "root")
    assert not trap.exists()


def test_what_torchvision_would_execute_is_not_opened(tmp_path, monkeypatch):
    trap = tmp_path / "executed"
    for file in (CIFAR10.train_list[0][0], CIFAR10.meta["filename"]):
        place = tmp_path / CIFAR10.base_folder / file
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(pickle.dumps(Attack(trap)))
    for name in ("CIFAR10", "CIFAR100", "LSUN"):
        with pytest.raises(UserError, match=f"torchvision's {name}"):
            open_source(f"torchvision:{name}", root=tmp_path)
    assert not trap.exists()


def test_hugging_face_without_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'mast-ssl\[hf\]'"):
        open_source("hf:someone/pets", root=tmp_path)
