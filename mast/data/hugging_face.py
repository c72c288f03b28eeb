"""Data sets of the Hugging Face hub; nothing is downloaded unless the user asked for it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, final

import numpy as np

from mast.core.errors import UserError
from mast.data.decode import Opened, open_image
from mast.data.labels import image_column, label_column, numbered, split_column
from mast.data.source import (
    ROOT_AND_DOWNLOAD,
    UNLABELLED,
    SetDescription,
    Source,
    hash_labels,
    refuse_split,
    split_names,
)


@final
class HuggingFace(Source):
    """A data set of the Hugging Face hub, or a local folder that `datasets` can load.

    Every ClassLabel column is a task; where there is none, the column of text or whole numbers that
    is called as labels are.

    Args:
        name: `owner/name` on the hub, or a path.
        split: Name of the split.
        root: The cache folder of `datasets`.
        download: Whether the hub may be asked; without it, only what is cached is used.
        column: The column of the images; by its name, or the only one, if not given.

    Raises:
        UserError: If `datasets` is not installed, the set is not found, or it has no image.
    """

    def __init__(
        self,
        name: str,
        split: str,
        root: Path,
        download: bool = False,
        column: str | None = None,
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
        kinds = {column: type(feature).__name__ for column, feature in loaded.features.items()}
        images = [column for column, kind in kinds.items() if kind == "Image"]
        if not images:
            raise UserError(f"{self.name} has no column of images, only {kinds}.")
        self._column = image_column(self.name, images, column)
        self.targets, self.classes = {}, {}
        for label, feature in loaded.features.items():
            if kinds[label] == "ClassLabel":
                values = [UNLABELLED if value is None else value for value in loaded[label][:]]
                self.classes[label] = tuple(feature.names)
                self.targets[label] = np.maximum(np.array(values, np.int64), UNLABELLED)
        plain = [of for of, kind in kinds.items() if kind == "Value" and _is_label(loaded, of)]
        if not self.targets and (label := label_column(plain)):
            self.targets[label], self.classes[label] = numbered(list(loaded[label][:]))
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

    def identifier(self, index: int) -> str:
        return f"{index:06d}"

    def fingerprint(self) -> str:
        return hash_labels(self.name, self._version, self.targets)


def open_hugging_face(spec: str, root: Path, download: bool) -> HuggingFace:
    """Opens hf:owner/name@SPLIT, its split for training where none is named."""
    whole, column = split_column(spec)
    name, _, split = whole.removeprefix("hf:").partition("@")
    return HuggingFace(name, split or "train", root, download, column)


def describe_hugging_face(spec: str) -> SetDescription:
    """The splits train and test, which most sets have."""
    whole, column = split_column(spec)
    refuse_split(whole)
    parts = split_names(whole, {"train": "train", "test": "test"})
    end = f"#{column}" if column else ""
    return SetDescription({part: name + end for part, name in parts.items()})


def _is_label(loaded: Any, column: str) -> bool:
    """Whether a column of values holds text or whole numbers."""
    return bool(re.fullmatch(r"u?int\d+|bool|(large_)?string", loaded.features[column].dtype))


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
