"""Sets that other libraries know by name."""

import sys

import numpy as np
import pytest
import torchvision.datasets

from mast.core.errors import UserError
from mast.data import DataConfig, open_canvas, open_source
from mast.data.labels import told_apart


def test_torchvision_set(tiny, tmp_path):
    with pytest.raises(UserError, match=r"Tiny in .*not found.*allow the download"):
        open_source("torchvision:Tiny@train", root=tmp_path)
    source = open_source("torchvision:Tiny", root=tmp_path, download=True)
    assert source.name == "torchvision:Tiny@train"
    assert source.load(2).tolist() == np.full((3, 6, 3), 2).tolist()
    assert source.targets["class"].tolist() == [0, 1, 1, 0]
    assert source.classes == {"class": ("cat", "dog")}
    test = open_source("torchvision:Tiny@test", root=tmp_path)
    assert len(test) == 2
    assert test.fingerprint() != source.fingerprint()
    config = DataConfig("torchvision:Tiny@test", root=tmp_path, cache=tmp_path / "cache")
    assert open_canvas(config, 8).aspect_N.tolist() == [2.0, 2.0]


def test_torchvision_set_without_labels_or_root():
    source = open_source("torchvision:FakeData")
    assert len(source) == 1000
    assert source.targets == {}
    assert source.load(0).shape == (224, 224, 3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("torchvision:CIFAR11@train", "Did you mean 'CIFAR1"),
        ("torchvision:CIFAR10@val", "unknown split of CIFAR10 'val'"),
    ],
)
def test_torchvision_name_or_split_that_is_not_there(tmp_path, spec, message):
    with pytest.raises(UserError, match=message):
        open_source(spec, root=tmp_path)


def test_classes_of_one_name_are_told_apart(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(torchvision.datasets.Tiny, "classes", ("crane", "crane"))
    source = open_source("torchvision:Tiny", root=tmp_path, download=True)
    assert source.classes == {"class": ("crane (0)", "crane (1)")}
    assert told_apart(["a", "a (1)", "a"]) == ("a (0)", "a (1)", "a (2)")
    assert len(set(told_apart(["a", "a", "a (0)"]))) == 3


@pytest.mark.parametrize("download", [False, True])
def test_hugging_face_set(hub, tmp_path, download):
    source = open_source("hf:someone/pets@test", root=tmp_path, download=download)
    assert hub == [("someone/pets", "test", not download)]
    assert len(source) == 2
    assert source.targets["label"].tolist() == [1, 0]
    assert source.classes == {"label": ("cat", "dog")}
    assert source.load(1)[0, 0].tolist() == [1, 2, 3]
    assert source.canvas(0, 4)[1] == 2.0


@pytest.mark.parametrize(
    ("name", "message"),
    [("nobody/nothing", "no such set.*allow the download"), ("words", "no column of images")],
)
def test_hugging_face_set_that_cannot_be_used(hub, tmp_path, name, message):
    with pytest.raises(UserError, match=message):
        open_source(f"hf:{name}", root=tmp_path)


def test_hugging_face_without_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'mast-ssl\[hf\]'"):
        open_source("hf:someone/pets", root=tmp_path)
