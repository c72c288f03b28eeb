"""The contract of a source of images, and the rows of their registry.

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
# Options for the folder of sets and for downloads; other commands use existing sets only.
ROOT_AND_DOWNLOAD = (
    "data.root and --download of mast pretrain, --root and --download of mast evaluate, "
    "root and download=True in Python"
)
UNLABELLED = -1  # label of images without one
SHARDS = "shards:"  # streamed in training (`mast.data.loader`)
SAMPLE = 64  # images to estimate a range from
_SEEN = 100_000_000  # total pixels of those that are decoded on opening
_log = logging.getLogger("mast")


class Look(NamedTuple):
    """Canvas, test view and metadata of an image, from one decoding."""

    canvas: np.ndarray  # as from `Source.canvas`
    aspect: float  # width / height of the original
    view: np.ndarray  # as from `Source.test_view`
    full_size: tuple[int, int]  # width and height of the original in pixels
    taken: str = ""  # its EXIF date


class Source(ABC):
    """Images by index, with names and, if available, labels.

    `open`, `load` and `canvas` must be thread-safe.

    Attributes:
        name: The user's name of the set.
        targets: Label arrays, each (N,) int64, by task; `UNLABELLED` for images without a label;
            empty without labels.
        multilabels: Labels of tasks in which an image has several classes or none, each (N, C)
            int8 by task: 1 present, 0 absent, -1 unknown, which does not count.
        classes: Class names by task of `targets` and `multilabels`.
        pages: Pages or frames of a file that are images: "first" or "all".
        max_pixels: Largest number of pixels of an image; Pillow's bound by default.
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
        """Open an image, or another page of its file, perhaps without decoding it."""

    def identifier(self, index: int) -> str:
        """A stable name of an image: a relative path or, by default, its index."""
        return f"{index:06d}"

    def path(self, index: int) -> Path | None:
        """The file of an image; None if it has none of its own."""
        return None

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes if images may have changed; cheap, without decoding."""

    def hash_files(
        self, paths: Iterable[str], states: Iterable[tuple[int, int]], said: str = ""
    ) -> str:
        """A fingerprint of every file's path, size in bytes and modification time.

        Edits that preserve all three do not happen by accident. The content is hashed when canvases
        are built.
        """
        digest = hashlib.blake2b(said.encode(), digest_size=16)
        for path, (size, modified) in zip(paths, states, strict=True):
            digest.update(f"{path}\0{size}\0{modified}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @cached_property
    def stacks(self) -> set[int]:
        """Decoded files with several pages or frames whose first page alone was read."""
        return set()

    def size(self, index: int) -> tuple[int, int]:
        """Height and width of an upright image in pixels, if possible without decoding."""
        with self.open(index) as image:
            width, height = upright_size(image)
        return height, width

    def together(self, index: int) -> range:
        """The images decoded together with this one: itself, or all tiles of its scene."""
        return range(index, index + 1)

    @property
    def whereabouts(self) -> str:
        """An identifier of this set; by default its name."""
        return self.name

    def load(self, index: int) -> np.ndarray:
        """An image at full size, (H, W, 3) uint8."""
        with naming(lambda: self.called(index)), self.open(index) as image:
            return to_pixels(image)

    def canvas(
        self, index: int, side: int, reading: Reading | None = None
    ) -> tuple[np.ndarray, float]:
        """A whole image, shrunk to at most `side` × `side` pixels in total.

        Returns:
            The canvas, (H, W, 3) uint8, or its sheets (S, H, W, 3) if `reading` has another
            layout; and width / height of the original.

        Raises:
            BrokenImageError: The image cannot be decoded; likewise for `load` and `test_view`.
        """
        with naming(lambda: self.called(index)), self.open(index) as image:
            self.note(index, image)
            return to_canvas(image, side, reading)

    def test_view(self, index: int, size: int, reading: Reading | None = None) -> np.ndarray:
        """The central view of `size` pixels for testing encoders.

        Returns:
            (3, V, V) uint8, or the planes (P, V, V) of another layout.
        """
        with naming(lambda: self.called(index)), self.open(index) as image:
            return to_test_view(image, size, reading)

    def look(self, index: int, side: int, size: int, reading: Reading) -> "Look":
        """`canvas` and `test_view` of an image, from one decoding at full size."""
        with naming(lambda: self.called(index)), self.open(index) as image:
            self.note(index, image)
            taken, full_size = date_taken(image), upright_size(image)
            whole = upright(image) if reading == Reading() else image
            view = to_test_view(whole, size, reading)
            return Look(*to_canvas(whole, side, reading), view, full_size, taken)

    def called(self, index: int) -> str:
        """Name of an image in errors."""
        name = self.identifier(index)
        alone = len(self) == 1 and self.name.endswith(name)  # the set is one file
        return self.name if alone else f"{self.name}/{name}"

    def digest(self, index: int) -> bytes:
        """A hash of the pixels of all pages or frames of a file; unique for broken files."""
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
        """Record a file if it has several pages."""
        if self.pages == "first" and len(page_numbers(image)) > 1:
            self.stacks.add(index)


@final
@dataclass(frozen=True)
class SetDescription:
    """The parts of a labeled set.

    Attributes:
        parts: Names for `open_source` of "train", "val" and "test", as far as they exist. For a
            folder without any, "all" has all images.
        metric: "top1", "mean_per_class" (the mean over classes of the accuracy within one) or
            "mAP" (the mean over classes of the average precision).
    """

    parts: Mapping[str, str]
    metric: Metric = "top1"

    def with_test(self) -> "SetDescription":
        """The same, with val as the test part if there is no other, as for ImageNet."""
        if "test" in self.parts or not {"train", "val"} <= self.parts.keys():
            return self
        return replace(self, parts={"train": self.parts["train"], "test": self.parts["val"]})


@final
@dataclass(frozen=True)
class Scheme:
    """A scheme of set names: a row of `SOURCES`.

    Attributes:
        examples: Example names.
        open: Opens the images of a split. Takes the user's name of the set, the folder of
            downloaded sets, and whether the network may be used.
        describe: Lists the parts of a set without opening any; takes the same.
        alone: Whether the scheme's word alone is a name, like `factors`.
    """

    examples: tuple[str, ...]
    open: Callable[[str, Path, bool], Source]
    describe: Callable[[str, Path, bool], SetDescription]
    alone: bool = False


def warn_of_stacks(name: str, stacks: Sequence[str], count: int) -> None:
    """Warn about files whose first page alone is read."""
    if stacks:
        _log.warning(
            "%d of %d images of %s are the first of several pages or frames in a file; to read "
            "the others, too, set data.pages=all or append #pages=all to the name: %s",
            len(stacks), count, name, ", ".join([*stacks[:3], *["…"] * (len(stacks) > 3)]),
        )  # fmt: skip


def refuse_split(name: str) -> None:
    """Check that a name is that of a whole set."""
    whole, _, split = name.rpartition("@")
    if whole:
        raise UserError(
            f"data: expected the whole set, {whole}, or its parts as train, val and test, got "
            f"only the split {split!r}: {name}"
        )


def hash_labels(key: str, version: str, targets: Mapping[str, np.ndarray]) -> str:
    """A fingerprint from version and labels, for sets whose images are expensive to check."""
    digest = hashlib.blake2b(f"{key} {version}".encode(), digest_size=16)
    for target_N in targets.values():
        digest.update(target_N.tobytes())
    return digest.hexdigest()


def sampled(source: Source) -> Iterator[Image.Image | Bands]:
    """A fixed sample of a set, each image open until the next is requested."""
    seen = 0
    for index in random.Random(0).sample(range(len(source)), min(SAMPLE, len(source))):
        try:
            with source.open(index) as image:
                seen += math.prod(image.size) if isinstance(image, Bands) else 0
                yield image
        except Exception:  # broken images are counted when all are decoded
            continue
        if seen > _SEEN:
            return


PARTS = ("train", "val", "test")
_WORDS = {
    "train": re.compile(r"train(ing)?(set|data)?"),
    "val": re.compile(r"(val(id(ation)?)?|dev)(set|data)?"),
    "test": re.compile(r"test(ing)?(set|data)?"),
}
_PLAIN = frozenset({"set", "data", "dataset", "image", "images"})  # not part of an affix


def part_of(name: str) -> tuple[str, str] | None:
    """The part that a name stands for, and its affix: ("train", "seg") for `seg_train`.

    Ignores case, digits and separators. None if no word is a part, or words of two parts are.

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
    """Names that stand for parts of one set, by part; empty if they may be classes.

    Accepted are a training part and another one with equal affixes (`seg_train`, `seg_test`), and
    names without affixes if there are no others. A part has several names if they are ambiguous.

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


WHOLE = "all"  # split name for all images
_NUMBERED = 2**16  # most classes to name by all numbers up to the highest


def unique_names(names: Sequence[str], numbers: Sequence[object] | None = None) -> tuple[str, ...]:
    """Unique class names; shared ones get their number appended: ImageNet has two cranes.

    Numbers are the set's own, by default positions. Names are normalized to one Unicode form, and
    invalid characters escaped.
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
    """Labels (N,) int64 and class names from texts or whole numbers.

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
    """Labels (N,) that are numbers without names; they are unchanged unless very high.

    Parts thus agree even if one lacks a class.
    """
    label_N = np.maximum(number_N, UNLABELLED)
    highest = int(label_N.max(initial=UNLABELLED))
    if highest < _NUMBERED:
        return label_N, tuple(map(str, range(highest + 1)))
    known, found_N = np.unique(label_N, return_inverse=True)
    below = int(known[0] == UNLABELLED)  # which is no class
    return found_N.reshape(-1) - below, tuple(map(str, known[below:].tolist()))


IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")  # usual names of image columns
LABELS = ("cls", "label", "labels", "class")  # usual names of label columns


def split_column(spec: str) -> tuple[str, str | None]:
    """Split a name at its last # into set and column; None without a column."""
    before, sign, column = spec.rpartition("#")
    if not sign or "/" in column or "@" in column or os.path.exists(named(spec.partition(":")[2])):
        return spec, None
    return before, column


def image_column(name: str, columns: Sequence[str], wanted: str | None = None) -> str:
    """The image column: the user's, one with a usual name, or the only one."""
    if wanted is not None:
        if wanted not in columns:
            raise unknown(f"column of images of {name}", wanted, columns)
        return wanted
    called = [of for kind in IMAGES for of in columns if of.lower() == kind]
    if not called and len(columns) > 1:
        raise UserError(
            f"data: expected one image column, got {', '.join(columns)}; choose one, as in "
            f"{name}#{columns[0]}"
        )
    chosen, *_ = [*called, *columns]
    if len(columns) > 1:
        others = ", ".join(of for of in columns if of != chosen)
        _log.warning("%s: using the image column %s, not %s; %s#COLUMN chooses "
                     "another", name, chosen, others, name)  # fmt: skip
    return chosen


def label_column(columns: Sequence[str]) -> str | None:
    """The label column by its name, lower case first; None without one."""
    called = [of for kind in LABELS for of in sorted(columns, reverse=True) if of.lower() == kind]
    return next(iter(called), None)
