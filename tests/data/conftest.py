"""Stand-ins for the libraries that know sets by name."""

import io
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torchvision.datasets
from PIL import Image


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


def encoded(color):
    file = io.BytesIO()
    Image.new("RGB", (6, 3), color).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


class ClassLabel(SimpleNamespace):
    pass


class List(SimpleNamespace):
    """Of a feature, as ClassLabel."""


class Value(SimpleNamespace):
    def __init__(self, dtype):
        super().__init__(dtype=dtype)


Image_ = type("Image", (SimpleNamespace,), {})  # as `datasets` calls it


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


PHOTOS = [encoded((9, 8, 7)), encoded((1, 2, 3))]
KIND, PHOTO = ClassLabel(names=["cat", "dog"]), Image_()
# Columns and their features, by the name of a set.
HUB = {
    "someone/pets": ({"label": [1, 0], "photo": PHOTOS}, {"label": KIND, "photo": PHOTO}),
    "hidden": (
        {"label": [0, 1], "breed": [None, -1], "photo": PHOTOS},
        {"label": KIND, "photo": PHOTO, "breed": ClassLabel(names=["pug"])},
    ),
    **{
        name: (
            {
                "mask": [encoded((0, 0, 0))] * 4,
                column: [encoded((9, 8, 7))] * 4,
                "label": ["dog", None, "cat", "cat"],
            },
            {"mask": PHOTO, column: PHOTO, "label": Value("string")},
        )
        for name, column in (("two", "image"), ("three", "photo"))
    },
    "numbers": (
        {"image": PHOTOS * 2, "label": [2, None, 0, -1]}, {"image": PHOTO, "label": Value("int64")}
    ),
    "null": ({"image": PHOTOS * 2, "label": [1, None, 0, -1]}, {"image": PHOTO, "label": KIND}),
    "lists": (
        {"image": PHOTOS * 2, "label": [[1], [], None, [0, 1]]},
        {"image": PHOTO, "label": List(feature=KIND)},
    ),
    "texts": (
        {"image": PHOTOS * 2, "label": [["dog"], [], None, ["cat", "dog"]]},
        {"image": PHOTO, "label": List(feature=Value("string"))},
    ),
    "words": ({"label": [0]}, {"label": KIND}),
}  # fmt: skip


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
        if name.startswith("of "):
            name = "someone/pets"
        if name not in HUB:
            raise FileNotFoundError("no such set")
        return Table(*HUB[name])

    def get_dataset_split_names(name, cache_dir, download_config):
        if not name.startswith("of "):
            raise ConnectionError
        return name.removeprefix("of ").split()

    datasets.load_dataset = load_dataset
    datasets.get_dataset_split_names = get_dataset_split_names
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    yield asked
    assert not datasets.config.HF_HUB_OFFLINE
    assert not client.constants.HF_HUB_OFFLINE
