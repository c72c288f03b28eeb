"""Labelled sets by their usual names: which split serves as what, and what the field reports.

The table's metrics are those of the transfer experiments of Kornblith et al. (2019), Do Better
ImageNet Models Transfer Better?, which later work keeps; sets that are not in it report "top1".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

from mast.core.errors import UserError
from mast.data.coco import coco_splits
from mast.data.partition import Drawn, Listed
from mast.data.voc import voc_splits

Metric = Literal["top1", "mean_per_class", "mAP"]

PARTS = ("train", "val", "test")


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
    """

    train: str = "train"
    val: str | None = None
    test: str = "test"
    metric: Metric = "top1"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    partition: Drawn | Listed | None = None


CATALOGUE: dict[str, Usual] = {
    "CIFAR10": Usual(),
    "CIFAR100": Usual(),
    # Thirty images a class, as the set's authors propose; its class of background is left out.
    "Caltech101": Usual(metric="mean_per_class", partition=Drawn({"train": 30}, rest="test")),
    "CLEVRClassification": Usual(test="val"),  # the official test set has no labels
    "Country211": Usual(val="valid"),
    "DTD": Usual(val="val", arguments={"partition": 1}),
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


@final
@dataclass(frozen=True)
class SetDescription:
    """The parts of a labelled set.

    Attributes:
        parts: What `open_source` takes, by "train", "val" and "test"; not every set has all three.
        metric: "top1", "mean_per_class" (the mean over classes of the accuracy within one) or
            "mAP" (the mean over classes of the average precision).
    """

    parts: Mapping[str, str]
    metric: Metric = "top1"


def describe(data: str) -> SetDescription:
    """The usual parts of a labelled set, and what is reported on it.

    Args:
        data: `factors`, or `factors:1024` for so many training images and a quarter of them to
            validate and to test; `torchvision:NAME` or `hf:owner/name`; `coco:FOLDER` with
            annotations/instances_*.json in it; `voc:VOCdevkit/VOC2007`; or a folder with `train`,
            `test` and perhaps `val` below it.

    Returns:
        The parts that there are; of a set by name without looking whether they are on disk.

    Raises:
        UserError: If it names a single split, or there is no such folder.
    """
    kind, _, name = data.partition(":")
    if kind == "coco":
        return _objects(data, _coco(coco_splits(Path(name).expanduser())))
    if kind == "voc":
        return _objects(data, _voc(voc_splits(Path(name).expanduser())))
    if kind in ("torchvision", "hf") or data.startswith("factors@"):
        _refuse_split(data)
    if kind == "torchvision":
        usual = CATALOGUE.get(name, Usual())
        splits = {"train": usual.train, "val": usual.val, "test": usual.test}
        return SetDescription(_named(data, splits), usual.metric)
    if kind == "hf":
        return SetDescription(_named(data, {"train": "train", "test": "test"}))
    if kind == "factors":
        return SetDescription(_factors(name))
    root = Path(data).expanduser()
    if not root.is_dir():
        raise UserError(f"no folder {root}; give one with `train` and `test` below it")
    return SetDescription({part: str(root / part) for part in PARTS if (root / part).is_dir()})


def _factors(count: str) -> dict[str, str]:
    if not count:
        return {part: f"factors@{part}" for part in PARTS}
    if not count.isdecimal() or int(count) < 4:
        raise UserError(f"expected factors:N with 4 training images or more, got factors:{count}")
    return {part: f"factors@{part}:{int(count) // (1 if part == 'train' else 4)}" for part in PARTS}


def _named(data: str, splits: Mapping[str, str | None]) -> dict[str, str]:
    return {part: f"{data}@{split}" for part, split in splits.items() if split is not None}


def _objects(data: str, splits: Mapping[str, str | None]) -> SetDescription:
    parts = _named(data, splits)
    if not parts:
        _refuse_split(data)
        raise UserError(
            f"no annotated train, val or test split in {data}: expected coco:FOLDER with "
            "annotations/instances_train2017.json or the like, or voc:FOLDER with "
            "ImageSets/Main/trainval.txt or the like."
        )
    return SetDescription(parts, "mAP")


def _coco(splits: Sequence[str]) -> dict[str, str | None]:
    """COCO scores its val, as the labels of its test are kept back; sets like it have both."""
    train, val, test = (_newest(splits, prefix) for prefix in ("train", "val(?:id)?", "test"))
    return {"train": train, "val": val if test else None, "test": test or val}


def _newest(splits: Sequence[str], prefix: str) -> str | None:
    """The split of that name, with the highest year if it has one: train2017, not train2014."""
    return max((name for name in splits if re.fullmatch(rf"{prefix}\d*", name)), default=None)


def _voc(splits: Sequence[str]) -> dict[str, str | None]:
    """VOC 2007 learns from train and val together and scores test; later years keep test back."""
    train, val, trainval, test = (
        name if name in splits else None for name in ("train", "val", "trainval", "test")
    )
    if test is None:
        return {"train": train, "test": val}
    if train and val:
        return {"train": train, "val": val, "test": test}
    return {"train": trainval or train, "test": test}


def _refuse_split(data: str) -> None:
    whole, _, split = data.rpartition("@")
    if whole:
        raise UserError(
            f"{data} is the split {split!r} alone: expected the whole set, {whole}, or its parts "
            "as train, val and test."
        )
