"""Sets of torchvision by name: which split serves as what, and what the field reports.

The table's metrics are those of the transfer experiments of Kornblith et al. (2019), Do Better
ImageNet Models Transfer Better?, which later work keeps; sets that are not in it report "top1".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from mast.data.partition import Drawn, Listed
from mast.data.source import Metric


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
