"""What a source of images fulfils, and what a row of the registry of sources says.

Legend: N images, H height, W width, C classes of a task.
"""

import hashlib
import logging
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Literal, final

import numpy as np
from PIL import Image

from mast.core.errors import UserError
from mast.core.reading import Reading
from mast.data.bands import Bands, is_deep, page_numbers
from mast.data.decode import (
    BrokenImageError,
    Opened,
    to_canvas,
    to_pixels,
    to_test_view,
    upright_size,
)

Metric = Literal["top1", "mean_per_class", "mAP"]
Pages = Literal["first", "all"]

# Where a set is searched for and whether it may be fetched; the other commands take what is there.
ROOT_AND_DOWNLOAD = (
    "--data.root and --data.download of mast pretrain, --root and --download of mast evaluate, "
    "root and download=True in Python"
)

UNLABELLED = -1  # the label of an image that has none
SHARDS = "shards:"  # which a training reads in order (`mast.data.loader`)
SAMPLE = 64  # images by which a range is found
_SEEN = 100_000_000  # pixels of those that are decoded when they are opened
_log = logging.getLogger("mast")


class Source(ABC):
    """Images by index, with names and, where the set has them, labels.

    `open`, `load` and `canvas` are called from several threads at once.

    Attributes:
        name: What the user called it.
        targets: Label arrays, each (N,) int64, by task, `UNLABELLED` of an image without a label;
            empty where there are no labels.
        multilabels: Labels of tasks in which an image has several classes or none, each (N, C)
            int8 by task: 1 present, 0 absent, -1 unknown, which is neither right nor wrong.
        classes: Class names by task, with the keys of `targets` and of `multilabels`.
        pages: Which pages or frames of a file are images: "first" or "all".
        max_pixels: The most that an image may have; Pillow's bound if not given.
    """

    name: str
    targets: dict[str, np.ndarray]
    classes: dict[str, tuple[str, ...]]
    multilabels: Mapping[str, np.ndarray] = MappingProxyType({})
    pages: Pages = "first"
    max_pixels: int | None = None

    @abstractmethod
    def __len__(self) -> int:
        """The number of images."""

    @abstractmethod
    def open(self, index: int, page: int = 0) -> Opened:
        """Opens one image, or another page of its file; its pixels may not be decoded yet."""

    @abstractmethod
    def identifier(self, index: int) -> str:
        """A name for one image that finds it again: a relative path or an index."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes when the images may have changed; cheap, without decoding."""

    @cached_property
    def stacks(self) -> set[int]:
        """Files of several pages or frames among those that were decoded; the first is read."""
        return set()

    def size(self, index: int) -> tuple[int, int]:
        """Height and width of one upright image in pixels, without decoding it if possible.

        Raises:
            Exception: Of many kinds, where it cannot be opened.
        """
        with self.open(index) as image:
            width, height = upright_size(image)
        return height, width

    def together(self, index: int) -> range:
        """The images that are decoded with one in one go: it alone, or the tiles of its scene."""
        return range(index, index + 1)

    @cached_property
    def deep(self) -> set[int]:
        """Images of more than 8 bits among those that were decoded."""
        return set()

    @property
    def whereabouts(self) -> str:
        """What tells this set from every other; its name by default."""
        return self.name

    def load(self, index: int) -> np.ndarray:
        """One image at full size.

        Returns:
            (H, W, 3) uint8.

        Raises:
            BrokenImageError: If it cannot be decoded.
        """
        try:
            with self.open(index) as image:
                return to_pixels(image)
        except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
            raise self._broken(index, error) from error

    def canvas(
        self, index: int, side: int, reading: Reading | None = None
    ) -> tuple[np.ndarray, float]:
        """One whole image in its own shape.

        Args:
            index: Which image.
            side: Of a square with as many pixels as the canvas may have.
            reading: How the files of the set are read; by default as RGB of 8 bits.

        Returns:
            The canvas, (H, W, 3) uint8, or its sheets (S, H, W, 3) where it has another layout; and
            width / height of the original.

        Raises:
            BrokenImageError: If it cannot be decoded.
        """
        try:
            with self.open(index) as image:
                if isinstance(image, Bands) and is_deep(image):
                    self.deep.add(index)
                if self.pages == "first" and len(page_numbers(image)) > 1:
                    self.stacks.add(index)
                return to_canvas(image, side, reading)
        except Exception as error:
            raise self._broken(index, error) from error

    def test_view(self, index: int, size: int, reading: Reading | None = None) -> np.ndarray:
        """The view of one image by which an encoder is tested.

        Args:
            index: Which image.
            size: Side of the view in pixels, V.
            reading: As of `canvas`.

        Returns:
            (3, V, V) uint8, or the planes (P, V, V) of another layout.

        Raises:
            BrokenImageError: If it cannot be decoded.
        """
        try:
            with self.open(index) as image:
                return to_test_view(image, size, reading)
        except Exception as error:
            raise self._broken(index, error) from error

    def _broken(self, index: int, error: Exception) -> BrokenImageError:
        name = self.identifier(index)
        alone = len(self) == 1 and self.name.endswith(name)  # one file, which is the set
        return BrokenImageError.of(self.name if alone else f"{self.name}/{name}", error)


@final
@dataclass(frozen=True)
class SetDescription:
    """The parts of a labelled set.

    Attributes:
        parts: What `open_source` takes, by "train", "val" and "test"; not every set has all three.
            Of a folder with none of them all images, by "all".
        metric: "top1", "mean_per_class" (the mean over classes of the accuracy within one) or
            "mAP" (the mean over classes of the average precision).
    """

    parts: Mapping[str, str]
    metric: Metric = "top1"

    def with_test(self) -> "SetDescription":
        """The same, but that val is the test part where there is no other, as of ImageNet."""
        if "test" in self.parts or not {"train", "val"} <= self.parts.keys():
            return self
        return replace(self, parts={"train": self.parts["train"], "test": self.parts["val"]})


@final
@dataclass(frozen=True)
class Scheme:
    """A way of naming sets: a row of `SOURCES`.

    Attributes:
        title: What such sets are.
        examples: Names of this kind.
        open: Opens the images of one split. Takes the name as the user wrote it, the folder where
            downloaded sets are, and whether the network may be used.
        describe: The parts of the whole set of a name, without opening one.
        alone: Whether the scheme's word is a name by itself, as `factors` is.
    """

    title: str
    examples: tuple[str, ...]
    open: Callable[[str, Path, bool], Source]
    describe: Callable[[str], SetDescription]
    alone: bool = False


def tell_of_stacks(name: str, stacks: Sequence[str], count: int) -> None:
    """Says how many images of a set are the first pages of files whose others are not read."""
    if stacks:
        _log.warning(
            "%d of %d images of %s are the first of several pages or frames in a file; the others "
            "are not read (--data.pages all, or #pages=all behind the name, reads them): %s",
            len(stacks), count, name, ", ".join([*stacks[:3], *["…"] * (len(stacks) > 3)]),
        )  # fmt: skip


def split_names(name: str, splits: Mapping[str, str | None]) -> dict[str, str]:
    """The name of every part.

    Args:
        name: Of the whole set.
        splits: What the set calls its split, by part; None where it has none.

    Returns:
        What `open_source` takes, by part.
    """
    return {part: f"{name}@{split}" for part, split in splits.items() if split is not None}


def refuse_split(name: str) -> None:
    """Checks that a name is that of a whole set.

    Raises:
        UserError: It names a single split.
    """
    whole, _, split = name.rpartition("@")
    if whole:
        raise UserError(
            f"{name} is the split {split!r} alone: expected the whole set, {whole}, or its parts "
            "as train, val and test."
        )


def hash_labels(key: str, version: str, targets: Mapping[str, np.ndarray]) -> str:
    """A fingerprint of a set whose images cannot be looked at cheaply: its version and labels."""
    digest = hashlib.blake2b(f"{key} {version}".encode(), digest_size=16)
    for target_N in targets.values():
        digest.update(target_N.tobytes())
    return digest.hexdigest()


def sampled(source: Source, among: Sequence[int] = ()) -> Iterator[Image.Image | Bands]:
    """Some images of a set, always the same, each open until the next is asked for.

    Args:
        source: The set.
        among: The indices of which they are; all if there are none.
    """
    seen = 0
    indices = among or range(len(source))
    for index in random.Random(0).sample(indices, min(SAMPLE, len(indices))):
        try:
            with source.open(index) as image:
                seen += math.prod(image.size) if isinstance(image, Bands) else 0
                yield image
        except Exception:  # a broken one is counted when all are decoded
            continue
        if seen > _SEEN:
            return
