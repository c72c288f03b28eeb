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
from mast.data.source import Source


@final
class Torchvision(Source):
    """A data set of `torchvision.datasets`, such as CIFAR10 or Flowers102.

    Args:
        name: Class name.
        split: Handed to the argument `train`, `split` or `image_set`, whichever the class has.
        root: The folder that holds the set, or is to hold it.
        download: Whether torchvision may download it.

    Raises:
        UserError: If the name or split is unknown, or the set is not in `root`.
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
        arguments: dict[str, Any] = {}
        if "root" in parameters:
            arguments["root"] = root
        if "download" in parameters:
            arguments["download"] = download
            root.mkdir(parents=True, exist_ok=True)
        if "train" in parameters:
            if split not in ("train", "test"):
                raise unknown(f"split of {name}", split, ("train", "test"))
            arguments["train"] = split == "train"
        else:
            arguments |= {key: split for key in ("split", "image_set") if key in parameters}
        try:
            self._dataset = dataset(**arguments)
        except (RuntimeError, ValueError, OSError, TypeError) as error:
            hint = "" if download else " To let torchvision fetch it, allow the download."
            raise UserError(f"torchvision's {name} in {root}: {error}{hint}") from error
        self.targets, self.classes = self._labels()

    def _labels(self) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
        # torchvision has three names for the same list; a set with none of them has no labels here.
        for attribute in ("targets", "labels", "_labels"):
            target_N = np.asarray(getattr(self._dataset, attribute, ()))
            if target_N.shape == (len(self._dataset),) and target_N.dtype.kind in "iu":
                count = int(target_N.max(initial=-1)) + 1
                names = getattr(self._dataset, "classes", None) or range(count)
                return {"class": target_N.astype(np.int64)}, {"class": tuple(map(str, names))}
        return {}, {}

    def __len__(self) -> int:
        return len(self._dataset)

    def open(self, index: int) -> Image.Image:
        item = self._dataset[index]
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
