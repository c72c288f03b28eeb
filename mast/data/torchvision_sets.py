"""Sets of torchvision by name: which split serves as what, and what the field reports.

Nothing is downloaded unless the user asked for it. Metrics are those of the transfer experiments of
Kornblith et al. (2019), Do Better ImageNet Models Transfer Better?, which later work keeps; sets
that are not among them report "top1".
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from PIL import EpsImagePlugin, Image

from mast.core.errors import UserError, unknown
from mast.data.labels import labels_of
from mast.data.parts import WHOLE, Drawn, Listed
from mast.data.source import (
    ROOT_AND_DOWNLOAD,
    Metric,
    SetDescription,
    Source,
    hash_labels,
    refuse_split,
    split_names,
)


@final
@dataclass(frozen=True)
class Usual:
    """How a set of torchvision is usually used.

    Attributes:
        train: The split to learn from.
        val: The split to choose hyper-parameters by; None where a part of `train` is held out.
        test: The split that is scored.
        metric: What is reported.
        arguments: What torchvision's class is given beside its split.
        partition: How it is split, where torchvision's class has no splits.
        halves: Whether each split has a half for training and one for the test, as letters-train
            and letters-test.
    """

    train: str = "train"
    val: str | None = None
    test: str = "test"
    metric: Metric = "top1"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    partition: Drawn | Listed | None = None
    halves: bool = False


CATALOGUE: dict[str, Usual] = {
    "CIFAR10": Usual(),
    "CIFAR100": Usual(),
    # Thirty images a class, as the set's authors propose; its class of background is left out.
    "Caltech101": Usual(metric="mean_per_class", partition=Drawn({"train": 30}, rest="test")),
    "CLEVRClassification": Usual(test="val"),  # the official test set has no labels
    "Country211": Usual(val="valid"),
    "DTD": Usual(val="val", arguments={"partition": 1}),
    # Balanced is what its authors propose for most uses.
    "EMNIST": Usual("balanced-train", test="balanced-test", halves=True),
    # As CLIP's and VISSL's sizes; there is no official split.
    "EuroSAT": Usual(partition=Drawn({"train": 1000, "test": 500})),
    "FashionMNIST": Usual(),
    "FER2013": Usual(),
    "FGVCAircraft": Usual(val="val", metric="mean_per_class"),
    "Flowers102": Usual(val="val", metric="mean_per_class"),
    "Food101": Usual(),
    "GTSRB": Usual(),
    "ImageNet": Usual(test="val"),  # the official test set has no labels
    "Imagenette": Usual(test="val"),
    "INaturalist": Usual(train="2021_train_mini", test="2021_valid"),
    "KMNIST": Usual(),
    "MNIST": Usual(),
    "OxfordIIITPet": Usual(train="trainval", metric="mean_per_class"),
    # The official test set has no labels; small images are 256 × 256 pixels.
    "Places365": Usual(train="train-standard", test="val", arguments={"small": True}),
    "RenderedSST2": Usual(val="val"),
    "StanfordCars": Usual(),
    "STL10": Usual(),
    "SUN397": Usual(
        partition=Listed(
            {"train": "Training_01.txt", "test": "Testing_01.txt"},
            folder="SUN397",
            source="https://vision.princeton.edu/projects/2010/SUN/download/Partitions.zip",
        )
    ),
    "SVHN": Usual(),
    "USPS": Usual(),
}


_SPLIT_ARGUMENTS = ("train", "split", "image_set", "version")
_EXECUTED = ("LSUN", "LSUNClass")  # unpickle a file of the current folder, unverified


@final
class Torchvision(Source):
    """A data set of `torchvision.datasets`, such as CIFAR10 or Flowers102.

    Args:
        name: Class name.
        split: Handed to the argument `train`, `split`, `image_set` or `version`, whichever the
            class has; where it has none, a split of the catalogue's partition, or "all".
        root: The folder that holds the set, or is to hold it.
        download: Whether torchvision may download it.

    Raises:
        UserError: If the name or split is unknown, the set is not in `root`, or its labels do not
            fit its images.
    """

    def __init__(self, name: str, split: str, root: Path, download: bool = False) -> None:
        from torchvision import datasets

        # Torchvision opens what a file holds, whatever that is, and EPS is a program.
        EpsImagePlugin.gs_binary = False
        known = [key for key, value in vars(datasets).items() if _is_dataset(value, datasets)]
        if name not in known:
            raise unknown("torchvision data set", name, sorted(known))
        if name in _EXECUTED:
            raise UserError(
                f"torchvision's {name} is not opened, as it reads a pickle that it finds in the "
                "current folder, which can run any code: give its images as a folder"
            )
        self.name = f"torchvision:{name}@{split}"
        self._key = f"{self.name} {root.absolute()}"
        dataset = getattr(datasets, name)
        parameters = inspect.signature(dataset).parameters
        usual = CATALOGUE.get(name, Usual())
        arguments = dict(usual.arguments)
        if "root" in parameters:
            arguments["root"] = root
        if "download" in parameters:
            arguments["download"] = download
            root.mkdir(parents=True, exist_ok=True)
        key = next((key for key in _SPLIT_ARGUMENTS if key in parameters), None)
        choices = _choices(key, usual)
        if choices and split not in choices:
            raise unknown(f"split of {name}", split, choices)
        whole, _, half = split.partition("-") if usual.halves else (split, "", "")
        if half not in ("", "train", "test"):
            raise unknown(f"half of {name}'s {whole}", half, ("train", "test"))
        if usual.halves:
            arguments["train"] = half != "test"
        if key is not None:
            arguments[key] = whole == "train" if key == "train" else whole
        try:
            self._dataset = dataset(**arguments)
        except LookupError as error:  # a class or an image that one file has and another lacks
            raise UserError(
                f"a label file of torchvision's {name} in {root} does not fit the others: "
                f"{error} is in one and not in another."
            ) from error
        except Exception as error:  # torchvision and what reads its files raise many kinds
            missing = isinstance(error, (RuntimeError, OSError)) and not download
            hint = f" Name another root, or allow the download ({ROOT_AND_DOWNLOAD})."
            hint = hint if missing else ""
            raise UserError(f"torchvision's {name} in {root}: {error}{hint}") from error
        self.targets, self.classes = {}, {}
        labels = labels_of(self.name, self._dataset)
        self._index_N = self._partition(usual, name, split, root, labels)
        if labels is not None:
            self.targets = {"class": labels[0][self._index_N]}
            self.classes = {"class": labels[1]}

    def _partition(
        self,
        usual: Usual,
        name: str,
        split: str,
        root: Path,
        labels: tuple[np.ndarray, tuple[str, ...]] | None,
    ) -> np.ndarray:
        """The positions of the split's images in torchvision's set."""
        partition = usual.partition
        if isinstance(partition, Drawn) and split != WHOLE:
            assert labels is not None, f"{name} is drawn by class and has no labels"
            return partition.positions(name, split, labels[0])
        if isinstance(partition, Listed):
            paths = list(map(Path, self._dataset._image_files))
            if split == WHOLE:  # in an order of our own: that of the disk changes
                return np.array(sorted(range(len(paths)), key=paths.__getitem__), np.int64)
            index_N, state = partition.positions(f"torchvision:{name}", split, root, paths)
            self._key += f" {state}"
            return index_N
        return np.arange(len(self._dataset))

    def __len__(self) -> int:
        return len(self._index_N)

    def open(self, index: int, page: int = 0) -> Image.Image:
        item = self._dataset[int(self._index_N[index])]
        image = item[0] if isinstance(item, tuple) else item
        if not isinstance(image, Image.Image):
            raise TypeError(f"expected an image, got {type(image).__name__}")
        return image

    def identifier(self, index: int) -> str:
        return f"{index:06d}"

    def fingerprint(self) -> str:
        return hash_labels(self._key, str(len(self)), self.targets)


def open_torchvision(spec: str, root: Path, download: bool) -> Torchvision:
    """Opens torchvision:NAME@SPLIT, its split for training where none is named."""
    name, _, split = spec.removeprefix("torchvision:").partition("@")
    return Torchvision(name, split or "train", root, download)


def describe_torchvision(spec: str) -> SetDescription:
    """The splits that the catalogue names; train and test of a set that is not in it."""
    refuse_split(spec)
    usual = CATALOGUE.get(spec.removeprefix("torchvision:"), Usual())
    splits = {"train": usual.train, "val": usual.val, "test": usual.test}
    return SetDescription(split_names(spec, splits), usual.metric)


def _choices(key: str | None, usual: Usual) -> tuple[str, ...]:
    """The splits of a set of torchvision; none where its class knows best."""
    if key == "train":
        return ("train", "test")
    if key is not None:
        return ()
    # A class without splits has one: were another name let through, training and test would share
    # their images.
    return (*(usual.partition.splits if usual.partition else ("train",)), WHOLE)


def _is_dataset(value: object, datasets: Any) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, datasets.VisionDataset)
        and value is not datasets.VisionDataset
    )
