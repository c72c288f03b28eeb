"""Generated sets: labels drawn first, and every image drawn from its labels.

Legend: N images.
"""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from PIL import Image

from mast.core.errors import UserError, unknown
from mast.data.parts import PARTS
from mast.data.source import SetDescription, Source, refuse_split

SPLITS = {"train": 8192, "val": 2048, "test": 2048}


class Generated(Source):
    """Images drawn from labels; the same split, size and index give the same pixels everywhere.

    Args:
        split: "train", "val" or "test"; they share no random number.
        count: Number of images; a smaller set is the beginning of a larger one.
        side: Side of an image in pixels.

    Attributes:
        word: What the set is called.
        tasks: The class names of every task.
        drawing: Raised when a change alters the pixels, so that caches are rebuilt.

    Raises:
        UserError: If the split is unknown or the set would be empty.
    """

    word: ClassVar[str]
    tasks: ClassVar[Mapping[str, tuple[str, ...]]]
    drawing: ClassVar[int]

    def __init__(self, split: str = "train", count: int | None = None, side: int = 48) -> None:
        if split not in SPLITS:
            raise unknown(f"split of {self.word}", split, SPLITS)
        self._count = SPLITS[split] if count is None else count
        self.name = f"{self.word}@{split}"
        if self._count < 1:
            raise UserError(f"{self.name}:{count} has no image: expected a count of 1 or more.")
        self.side = side
        self._stream = list(SPLITS).index(split)
        self.classes = dict(self.tasks)
        self.targets = {
            task: _balanced(len(names), self._count, (self._stream, number))
            for number, (task, names) in enumerate(self.tasks.items())
        }

    @staticmethod
    @abstractmethod
    def draw(labels: Mapping[str, int], side: int, random: np.random.Generator) -> np.ndarray:
        """Draws one image.

        Args:
            labels: The class of every task.
            side: Side of the image in pixels.
            random: Where everything that belongs to no task is drawn from.

        Returns:
            (side, side, 3) uint8.
        """

    @classmethod
    def named(cls, spec: str, _root: Path, _download: bool) -> Self:
        """Opens `word`, `word@SPLIT` or `word@SPLIT:COUNT`.

        Raises:
            UserError: It is written in another way.
        """
        word = cls.word
        match = re.fullmatch(rf"{word}(?:@(\w+)(?::(\d+))?)?", spec)
        if match is None:
            raise UserError(
                f"cannot read {spec!r}: expected {word}, {word}@test or {word}@train:4096."
            )
        split, count = match.groups()
        return cls(split or "train", int(count) if count else None)

    @classmethod
    def described(cls, spec: str) -> SetDescription:
        """The parts of `word`, or of `word:N`: N images to learn from, and a quarter to others.

        Raises:
            UserError: N is no number of images, or a single split is named.
        """
        word = cls.word
        if spec.startswith(f"{word}@"):
            refuse_split(spec)
        count = spec.removeprefix(word).removeprefix(":")
        if not count:
            return SetDescription({part: f"{word}@{part}" for part in PARTS})
        if not count.isdecimal() or int(count) < 4:
            raise UserError(f"expected {word}:N with 4 training images or more, got {word}:{count}")
        few = {part: int(count) // (1 if part == "train" else 4) for part in PARTS}
        return SetDescription({part: f"{word}@{part}:{few[part]}" for part in PARTS})

    def __len__(self) -> int:
        return self._count

    def open(self, index: int, page: int = 0) -> Image.Image:
        labels = {task: int(target_N[index]) for task, target_N in self.targets.items()}
        random = np.random.default_rng((self._stream, len(self.tasks), index))
        return Image.fromarray(self.draw(labels, self.side, random))

    def identifier(self, index: int) -> str:
        return f"{index:06d}"

    def fingerprint(self) -> str:
        text = f"{self.drawing} {self.name} {self._count} {self.side}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _balanced(classes: int, count: int, seed: tuple[int, int]) -> np.ndarray:
    """Labels (N,): every run of `classes` images from the start holds each class once."""
    blocks = np.tile(np.arange(classes), (-(-count // classes), 1))
    return np.random.default_rng(seed).permuted(blocks, axis=1).ravel()[:count].astype(np.int64)
