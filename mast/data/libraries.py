"""Data sets of torchvision and the Hugging Face Hub, by name.

Nothing is downloaded unless requested. Metrics follow the transfer experiments of Kornblith et al.
(2019), Do Better ImageNet Models Transfer Better?, and later work; sets not covered there report
"top1".

Legend: N images, P images of a split.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, final

import numpy as np
from PIL import EpsImagePlugin, Image

from mast.core.errors import UserError, unknown
from mast.data.decode import Opened, open_image
from mast.data.source import (
    PARTS,
    ROOT_AND_DOWNLOAD,
    UNLABELLED,
    WHOLE,
    Metric,
    SetDescription,
    Source,
    hash_labels,
    image_column,
    label_column,
    numbered,
    part_of,
    parts_among,
    refuse_split,
    split_column,
)


@final
@dataclass(frozen=True)
class Usual:
    """Usual splits of a torchvision set.

    Attributes:
        train: The training split.
        val: The validation split; None to hold out a part of `train`.
        test: The test split.
        arguments: Further arguments of torchvision's class.
        parts: Splits of a set without official ones: the number of images per class, drawn by a
            fixed seed, or None for all others.
    """

    train: str = "train"
    val: str | None = None
    test: str = "test"
    metric: Metric = "top1"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, int | None] = field(default_factory=lambda: {"train": None})


CATALOGUE: dict[str, Usual] = {
    **dict.fromkeys(
        ("CIFAR10", "CIFAR100", "FashionMNIST", "FER2013", "Food101", "GTSRB", "KMNIST", "MNIST",
         "StanfordCars", "STL10", "SVHN", "USPS"), Usual(),
    ),
    # Thirty images per class, as the authors propose; the background class is left out.
    "Caltech101": Usual(metric="mean_per_class", parts={"train": 30, "test": None}),
    "CLEVRClassification": Usual(test="val"),  # the official test set has no labels
    "Country211": Usual(val="valid"),
    "DTD": Usual(val="val", arguments={"partition": 1}),
    # Its authors recommend Balanced for most uses.
    "EMNIST": Usual("balanced-train", test="balanced-test"),
    # Sizes of CLIP and VISSL; there is no official split.
    "EuroSAT": Usual(parts={"train": 1000, "test": 500}),
    "FGVCAircraft": Usual(val="val", metric="mean_per_class"),
    "Flowers102": Usual(val="val", metric="mean_per_class"),
    "ImageNet": Usual(test="val"),  # the official test set has no labels
    "Imagenette": Usual(test="val"),
    "INaturalist": Usual(train="2021_train_mini", test="2021_valid"),
    "OxfordIIITPet": Usual(train="trainval", metric="mean_per_class"),
    # The official test set has no labels; small images are 256 × 256 pixels.
    "Places365": Usual(train="train-standard", test="val", arguments={"small": True}),
    "RenderedSST2": Usual(val="val"),
}  # fmt: skip
_SPLIT_ARGUMENTS = ("train", "split", "image_set", "version")
_EXECUTED = ("LSUN", "LSUNClass")  # these unpickle a file of the current folder, unverified


@final
class TorchvisionSet(Source):
    """A data set of `torchvision.datasets`, such as CIFAR10 or Flowers102.

    The split is the class's argument `train`, `split`, `image_set` or `version`; without one, a
    part of the catalog or "all". `root` is the folder that contains the set.
    """

    def __init__(self, name: str, split: str, root: Path, download: bool = False) -> None:
        from torchvision import datasets

        # torchvision opens files of any format, and EPS is a program.
        EpsImagePlugin.gs_binary = False
        kind, base = getattr(datasets, name, None), datasets.VisionDataset
        if not (isinstance(kind, type) and issubclass(kind, base)) or kind is base:
            raise unknown("torchvision data set", name, sorted(datasets.__all__))
        if name in _EXECUTED:
            raise UserError(
                f"data: torchvision's {name} is not supported, as it unpickles a file of the "
                "current folder, which can run any code; use a folder of its images"
            )
        self.name = f"torchvision:{name}@{split}"
        usual, parameters = CATALOGUE.get(name, Usual()), inspect.signature(kind).parameters
        key = next((key for key in _SPLIT_ARGUMENTS if key in parameters), None)
        # Accept no other name for a class without splits, or training and test would share
        # images.
        choices = {"train": ("train", "test"), None: (*usual.parts, WHOLE)}.get(key, (split,))
        if split not in choices:
            raise unknown(f"split of {name}", split, choices)
        arguments: dict[str, Any] = {"root": root, "download": download}
        arguments = {at: of for at, of in arguments.items() if at in parameters}
        arguments.update(usual.arguments)
        if "download" in parameters:
            root.mkdir(parents=True, exist_ok=True)
        if key is not None:
            arguments[key] = split == "train" if key == "train" else split
        if name == "EMNIST":  # each split has halves
            whole, _, half = split.partition("-")
            if half not in ("", "train", "test"):
                raise unknown(f"half of EMNIST's {whole}", half, ("train", "test"))
            arguments |= {"split": whole, "train": half != "test", "download": download}
        try:
            self._dataset = kind(**arguments)
        except Exception as error:  # torchvision and its readers raise many types
            hint = f" Choose another root, or allow the download ({ROOT_AND_DOWNLOAD})."
            hint = hint if isinstance(error, RuntimeError | OSError) and not download else ""
            of = " is missing from one of its label files" * isinstance(error, LookupError)
            raise UserError(f"torchvision's {name} in {root}: {error}{of}{hint}") from error
        self.targets, self.classes = {}, {}
        labels, self._index_N = labels_of(self.name, self._dataset), np.arange(len(self._dataset))
        if key is None and split != WHOLE and len(usual.parts) > 1:
            assert labels is not None, f"{name} is drawn by class and has no labels"
            self._index_N = drawn(name, split, usual.parts, labels[0])
        if labels is not None:
            self.targets = {"class": labels[0][self._index_N]}
            self.classes = {"class": labels[1]}
        self._key = f"{self.name} {root.absolute()}"

    def __len__(self) -> int:
        return len(self._index_N)

    def open(self, index: int, page: int = 0) -> Image.Image:
        item = self._dataset[int(self._index_N[index])]
        image = item[0] if isinstance(item, tuple) else item
        if not isinstance(image, Image.Image):
            raise TypeError(f"expected an image, got {type(image).__name__}")
        return image

    def fingerprint(self) -> str:
        return hash_labels(self._key, str(len(self)), {**self.targets, "": self._index_N})


def drawn(
    name: str, split: str, parts: Mapping[str, int | None], label_N: np.ndarray
) -> np.ndarray:
    """Sorted images (P,) of a split: the number per class that `parts` gives, or the rest."""
    random, chosen = np.random.default_rng(0), []  # fixed, so that splits are the same everywhere
    counts = [count for count in parts.values() if count is not None]
    needed = sum(counts) + len(parts) - len(counts)
    first = sum(counts[: list(parts).index(split)])
    count = parts[split]
    for label in np.unique(label_N):
        members = random.permutation(np.flatnonzero(label_N == label))
        if len(members) < needed:
            raise UserError(
                f"data: expected {needed} images or more of class {label} in {name}, got "
                f"{len(members)}: is the set complete?"
            )
        chosen.append(members[first : None if count is None else first + count])
    return np.sort(np.concatenate(chosen))


def open_torchvision(spec: str, root: Path, download: bool) -> TorchvisionSet:
    """Opens torchvision:NAME@SPLIT; by default the training split."""
    name, _, split = spec.removeprefix("torchvision:").partition("@")
    return TorchvisionSet(name, split or "train", root, download)


def describe_torchvision(spec: str, _root: Path, _download: bool) -> SetDescription:
    """The splits of the catalog; train and test for sets not in it."""
    refuse_split(spec)
    usual = CATALOGUE.get(spec.removeprefix("torchvision:"), Usual())
    splits = {part: getattr(usual, part) for part in PARTS}
    parts = {part: f"{spec}@{split}" for part, split in splits.items() if split is not None}
    return SetDescription(parts, usual.metric)


def labels_of(name: str, dataset: Any) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """The labels of a torchvision set, under any of their attribute names.

    Returns:
        Labels (N,) int64, `UNLABELLED` for images without one (STL10's unlabeled), and class
        names, or numbers without names; None for a set without labels.
    """
    found = [
        getattr(dataset, attribute, None) for attribute in ("targets", "labels", "_labels", "y")
    ]
    # Pairs: (file, label) of StanfordCars, GTSRB and others, (label, file) of INaturalist.
    for attribute, at in (("_samples", 1), ("index", 0)):
        pairs = getattr(dataset, attribute, None)
        if pairs and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            found.append([pair[at] for pair in pairs])
    for values in found:
        with suppress(ValueError):  # lists of unequal length: several classes per image
            label_N = np.asarray(values)
            if label_N.ndim == 1 and label_N.dtype.kind in "iu" and len(label_N):
                break
    else:
        return None
    highest = int(label_N.max())
    names = _names(dataset) or tuple(map(str, range(highest + 1)))
    if len(label_N) != len(dataset) or highest >= len(names):
        raise UserError(
            f"data: label file of {name} does not fit: {len(label_N)} labels up "
            f"to {highest} for {len(dataset)} images of {len(names)} classes"
        )
    return np.maximum(label_N.astype(np.int64), UNLABELLED), names


def _names(dataset: Any) -> tuple[str, ...]:
    # Places365 sorts `classes` by name, not by number.
    numbers = getattr(dataset, "class_to_idx", None) or {}
    names = sorted(numbers, key=numbers.__getitem__)
    if sorted(numbers.values()) != list(range(len(numbers))):
        names = []
    for attribute in ("classes", "categories", "all_categories"):
        names = names or getattr(dataset, attribute, None) or []
    # ImageNet has several names per class.
    return tuple(", ".join(name) if isinstance(name, tuple) else str(name) for name in names)


@final
class HuggingFaceSet(Source):
    """A data set of the Hugging Face Hub, or a local folder that `datasets` can load.

    Every ClassLabel column is a task, every column of ClassLabel lists a multi-label task; without
    any, a column of text, whole numbers or lists with a usual name. Without `download`, only the
    cache `root` is used. Images come from `column`, by default the one with a usual name, or the
    only one.
    """

    def __init__(
        self, name: str, split: str, root: Path, download: bool = False, column: str | None = None
    ) -> None:
        self.name = f"hf:{name}@{split}" + (f"#{column}" if column else "")
        try:
            import datasets
        except ImportError as error:
            raise UserError(
                f"{self.name} needs the package `datasets`: pip install 'mast-ssl[hf]'"
            ) from error
        try:
            with _network(root, download) as places:
                loaded = datasets.load_dataset(name, split=split, **places)
        except Exception as error:  # the Hub's client raises many types
            hint = f" Only the cache was tried; allow the download ({ROOT_AND_DOWNLOAD})."
            raise UserError(f"cannot load {self.name}: {error}{hint * (not download)}") from error
        features: dict[str, Any] = dict(loaded.features)
        images = [column for column, of in features.items() if type(of).__name__ == "Image"]
        if not images:
            raise UserError(f"{self.name}: expected a column of images, got {', '.join(features)}")
        self._column = image_column(self.name, images, column)
        self.targets, self.classes, self.multilabels = {}, {}, {}
        # The element type of a list: List, LargeList or, in older versions, Sequence.
        held = {name: getattr(of, "feature", of) for name, of in features.items()}
        labels = [name for name, of in held.items() if type(of).__name__ == "ClassLabel"]
        kind = re.compile(r"u?int\d+|bool|(large_)?string")
        dtypes = {name: of.dtype for name, of in held.items() if type(of).__name__ == "Value"}
        plain = [name for name, dtype in dtypes.items() if kind.fullmatch(dtype)]
        for label in labels or filter(None, [label_column(plain)]):
            values, task = list(loaded[label][:]), label.replace("/", "-")  # results: TASK/MEASURE
            several = held[label] is not features[label]
            label_T, names = numbered([each for row in values for each in row or ()]
                                      if several else values)  # fmt: skip
            self.classes[task] = names = tuple(held[label].names) if labels else names
            if not several:
                self.targets[task] = label_T
                continue
            row_T = np.repeat(np.arange(len(values)), [len(row or ()) for row in values])
            label_NC = np.zeros((len(values), len(names)), np.int8)
            label_NC[[row is None for row in values]] = UNLABELLED
            label_NC[row_T[label_T >= 0], label_T[label_T >= 0]] = 1
            self.multilabels[task] = label_NC
        self._version = str(getattr(loaded, "_fingerprint", ""))
        # Encoded bytes, as our decoder handles all modes, and JPEGs at a reduced scale.
        self._images = loaded.select_columns([self._column]).cast_column(
            self._column, datasets.Image(decode=False)
        )

    def __len__(self) -> int:
        return len(self._images)

    def open(self, index: int, page: int = 0) -> Opened:
        encoded = self._images[index][self._column]
        content = encoded["bytes"]
        file = BytesIO(content) if content else Path(encoded["path"])
        return open_image(file, None, page, self.max_pixels)

    def fingerprint(self) -> str:
        return hash_labels(self.name, self._version, {**self.targets, **self.multilabels})


def open_hugging_face(spec: str, root: Path, download: bool) -> HuggingFaceSet:
    """Opens hf:owner/name@SPLIT; by default the training split."""
    whole, column = split_column(spec)
    name, _, split = whole.removeprefix("hf:").partition("@")
    if not split:
        parts = describe_hugging_face(whole, root, download).parts
        split = parts.get("train", parts.get(WHOLE, "")).rpartition("@")[2]
    return HuggingFaceSet(name, split, root, download, column)


def describe_hugging_face(spec: str, root: Path, download: bool) -> SetDescription:
    """The splits by part; a single split is a whole set, to be split into train and test."""
    whole, column = split_column(spec)
    refuse_split(whole)
    try:
        import datasets

        with _network(root, download) as places:
            found = datasets.get_dataset_split_names(whole.removeprefix("hf:"), **places)
        names = list(map(str, found))
    except Exception:  # opening it will report the error; most sets have these
        names = ["train", "test"]
    parts = parts_among(names) or parts_among([name for name in names if part_of(name)])
    if len(parts) < 2:
        parts = {WHOLE: parts.get("train", names)}
    if any(len(of) > 1 for of in parts.values()):
        raise UserError(
            f"data: expected splits such as train and test in {whole}, got {', '.join(names)}; "
            f"choose one, as in {whole}@{names[0]}, or several with train, val and test"
        )
    end = f"#{column}" if column else ""
    return SetDescription({part: f"{whole}@{of[0]}{end}" for part, of in parts.items()})


@contextmanager
def _network(root: Path, allowed: bool) -> Iterator[dict[str, Any]]:
    """Keeps the Hub's client off the network, which `local_files_only` alone does not do.

    Yields arguments for `datasets`.
    """
    import datasets
    import huggingface_hub

    places = [(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)]
    if not allowed:
        places += [
            (of, "HF_HUB_OFFLINE", True) for of in (datasets.config, huggingface_hub.constants)
        ]
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, value in places:
        setattr(module, name, value)
    try:
        local = datasets.DownloadConfig(cache_dir=str(root), local_files_only=not allowed)
        yield {"cache_dir": str(root), "download_config": local}
    finally:
        for (module, name, _), value in zip(places, before, strict=True):
            setattr(module, name, value)
