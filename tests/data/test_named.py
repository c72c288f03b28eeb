"""Sets that other libraries know by name."""

import io
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torchvision.datasets
from PIL import Image

from mast.core.errors import UserError
from mast.data import DataConfig, open_canvas, open_source


class Tiny(torchvision.datasets.VisionDataset):
    """A set as CIFAR10 is: images in memory, `train` and `download` as arguments."""

    classes = ("cat", "dog")

    def __init__(self, root, train=True, download=False):
        super().__init__(root)
        self.data = np.arange(4 if train else 2, dtype=np.uint8)
        self.targets = [0, 1, 1, 0][: len(self.data)]
        if not (root / "tiny").exists():
            if not download:
                raise RuntimeError("Dataset not found or corrupted.")
            (root / "tiny").mkdir()

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return Image.new("L", (6, 3), int(self.data[index])), self.targets[index]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(torchvision.datasets, "Tiny", Tiny, raising=False)


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


def encoded(color):
    file = io.BytesIO()
    Image.new("RGB", (6, 3), color).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


class Image_(SimpleNamespace):  # noqa: N801 (renamed below to what `datasets` calls it)
    pass


class ClassLabel(SimpleNamespace):
    pass


Image_.__name__ = "Image"


class Table:
    """As much of `datasets.Dataset` as is used."""

    def __init__(self, columns, features):
        self.columns, self.features, self._fingerprint = columns, features, "abc"

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        return {name: values[key] for name, values in self.columns.items()}

    def select_columns(self, names):
        return Table({name: self.columns[name] for name in names}, self.features)

    def cast_column(self, name, feature):
        assert feature.decode is False, "the bytes are decoded here, not by datasets"
        return self


@pytest.fixture
def hub(monkeypatch):
    """Stand-ins for `datasets` and its hub client; returns what was asked of them."""
    asked = []
    datasets, client = ModuleType("datasets"), ModuleType("huggingface_hub")
    datasets.config = SimpleNamespace(HF_UPDATE_DOWNLOAD_COUNTS=True, HF_HUB_OFFLINE=False)
    client.constants = SimpleNamespace(HF_HUB_OFFLINE=False)
    datasets.Image, datasets.DownloadConfig = Image_, SimpleNamespace

    def load_dataset(name, split, cache_dir, download_config):
        offline = datasets.config.HF_HUB_OFFLINE and client.constants.HF_HUB_OFFLINE
        asked.append((name, split, offline))
        if name == "nobody/nothing":
            raise FileNotFoundError("no such set")
        features = {"label": ClassLabel(names=["cat", "dog"])}
        if name == "words":
            return Table({"label": [0]}, features)
        return Table(
            {"label": [1, 0], "photo": [encoded((9, 8, 7)), encoded((1, 2, 3))]},
            features | {"photo": Image_()},
        )

    datasets.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    yield asked
    assert not datasets.config.HF_HUB_OFFLINE
    assert not client.constants.HF_HUB_OFFLINE


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
