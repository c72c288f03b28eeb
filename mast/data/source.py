"""What a source of images fulfils, and how the sets of a registry are described.

Legend: N images, H height, W width, C classes of a task.
"""

import hashlib
import logging
import math
import os
import random
import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast, final

import numpy as np
from PIL import Image

from mast.core.errors import UserError, unknown
from mast.core.files import named, spelling
from mast.core.reading import Reading
from mast.data.decode import (
    Opened,
    naming,
    to_canvas,
    to_pixels,
    to_test_view,
    upright,
    upright_size,
)
from mast.data.formats import Bands, date_taken, page_numbers

Metric = Literal["top1", "mean_per_class", "mAP"]
Pages = Literal["first", "all"]
# Where a set is searched for and whether it may be fetched; the other commands take what is there.
ROOT_AND_DOWNLOAD = (
    "data.root and --download of mast pretrain, --root and --download of mast evaluate, "
    "root and download=True in Python"
)
UNLABELLED = -1  # the label of an image that has none
SHARDS = "shards:"  # which a training reads in order (`mast.data.loader`)
SAMPLE = 64  # images by which a range is found
_SEEN = 100_000_000  # pixels of those that are decoded when they are opened
_log = logging.getLogger("mast")


class Look(NamedTuple):
    """What is seen of an image that is decoded once."""

    canvas: np.ndarray  # as of `Source.canvas`
    aspect: float  # width / height of the original
    view: np.ndarray  # as of `Source.test_view`
    full_size: tuple[int, int]  # width and height of the original in pixels
    taken: str = ""  # its EXIF date


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

    def identifier(self, index: int) -> str:
        """A name for one image that finds it again: a relative path or, by default, its index."""
        return f"{index:06d}"

    def path(self, index: int) -> Path | None:
        """The file that one image is read from; None of one in a file of many, or in none."""
        return None

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes when the images may have changed; cheap, without decoding."""

    def hash_files(
        self, paths: Iterable[str], states: Iterable[tuple[int, int]], said: str = ""
    ) -> str:
        """A fingerprint by every file's path, size in bytes and time of modification.

        An edit that keeps all three does not happen by accident. The content itself is hashed when
        the canvases are made.
        """
        digest = hashlib.blake2b(said.encode(), digest_size=16)
        for path, (size, modified) in zip(paths, states, strict=True):
            digest.update(f"{path}\0{size}\0{modified}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @cached_property
    def stacks(self) -> set[int]:
        """Files of several pages or frames among those that were decoded; the first is read."""
        return set()

    def size(self, index: int) -> tuple[int, int]:
        """Height and width of one upright image in pixels, without decoding it if possible."""
        with self.open(index) as image:
            width, height = upright_size(image)
        return height, width

    def together(self, index: int) -> range:
        """The images that are decoded with one in one go: it alone, or the tiles of its scene."""
        return range(index, index + 1)

    @property
    def whereabouts(self) -> str:
        """What tells this set from every other; its name by default."""
        return self.name

    def load(self, index: int) -> np.ndarray:
        """One image at full size, (H, W, 3) uint8."""
        with naming(lambda: self.called(index)), self.open(index) as image:
            return to_pixels(image)

    def canvas(
        self, index: int, side: int, reading: Reading | None = None
    ) -> tuple[np.ndarray, float]:
        """One whole image in its own shape, with the pixels of a square of `side` at most.

        Returns:
            The canvas, (H, W, 3) uint8, or its sheets (S, H, W, 3) where `reading` has another
            layout; and width / height of the original.

        Raises:
            BrokenImageError: It cannot be decoded; so `load` and `test_view`.
        """
        with naming(lambda: self.called(index)), self.open(index) as image:
            self.note(index, image)
            return to_canvas(image, side, reading)

    def test_view(self, index: int, size: int, reading: Reading | None = None) -> np.ndarray:
        """The view of `size` pixels of one image by which an encoder is tested.

        Returns:
            (3, V, V) uint8, or the planes (P, V, V) of another layout.
        """
        with naming(lambda: self.called(index)), self.open(index) as image:
            return to_test_view(image, size, reading)

    def look(self, index: int, side: int, size: int, reading: Reading) -> "Look":
        """`canvas` and `test_view` of one image, which is decoded once, and at its full size."""
        with naming(lambda: self.called(index)), self.open(index) as image:
            self.note(index, image)
            taken, full_size = date_taken(image), upright_size(image)
            whole = upright(image) if reading == Reading() else image
            view = to_test_view(whole, size, reading)
            return Look(*to_canvas(whole, side, reading), view, full_size, taken)

    def called(self, index: int) -> str:
        """What an error calls an image."""
        name = self.identifier(index)
        alone = len(self) == 1 and self.name.endswith(name)  # one file, which is the set
        return self.name if alone else f"{self.name}/{name}"

    def digest(self, index: int) -> bytes:
        """A hash of the pixels of all pages or frames of a file; its own of one that is broken."""
        digest = hashlib.blake2b(digest_size=16)
        try:
            with self.open(index) as image:
                for page in page_numbers(image):
                    if isinstance(image, Bands):
                        with self.open(index, page) as other:
                            pixels_HWC = cast(Bands, other).values_HWC
                    else:
                        image.seek(page)
                        pixels_HWC = to_pixels(image)
                    digest.update(repr(pixels_HWC.shape).encode() + pixels_HWC.tobytes())
        except Exception:
            digest.update(self.identifier(index).encode("utf-8", "surrogateescape"))
        return digest.digest()

    def note(self, index: int, image: Opened) -> None:
        """Remember an image that is opened, where its file has several pages."""
        if self.pages == "first" and len(page_numbers(image)) > 1:
            self.stacks.add(index)


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
        examples: Names of this kind.
        open: Opens the images of one split. Takes the name as the user wrote it, the folder where
            downloaded sets are, and whether the network may be used.
        describe: The parts of the whole set of a name, without opening one; takes the same.
        alone: Whether the scheme's word is a name by itself, as `factors` is.
    """

    examples: tuple[str, ...]
    open: Callable[[str, Path, bool], Source]
    describe: Callable[[str, Path, bool], SetDescription]
    alone: bool = False


def warn_of_stacks(name: str, stacks: Sequence[str], count: int) -> None:
    """Warns of images that are the first pages of files whose other pages are not read."""
    if stacks:
        _log.warning(
            "%d of %d images of %s are the first of several pages or frames in a file; the others "
            "are not read (data.pages=all, or #pages=all behind the name, reads them): %s",
            len(stacks), count, name, ", ".join([*stacks[:3], *["…"] * (len(stacks) > 3)]),
        )  # fmt: skip


def split_names(name: str, splits: Mapping[str, str | None]) -> dict[str, str]:
    """What `open_source` takes, by part, from the set's names of its splits; None has none."""
    return {part: f"{name}@{split}" for part, split in splits.items() if split is not None}


def refuse_split(name: str) -> None:
    """Checks that a name is that of a whole set."""
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


def sampled(source: Source) -> Iterator[Image.Image | Bands]:
    """Some images of a set, always the same, each open until the next is asked for."""
    seen = 0
    for index in random.Random(0).sample(range(len(source)), min(SAMPLE, len(source))):
        try:
            with source.open(index) as image:
                seen += math.prod(image.size) if isinstance(image, Bands) else 0
                yield image
        except Exception:  # a broken one is counted when all are decoded
            continue
        if seen > _SEEN:
            return


PARTS = ("train", "val", "test")
_WORDS = {
    "train": re.compile(r"train(ing)?(set|data)?"),
    "val": re.compile(r"(val(id(ation)?)?|dev)(set|data)?"),
    "test": re.compile(r"test(ing)?(set|data)?"),
}
_PLAIN = frozenset({"set", "data", "dataset", "image", "images"})  # which no affix is made of


def part_of(name: str) -> tuple[str, str] | None:
    """The part that a name stands for, and what else it says: ("train", "seg") for `seg_train`.

    Case, digits and whatever stands between words do not count. None where no word is a part's,
    or words of two are.
    """
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    found = [
        (part, at)
        for at, word in enumerate(words)
        for part, of in _WORDS.items()
        if of.fullmatch(word)
    ]
    if len(found) != 1:
        return None
    ((part, place),) = found
    return part, " ".join(w for at, w in enumerate(words) if at != place and w not in _PLAIN)


def parts_among(names: Iterable[str]) -> dict[str, list[str]]:
    """The names that stand for parts of one set, by part; empty where they may well be classes.

    Such are a training part and another one that differ in nothing else (`seg_train`, `seg_test`),
    and names that say no more than a part, where there are no others. A part has several names
    where these do not tell which one it is.
    """
    groups, others = defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list)), False
    for name in names:
        if known := part_of(name):
            part, affix = known
            groups[affix][part].append(name)
        else:
            others = True
    whole = {affix: of for affix, of in groups.items() if "train" in of and len(of) > 1}
    if not whole and groups.keys() == {""} and not others:
        whole = groups
    found = [whole[""]] if "" in whole else list(whole.values())
    return {
        part: [part] if part in of else of
        for part in PARTS
        if (of := [name for group in found for name in group.get(part, ())])
    }


WHOLE = "all"  # the name for all images, where a split is named
_NUMBERED = 2**16  # classes at most that are called by all numbers up to the highest


def unique_names(names: Sequence[str], numbers: Sequence[object] | None = None) -> tuple[str, ...]:
    """Names of classes, with its number behind each that several share: ImageNet has two cranes.

    Numbers are what the set calls each, its position by default. What UTF-8 cannot hold is escaped,
    and all are of one Unicode form.
    """
    numbers = range(len(names)) if numbers is None else numbers
    names = [*map(spelling, names)]
    while len(counts := Counter(names)) < len(names):
        names = [
            f"{name} ({number})" if counts[name] > 1 else name
            for name, number in zip(names, numbers, strict=True)
        ]
    return tuple(names)


def numbered(values: Sequence[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Texts or whole numbers as labels (N,) int64 and the names of the classes.

    None, "" and numbers below 0 are `UNLABELLED`.
    """
    if any(isinstance(value, str) for value in values):
        values = [value and spelling(value) for value in values]
        known = sorted({value for value in values if value})
        number = {value: at for at, value in enumerate(known)}
        return np.array([number.get(value, UNLABELLED) for value in values], np.int64), tuple(known)
    return by_number(
        np.array([UNLABELLED if value is None else int(value) for value in values], np.int64)
    )


def by_number(number_N: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels (N,) that are numbers without names, which stay as they are unless they are very high.

    So parts agree even if a class is missing in one.
    """
    label_N = np.maximum(number_N, UNLABELLED)
    highest = int(label_N.max(initial=UNLABELLED))
    if highest < _NUMBERED:
        return label_N, tuple(map(str, range(highest + 1)))
    known, found_N = np.unique(label_N, return_inverse=True)
    below = int(known[0] == UNLABELLED)  # which is no class
    return found_N.reshape(-1) - below, tuple(map(str, known[below:].tolist()))


IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")  # what columns of images are called
LABELS = ("cls", "label", "labels", "class")  # what columns of labels are called


def split_column(spec: str) -> tuple[str, str | None]:
    """A name without the column behind its last #, and that column; None where none is named."""
    before, sign, column = spec.rpartition("#")
    if not sign or "/" in column or "@" in column or os.path.exists(named(spec.partition(":")[2])):
        return spec, None
    return before, column


def image_column(name: str, columns: Sequence[str], wanted: str | None = None) -> str:
    """The column of the images: the one that the user names, is called so, or is the only one."""
    if wanted is not None:
        if wanted not in columns:
            raise unknown(f"column of images of {name}", wanted, columns)
        return wanted
    called = [of for kind in IMAGES for of in columns if of.lower() == kind]
    if not called and len(columns) > 1:
        raise UserError(
            f"{name} has several columns of images, {', '.join(columns)}: name one of them, as in "
            f"{name}#{columns[0]}"
        )
    chosen, *_ = [*called, *columns]
    if len(columns) > 1:
        others = ", ".join(of for of in columns if of != chosen)
        _log.warning("%s: the images are those of the column %s, not of %s; %s#COLUMN takes "
                     "another", name, chosen, others, name)  # fmt: skip
    return chosen


def label_column(columns: Sequence[str]) -> str | None:
    """The column of the labels by its name, small letters first; None where there is none."""
    called = [of for kind in LABELS for of in sorted(columns, reverse=True) if of.lower() == kind]
    return next(iter(called), None)
