"""Sets that torchvision and the Hugging Face hub know by name.

Nothing is downloaded unless the user asked for it. Metrics are those of the transfer experiments of
Kornblith et al. (2019), Do Better ImageNet Models Transfer Better?, which later work keeps; sets
that are not among them report "top1".

Legend: N images, P images of a split.
"""

import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, final

import numpy as np
from PIL import EpsImagePlugin, Image

from mast.core.errors import UserError, unknown
from mast.core.files import read_text, spelling
from mast.data.decode import Opened, open_image
from mast.data.source import (
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
    split_names,
)

_SEED = 0  # of what is drawn: the same images everywhere, always


@final
@dataclass(frozen=True)
class RandomSplit:
    """So many images of each class, by split, drawn by a fixed seed; all others are the last's."""

    parts: Mapping[str, int | None]  # None: all others

    def positions(self, name: str, split: str, label_N: np.ndarray) -> np.ndarray:
        """The images (P,) of a split, ascending."""
        random = np.random.default_rng(_SEED)
        needed = sum(count or 1 for count in self.parts.values())
        chosen = []
        for label in np.unique(label_N):
            members = random.permutation(np.flatnonzero(label_N == label))
            if len(members) < needed:
                raise UserError(
                    f"class {label} of {name} has {len(members)} images, and its splits need "
                    f"{needed} or more. Is the set complete?"
                )
            first = 0
            for part, count in self.parts.items():
                last = len(members) if count is None else first + count
                if part == split:
                    chosen.append(members[first:last])
                first = last
        return np.sort(np.concatenate(chosen))


@final
@dataclass(frozen=True)
class FileSplit:
    """The images that a file names, one path a line, as the set's authors published it.

    Attributes:
        parts: Name of the file, by split.
        folder: Where the files are and the images' paths begin, below the root of the set.
        source: Where the files are published.
    """

    parts: Mapping[str, str]
    folder: str
    source: str

    def positions(
        self, name: str, split: str, root: Path, paths: Sequence[Path]
    ) -> tuple[np.ndarray, str]:
        """The images (P,) of a split, in the order of its list, and a hash of the list."""
        folder = root / self.folder
        file = folder / self.parts[split]
        if not file.is_file():
            raise UserError(
                f"{name} is split by files that torchvision does not fetch: put "
                f"{' and '.join(self.parts.values())} of {self.source} into {folder}, "
                f"or ask for {name}@{WHOLE}."
            )
        content = read_text(file)
        position = {
            spelling(path.relative_to(folder).as_posix()): at for at, path in enumerate(paths)
        }
        lines = [spelling(line.strip().lstrip("/")) for line in content.splitlines()]
        listed = [line for line in lines if line]
        missing = [line for line in listed if line not in position]
        if missing or not listed:
            raise UserError(
                f"{file} does not fit {name}: {len(missing)} of its {len(listed)} images are not "
                f"in {folder}" + (f", the first is {missing[0]}." if missing else ".")
            )
        state = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
        return np.array([position[line] for line in listed], np.int64), state


@final
@dataclass(frozen=True)
class Usual:
    """How a set of torchvision is usually used.

    Attributes:
        train: The split to learn from.
        val: The split to choose hyper-parameters by; None where a part of `train` is held out.
        test: The split that is scored.
        arguments: What torchvision's class takes beside its split.
        partition: How it is split, where torchvision's class has no splits.
        halves: Whether each split has halves, as letters-train and letters-test.
    """

    train: str = "train"
    val: str | None = None
    test: str = "test"
    metric: Metric = "top1"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    partition: RandomSplit | FileSplit | None = None
    halves: bool = False


CATALOGUE: dict[str, Usual] = {
    "CIFAR10": Usual(),
    "CIFAR100": Usual(),
    # Thirty images per class, as the set's authors propose; its class of background is left out.
    "Caltech101": Usual(
        metric="mean_per_class", partition=RandomSplit({"train": 30, "test": None})
    ),
    "CLEVRClassification": Usual(test="val"),  # the official test set has no labels
    "Country211": Usual(val="valid"),
    "DTD": Usual(val="val", arguments={"partition": 1}),
    # Balanced is what its authors propose for most uses.
    "EMNIST": Usual("balanced-train", test="balanced-test", halves=True),
    # As CLIP's and VISSL's sizes; there is no official split.
    "EuroSAT": Usual(partition=RandomSplit({"train": 1000, "test": 500})),
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
        partition=FileSplit(
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
class TorchvisionSet(Source):
    """A data set of `torchvision.datasets`, such as CIFAR10 or Flowers102.

    The split is the class's argument `train`, `split`, `image_set` or `version`; where it has none,
    a split of the catalogue's partition, or "all". `root` is the folder that holds the set.
    """

    def __init__(self, name: str, split: str, root: Path, download: bool = False) -> None:
        from torchvision import datasets

        # TorchvisionSet opens what a file holds, whatever that is, and EPS is a program.
        EpsImagePlugin.gs_binary = False
        known = [
            key
            for key, value in vars(datasets).items()
            if isinstance(value, type) and issubclass(value, datasets.VisionDataset)
        ]
        known.remove("VisionDataset")
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
        choices: tuple[str, ...] = ("train", "test") if key == "train" else ()
        if key is None:
            # A class without splits has one: were another name let through, training and test would
            # share their images.
            choices = (*(usual.partition.parts if usual.partition else ("train",)), WHOLE)
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
        partition, self._index_N = usual.partition, np.arange(len(self._dataset))
        if isinstance(partition, FileSplit):
            paths = list(map(Path, self._dataset._image_files))
            if split == WHOLE:  # in an order of our own: that of the disk changes
                self._index_N = np.array(sorted(range(len(paths)), key=paths.__getitem__), np.int64)
            else:
                self._index_N, state = partition.positions(self.name, split, root, paths)
                self._key += f" {state}"
        elif partition is not None and split != WHOLE:
            assert labels is not None, f"{name} is drawn by class and has no labels"
            self._index_N = partition.positions(name, split, labels[0])
        if labels is not None:
            self.targets = {"class": labels[0][self._index_N]}
            self.classes = {"class": labels[1]}

    def __len__(self) -> int:
        return len(self._index_N)

    def open(self, index: int, page: int = 0) -> Image.Image:
        item = self._dataset[int(self._index_N[index])]
        image = item[0] if isinstance(item, tuple) else item
        if not isinstance(image, Image.Image):
            raise TypeError(f"expected an image, got {type(image).__name__}")
        return image

    def fingerprint(self) -> str:
        return hash_labels(self._key, str(len(self)), self.targets)


def open_torchvision(spec: str, root: Path, download: bool) -> TorchvisionSet:
    """Opens torchvision:NAME@SPLIT, its split for training where none is named."""
    name, _, split = spec.removeprefix("torchvision:").partition("@")
    return TorchvisionSet(name, split or "train", root, download)


def describe_torchvision(spec: str, _root: Path, _download: bool) -> SetDescription:
    """The splits that the catalogue names; train and test of a set that is not in it."""
    refuse_split(spec)
    usual = CATALOGUE.get(spec.removeprefix("torchvision:"), Usual())
    splits = {"train": usual.train, "val": usual.val, "test": usual.test}
    return SetDescription(split_names(spec, splits), usual.metric)


def labels_of(name: str, dataset: Any) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """The labels of a data set of torchvision.

    Returns:
        Labels (N,) int64, `UNLABELLED` of an image without one (STL10's unlabeled), and the
        classes' names, which are numbers where it has no names; None for a set without labels.
    """
    for values in _candidates(dataset):
        try:
            label_N = np.asarray(values)
        except ValueError:  # lists of unequal length: no labels of one class an image
            continue
        if label_N.ndim != 1 or label_N.dtype.kind not in "iu" or len(label_N) == 0:
            continue
        if len(label_N) != len(dataset):
            raise UserError(
                f"a label file of {name} does not fit its images: {len(label_N)} labels for "
                f"{len(dataset)} images."
            )
        label_N = np.maximum(label_N.astype(np.int64), UNLABELLED)
        highest = int(label_N.max())
        names = _names(dataset) or tuple(map(str, range(highest + 1)))
        if highest >= len(names):
            raise UserError(
                f"a label file of {name} does not fit its classes: the highest label is "
                f"{highest}, and there are {len(names)} classes, from 0."
            )
        return label_N, names
    return None


def _candidates(dataset: Any) -> Iterator[Any]:
    """What may be the labels; torchvision has a name for them in every decade of its sets."""
    for attribute in ("targets", "labels", "_labels", "y"):
        values = getattr(dataset, attribute, None)
        if values is not None:
            yield values
    # Pairs: (file, label) of StanfordCars, GTSRB and others, (label, file) of INaturalist.
    for attribute, at in (("_samples", 1), ("index", 0)):
        pairs = getattr(dataset, attribute, None)
        if pairs and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            yield [pair[at] for pair in pairs]


def _names(dataset: Any) -> tuple[str, ...]:
    # Places365 sorts its `classes` by name, whatever their numbers.
    numbers = getattr(dataset, "class_to_idx", None) or {}
    if sorted(numbers.values()) == list(range(len(numbers))):
        names = sorted(numbers, key=numbers.__getitem__)
    else:
        names = []
    for attribute in ("classes", "categories", "all_categories"):
        names = names or getattr(dataset, attribute, None) or []
    # ImageNet has several words for a class.
    return tuple(", ".join(name) if isinstance(name, tuple) else str(name) for name in names)


@final
class HuggingFaceSet(Source):
    """A data set of the Hugging Face hub, or a local folder that `datasets` can load.

    Every ClassLabel column is a task, and every column of lists of them one of several labels;
    where there is none, the column of text, whole numbers or lists that is called as labels are.
    Without `download` only what is in `root`, the cache, is used. The
    images are those of `column`; by its name, or the only one, if not given.
    """

    def __init__(
        self, name: str, split: str, root: Path, download: bool = False, column: str | None = None
    ) -> None:
        self.name = f"hf:{name}@{split}" + (f"#{column}" if column else "")
        try:
            import datasets
        except ImportError as error:
            raise UserError(
                f"{self.name} needs the package `datasets`: pip install 'mast-ssl[hf]'."
            ) from error
        local = datasets.DownloadConfig(cache_dir=str(root), local_files_only=not download)
        try:
            with _network(datasets, download):
                loaded = datasets.load_dataset(
                    name, split=split, cache_dir=str(root), download_config=local
                )
        except Exception as error:  # the hub's client raises many kinds
            hint = f" Only the cache was tried: allow the download ({ROOT_AND_DOWNLOAD})."
            hint = "" if download else hint
            raise UserError(f"cannot load {self.name}: {error}{hint}") from error
        features = dict(loaded.features)
        kinds = {column: type(feature).__name__ for column, feature in features.items()}
        images = [column for column, kind in kinds.items() if kind == "Image"]
        if not images:
            raise UserError(f"{self.name} has no column of images, only {kinds}.")
        self._column = image_column(self.name, images, column)
        self.targets, self.classes, self.multilabels = {}, {}, {}
        # Of a list what it holds: lists are called List, LargeList or, in older versions, Sequence.
        held: dict[str, Any] = {name: getattr(of, "feature", of) for name, of in features.items()}
        labels = [name for name, of in held.items() if type(of).__name__ == "ClassLabel"]
        text_or_whole = re.compile(r"u?int\d+|bool|(large_)?string")
        plain = [
            name
            for name, of in held.items()
            if type(of).__name__ == "Value" and text_or_whole.fullmatch(of.dtype)
        ]
        for label in labels or filter(None, [label_column(plain)]):
            values, task = list(loaded[label][:]), label.replace("/", "-")  # results: TASK/MEASURE
            several = held[label] is not features[label]
            flat = [each for row in values for each in row or ()] if several else values
            label_T, self.classes[task] = numbered(flat)
            if labels:
                self.classes[task] = tuple(held[label].names)
            if several:
                row_T = np.repeat(np.arange(len(values)), [len(row or ()) for row in values])
                label_NC = np.zeros((len(values), len(self.classes[task])), np.int8)
                label_NC[[row is None for row in values]] = UNLABELLED
                label_NC[row_T[label_T >= 0], label_T[label_T >= 0]] = 1
                self.multilabels[task] = label_NC
            else:
                self.targets[task] = label_T
        self._version = str(getattr(loaded, "_fingerprint", ""))
        # The encoded bytes: our own decoder treats every mode, and JPEGs at a reduced scale.
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
    """Opens hf:owner/name@SPLIT, its split for training where none is named."""
    whole, column = split_column(spec)
    name, _, split = whole.removeprefix("hf:").partition("@")
    if not split:
        parts = describe_hugging_face(whole, root, download).parts
        split = parts.get("train", parts.get(WHOLE, "")).rpartition("@")[2]
    return HuggingFaceSet(name, split, root, download, column)


def describe_hugging_face(spec: str, root: Path, download: bool) -> SetDescription:
    """The splits that are called as parts; one alone is a whole set, of which some is tested."""
    whole, column = split_column(spec)
    refuse_split(whole)
    names = _splits(whole.removeprefix("hf:"), root, download)
    found = parts_among(names) or parts_among([name for name in names if part_of(name)])
    if len(found) < 2:
        found = {WHOLE: found.get("train", names)}
    if any(len(of) > 1 for of in found.values()):
        raise UserError(
            f"{whole} has the splits {', '.join(names)}, which do not say what is learned from and "
            f"what is tested: name one as {whole}@{names[0]}, or parts by train, val and test"
        )
    end = f"#{column}" if column else ""
    return SetDescription({part: f"{whole}@{of[0]}{end}" for part, of in found.items()})


def _splits(name: str, root: Path, download: bool) -> list[str]:
    """The splits of a set; train and test of one that is not known here, as most have these."""
    try:
        import datasets

        with _network(datasets, download):
            local = datasets.DownloadConfig(cache_dir=str(root), local_files_only=not download)
            found = datasets.get_dataset_split_names(
                name, cache_dir=str(root), download_config=local
            )
        return list(map(str, found))
    except Exception:  # opening it says why
        return ["train", "test"]


@contextmanager
def _network(datasets: Any, allowed: bool) -> Iterator[None]:
    """Keeps the hub's client off the network, which `local_files_only` alone does not do."""
    import huggingface_hub

    places = [(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)]
    if not allowed:
        places.append((datasets.config, "HF_HUB_OFFLINE", True))
        places.append((huggingface_hub.constants, "HF_HUB_OFFLINE", True))
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, value in places:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(places, before, strict=True):
            setattr(module, name, value)
