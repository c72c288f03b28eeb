"""Sets by their usual names: fake copies of their layouts on disk, their splits and labels."""

import inspect
import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision
from layouts import picture
from scipy.io import savemat

from mast.core.errors import UserError
from mast.data import open_source
from mast.data.libraries import CATALOGUE, drawn
from mast.data.registry import describe
from mast.evaluation.labelled_sets import EvaluationData


def pictures(folder, *names):
    for shade, name in enumerate(names):
        picture(folder / name, shade=20 * shade)


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


# ------------------------------------------------------------------- layouts, as published


def flowers(root):
    folder = root / "flowers-102"
    pictures(folder / "jpg", *(f"image_{number:05d}.jpg" for number in range(1, 7)))
    savemat(folder / "imagelabels.mat", {"labels": [102, 1, 2, 1, 2, 3]})
    savemat(folder / "setid.mat", {"trnid": [3, 2], "valid": [4, 5], "tstid": [6, 1]})


def cars(root):
    folder = root / "stanford_cars"

    def annotate(file, labels):
        rows = [(f"{at:05d}.jpg", np.uint8(label)) for at, label in enumerate(labels, start=1)]
        file.parent.mkdir(parents=True, exist_ok=True)
        savemat(file, {"annotations": np.array(rows, [("fname", "O"), ("class", "O")])})

    annotate(folder / "devkit" / "cars_train_annos.mat", [2, 1, 3])
    annotate(folder / "cars_test_annos_withlabels.mat", [3, 2])
    names = np.array(["Acura", "BMW", "Fiat"], object)
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names})
    pictures(folder / "cars_train", "00001.jpg", "00002.jpg", "00003.jpg")
    pictures(folder / "cars_test", "00001.jpg", "00002.jpg")


def naturalist(root):
    names = ("00000_Animalia_a_b_c_d_e_f", "00001_Plantae_a_b_c_d_e_g")
    for version, count in (("2021_train_mini", 2), ("2021_valid", 1)):
        for name in names:
            pictures(root / version / name, *(f"{at}.jpg" for at in range(count)))


def places(root):
    # Numbers that are not in the order of the names, as none promises that they are.
    write(root / "categories_places365.txt", "/b/bar 0", "/a/airfield 1")
    write(root / "places365_train_standard.txt", "/b/bar/1.jpg 0", "/a/airfield/2.jpg 1")
    write(root / "places365_val.txt", "val_1.jpg 1", "val_2.jpg 0")
    pictures(root / "data_256_standard", "b/bar/1.jpg", "a/airfield/2.jpg")
    pictures(root / "val_256", "val_1.jpg", "val_2.jpg")


def caltech(root):
    for name, count in (("BACKGROUND_Google", 1), ("accordion", 33), ("yin_yang", 31)):
        folder = root / "caltech101" / "101_ObjectCategories" / name
        folder.mkdir(parents=True)
        for at in range(1, count + 1):
            (folder / f"image_{at:04d}.jpg").touch()


@dataclass(frozen=True)
class Row:
    """A set on disk, with what is expected of it."""

    layout: Any
    labels: dict[str, list[int]]
    classes: tuple[str, ...]
    metric: str = "top1"


ROWS = {
    "Caltech101": Row(
        caltech,
        {"train": [0] * 30 + [1] * 30, "test": [0, 0, 0, 1]},
        ("accordion", "yin_yang"),
        "mean_per_class",
    ),
    "Flowers102": Row(
        flowers,
        {"train": [1, 0], "val": [0, 1], "test": [2, 101]},
        ("pink primrose", "hard-leaved pocket orchid"),
        "mean_per_class",
    ),
    "INaturalist": Row(
        naturalist, {"train": [0, 0, 1, 1], "test": [0, 1]}, ("00000_Animalia_a_b_c_d_e_f",)
    ),
    "Places365": Row(places, {"train": [0, 1], "test": [1, 0]}, ("/b/bar", "/a/airfield")),
    "StanfordCars": Row(cars, {"train": [1, 0, 2], "test": [2, 1]}, ("Acura", "BMW", "Fiat")),
}


@pytest.fixture(autouse=True)
def _no_checksums(monkeypatch):
    """Lets torchvision take files that are only laid out as the published ones are."""
    for module in ("flowers102", "places365"):
        monkeypatch.setattr(
            getattr(torchvision.datasets, module),
            "check_integrity",
            lambda path, md5=None: Path(path).is_file(),
        )


def parts(name, root):
    described = describe(f"torchvision:{name}")
    return {part: open_source(spec, root=root) for part, spec in described.parts.items()}


# ----------------------------------------------------------------------------- every set


@pytest.mark.parametrize("name", ROWS)
def test_splits_labels_and_names(name, tmp_path):
    row = ROWS[name]
    row.layout(tmp_path)
    assert describe(f"torchvision:{name}").metric == row.metric
    found = parts(name, tmp_path)
    labels = {part: source.targets["class"].tolist() for part, source in found.items()}
    assert labels == row.labels
    for part, source in found.items():
        assert source.classes["class"][: len(row.classes)] == row.classes
        assert source.targets["class"].dtype == np.int64
        assert len(source) == len(labels[part])
        if name != "Caltech101":  # whose files are empty here
            assert source.load(0).shape[2] == 3
    assert len({source.fingerprint() for source in found.values()}) == len(found)


def test_catalogue_fits_torchvision(tmp_path):
    for name, usual in CATALOGUE.items():
        parameters = inspect.signature(getattr(torchvision.datasets, name)).parameters
        assert usual.arguments.keys() <= parameters.keys()
        for spec in describe(f"torchvision:{name}").parts.values():
            with pytest.raises(UserError) as caught:  # it is not there; the split is known
                open_source(spec, root=tmp_path)
            assert "nknown" not in str(caught.value)
            assert "alid values" not in str(caught.value)


# ------------------------------------------------------------------------------- splits


def test_drawn_images_are_disjoint_and_always_the_same():
    label_N = np.random.default_rng(1).permutation(np.repeat([0, 1, 2], 20))
    parts = {"train": 9, "val": 4, "test": None}
    positions = {split: drawn("x", split, parts, label_N) for split in parts}
    assert sorted(np.concatenate(list(positions.values()))) == list(range(60))
    assert np.bincount(label_N[positions["val"]]).tolist() == [4, 4, 4]
    assert np.bincount(label_N[positions["test"]]).tolist() == [7, 7, 7]
    again = drawn("x", "train", parts, label_N)
    np.testing.assert_array_equal(again, positions["train"])
    assert not np.array_equal(label_N[again], np.sort(label_N[again]))  # positions ascend
    with pytest.raises(UserError, match=r"expected 21 images or more of class 0 in x, got 20"):
        drawn("x", "train", {"train": 20, "test": None}, label_N)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("CIFAR11@train", "Did you mean 'CIFAR1"),
        ("CIFAR10@val", "unknown split of CIFAR10 'val'"),
        ("DTD@valid", r"Unknown value 'valid' for argument split.*\.$"),
        ("Caltech101@val", "unknown split of Caltech101 'val'.*train, test, all"),
        ("Caltech256@test", "unknown split of Caltech256 'test'.*train, all"),
        ("Food101", "not found.* allow the download"),
    ],
)
def test_splits_that_are_not_there(spec, message, tmp_path):
    with pytest.raises(UserError, match=message):
        open_source(f"torchvision:{spec}", root=tmp_path)


# ------------------------------------------------------------- label files that do not fit


def too_few_flowers(root):
    flowers(root)
    savemat(root / "flowers-102" / "imagelabels.mat", {"labels": [1, 2, 1]})


def damaged_flowers(root):
    flowers(root)
    (root / "flowers-102" / "setid.mat").write_bytes(b"no matrix")


def stored(values):
    return lambda root: (root / "stored.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("name", "layout", "message"),
    [
        ("Flowers102@test", too_few_flowers, "Flowers102 .* 6 is missing from one of"),
        ("Flowers102", damaged_flowers, "torchvision's Flowers102 in"),
        ("Stored", stored({"targets": [0, 1]}), "2 labels up to 1 for 3 images of 2"),
        ("Stored", stored({"targets": [0, 2, 1], "classes": "ab"}), "to 2 for 3 images of 2"),
    ],
)
def test_label_files_that_do_not_fit(name, layout, message, tmp_path, monkeypatch):
    monkeypatch.setattr(torchvision.datasets, "Stored", Stored, raising=False)
    layout(tmp_path)
    with pytest.raises(UserError, match=message):
        open_source(f"torchvision:{name}", root=tmp_path)


class Stored(torchvision.datasets.VisionDataset):
    """Three images with the attributes that a test gives it."""

    def __init__(self, root):
        super().__init__(root)
        vars(self).update(json.loads((root / "stored.json").read_text()))

    def __len__(self):
        return 3


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"labels": [0, 1, 1], "classes": ["a", "b", "c"]}, ([0, 1, 1], ("a", "b", "c"))),
        ({"targets": ["x.png"] * 3, "y": [1, 0, 0]}, ([1, 0, 0], ("0", "1"))),
        ({"targets": [0, -1, 1]}, ([0, -1, 1], ("0", "1"))),  # as of STL10's split train+unlabeled
        ({"targets": [[0], [1, 2], [0]]}, None),
        ({"labels": [None] * 3}, None),
    ],
)
def test_labels_wherever_they_are(values, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(torchvision.datasets, "Stored", Stored, raising=False)
    stored(values)(tmp_path)
    source = open_source("torchvision:Stored", root=tmp_path)
    found = source.targets and (source.targets["class"].tolist(), source.classes["class"])
    assert (found or None) == expected


# ------------------------------------------------------------------------- other sources


def test_sets_that_are_named_by_their_kind():
    for word in ("factors", "toys"):
        described = describe(word)
        assert described.parts == {part: f"{word}@{part}" for part in ("train", "val", "test")}
        assert described.metric == "top1" == EvaluationData.metric
        few = {"train": f"{word}@train:1024", "val": f"{word}@val:256", "test": f"{word}@test:256"}
        assert describe(f"{word}:1024").parts == few
        with pytest.raises(UserError, match=f"expected {word}:N with 4 training images or more"):
            describe(f"{word}:few")
    described = describe("hf:someone/pets")
    assert described.parts == {part: f"hf:someone/pets@{part}" for part in ("train", "test")}
    # What the catalogue does not know is taken to have both.
    parts = describe("torchvision:SEMEION").parts
    assert list(parts.values()) == ["torchvision:SEMEION@train", "torchvision:SEMEION@test"]


def test_splits_of_emnist_have_halves(tmp_path):
    for half, count in (("train", 52), ("test", 26)):
        for kind, shape in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            file = tmp_path / "EMNIST" / "raw" / f"emnist-letters-{half}-{kind}-ubyte"
            file.parent.mkdir(parents=True, exist_ok=True)
            header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
            file.write_bytes(header + bytes(math.prod(shape)))
    for split, count in (("letters", 52), ("letters-train", 52), ("letters-test", 26)):
        assert len(open_source(f"torchvision:EMNIST@{split}", tmp_path)) == count
    with pytest.raises(UserError, match="half of EMNIST's letters 'val'"):
        open_source("torchvision:EMNIST@letters-val", tmp_path)


def test_sets_that_cannot_be_described():
    for whole in ("torchvision:DTD", "factors", "toys", "hf:someone/pets"):
        with pytest.raises(
            UserError, match=f"expected the whole set, {whole}, .*the split 'train2017'"
        ):
            describe(f"{whole}@train2017")
    with pytest.raises(UserError, match="no folder nothing: expected one with"):
        describe("nothing")
