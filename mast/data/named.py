"""Data sets that torchvision and Hugging Face `datasets` know by name.

Nothing is downloaded unless the user asked for it.
"""

import hashlib
import inspect
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import numpy as np
from PIL import Image

from mast.core.errors import UserError, unknown
from mast.data.catalogue import CATALOGUE, Usual
from mast.data.labels import labels_of
from mast.data.partition import WHOLE, Drawn, Listed
from mast.data.source import Source

_SPLIT_ARGUMENTS = ("train", "split", "image_set", "version")


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

        known = [key for key, value in vars(datasets).items() if _is_dataset(value, datasets)]
        if name not in known:
            raise unknown("torchvision data set", name, sorted(known))
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
        if key is not None:
            arguments[key] = split == "train" if key == "train" else split
        try:
            self._dataset = dataset(**arguments)
        except LookupError as error:  # a class or an image that one file has and another lacks
            raise UserError(
                f"a label file of torchvision's {name} in {root} does not fit the others: "
                f"{error} is in one and not in another."
            ) from error
        except Exception as error:  # torchvision and what reads its files raise many kinds
            missing = isinstance(error, (RuntimeError, OSError)) and not download
            hint = " To let torchvision fetch it, allow the download." if missing else ""
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

    def open(self, index: int) -> Image.Image:
        item = self._dataset[int(self._index_N[index])]
        image = item[0] if isinstance(item, tuple) else item
        if not isinstance(image, Image.Image):
            raise TypeError(f"expected an image, got {type(image).__name__}")
        return image

    def identifier(self, index: int) -> str:
        return f"{index:06d}"

    def fingerprint(self) -> str:
        return _hash(self._key, str(len(self)), self.targets)


@final
class HuggingFace(Source):
    """A data set of the Hugging Face hub, or a local folder that `datasets` can load.

    The image column is the first of type Image; every ClassLabel column is a task.

    Args:
        name: `owner/name` on the hub, or a path.
        split: Name of the split.
        root: The cache folder of `datasets`.
        download: Whether the hub may be asked; without it, only what is cached is used.

    Raises:
        UserError: If `datasets` is not installed, the set is not found, or it has no image.
    """

    def __init__(self, name: str, split: str, root: Path, download: bool = False) -> None:
        self.name = f"hf:{name}@{split}"
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
            hint = "" if download else " Only what is cached was tried: allow the download."
            raise UserError(f"cannot load {self.name}: {error}{hint}") from error
        kinds = {column: type(feature).__name__ for column, feature in loaded.features.items()}
        images = [column for column, kind in kinds.items() if kind == "Image"]
        if not images:
            raise UserError(f"{self.name} has no column of images, only {kinds}.")
        self._column = images[0]
        labels = [column for column, kind in kinds.items() if kind == "ClassLabel"]
        self.targets = {column: np.asarray(loaded[column][:], np.int64) for column in labels}
        self.classes = {column: tuple(loaded.features[column].names) for column in labels}
        self._version = str(getattr(loaded, "_fingerprint", ""))
        # The encoded bytes: our own decoder treats every mode, and JPEGs at a reduced scale.
        self._images = loaded.select_columns([self._column]).cast_column(
            self._column, datasets.Image(decode=False)
        )

    def __len__(self) -> int:
        return len(self._images)

    def open(self, index: int) -> Image.Image:
        encoded = self._images[index][self._column]
        return Image.open(io.BytesIO(encoded["bytes"]) if encoded["bytes"] else encoded["path"])

    def identifier(self, index: int) -> str:
        return f"{index:06d}"

    def fingerprint(self) -> str:
        return _hash(self.name, self._version, self.targets)


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


def _hash(key: str, version: str, targets: dict[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(f"{key} {version}".encode(), digest_size=16)
    for target_N in targets.values():
        digest.update(target_N.tobytes())
    return digest.hexdigest()


@contextmanager
def _network(datasets: Any, allowed: bool) -> Iterator[None]:
    """Keeps the hub's client off the network, which `local_files_only` alone does not do.

    Its environment variable is read once, at import; what it was read into is set here instead.
    Where the network is allowed, it still does not report which set was opened.
    """
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
