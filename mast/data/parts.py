"""Parts of a set: which one a name stands for, and splits of sets that come in one piece.

Names are `train`, `Training`, `seg_test`, `valid`, `dev`; splits are drawn, or listed in files.

Legend: N images, P images of a split.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from mast.core.errors import UserError
from mast.core.files import read_text

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

_SEED = 0  # of what is drawn: the same images everywhere, always


@final
@dataclass(frozen=True)
class Drawn:
    """So many images of each class, drawn by a fixed seed.

    Attributes:
        counts: Images of each class, by split.
        rest: The split that gets all others, if any does.
    """

    counts: Mapping[str, int]
    rest: str | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that there are."""
        return (*self.counts, *([self.rest] if self.rest else []))

    def positions(self, name: str, split: str, label_N: np.ndarray) -> np.ndarray:
        """Which images a split has.

        Args:
            name: Of the set.
            split: One of `splits`.
            label_N: The class of every image.

        Returns:
            (P,) positions, ascending.

        Raises:
            UserError: If a class has too few images.
        """
        random = np.random.default_rng(_SEED)
        needed = sum(self.counts.values()) + (self.rest is not None)
        chosen = []
        for label in np.unique(label_N):
            members = random.permutation(np.flatnonzero(label_N == label))
            if len(members) < needed:
                raise UserError(
                    f"class {label} of {name} has {len(members)} images, and its splits need "
                    f"{needed} or more. Is the set complete?"
                )
            first = 0
            for part in self.splits:
                last = first + self.counts[part] if part in self.counts else len(members)
                if part == split:
                    chosen.append(members[first:last])
                first = last
        return np.sort(np.concatenate(chosen))


@final
@dataclass(frozen=True)
class Listed:
    """The images that a file names, one path a line, as the set's authors published it.

    Attributes:
        files: Name of the file, by split.
        folder: Where the files are and the images' paths begin, below the root of the set.
        source: Where the files are published.
    """

    files: Mapping[str, str]
    folder: str
    source: str

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that there are."""
        return tuple(self.files)

    def positions(
        self, name: str, split: str, root: Path, paths: Sequence[Path]
    ) -> tuple[np.ndarray, str]:
        """Which images a split has.

        Args:
            name: Of the set.
            split: One of `splits`.
            root: The folder that holds the set.
            paths: The file of every image.

        Returns:
            (P,) positions in the order of the list, and a hash of the list.

        Raises:
            UserError: If the list is missing, or names images that are not there.
        """
        folder = root / self.folder
        file = folder / self.files[split]
        if not file.is_file():
            raise UserError(
                f"{name} is split by files that torchvision does not fetch: put "
                f"{' and '.join(self.files.values())} of {self.source} into {folder}, "
                f"or ask for {name}@{WHOLE}."
            )
        content = read_text(file)
        position = {path.relative_to(folder).as_posix(): at for at, path in enumerate(paths)}
        lines = [line.strip().lstrip("/") for line in content.splitlines()]
        listed = [line for line in lines if line]
        missing = [line for line in listed if line not in position]
        if missing or not listed:
            raise UserError(
                f"{file} does not fit {name}: {len(missing)} of its {len(listed)} images are not "
                f"in {folder}" + (f", the first is {missing[0]}." if missing else ".")
            )
        state = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
        return np.array([position[line] for line in listed], np.int64), state
