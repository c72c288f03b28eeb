"""Generated sets: labels drawn first, and every image drawn from its labels.

Images are drawn with an object's own coordinates, layers, colours and blur; colours and pixels are
float32 in [0, 1].

Legend: N images, P side of the image in pixels, C channels.
"""

import functools
import hashlib
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from PIL import Image

from mast.core.errors import UserError, unknown
from mast.data.parts import PARTS
from mast.data.source import SetDescription, Source, refuse_split


@dataclass(frozen=True)
class Frame:
    """The coordinates of an object: the origin at its centre, its radius 1.

    Attributes:
        u_PP: Along the direction in which it looks.
        v_PP: Across, to the right of it.
        edge: Pixels a unit: makes every outline one pixel soft.
    """

    u_PP: np.ndarray
    v_PP: np.ndarray
    edge: np.float32


def frame(side: int, center: np.ndarray, radius: float, angle: float) -> Frame:
    """The coordinates of an object.

    Args:
        side: Side of the image in pixels.
        center: x and y, as shares of the side.
        radius: Share of the side.
        angle: Degrees from the right, clockwise, to where it looks.
    """
    x_1P, y_P1 = axes(side)
    radians = np.deg2rad(angle)
    cos, sin = np.float32(np.cos(radians) / radius), np.float32(np.sin(radians) / radius)
    dx_1P, dy_P1 = x_1P - np.float32(center[0]), y_P1 - np.float32(center[1])
    u_PP, v_PP = cos * dx_1P + sin * dy_P1, cos * dy_P1 - sin * dx_1P
    return Frame(u_PP, v_PP, np.float32(radius * side))


def circle(own: Frame, radius: float) -> np.ndarray:
    """Signed distance to the outline in units of the frame, negative inside; as of all below."""
    return np.hypot(own.u_PP, own.v_PP) - radius


def square(own: Frame, half: float) -> np.ndarray:
    """Half a side from the centre to each of four sides."""
    return np.maximum(abs(own.u_PP), abs(own.v_PP)) - half


def triangle(own: Frame, inner: float) -> np.ndarray:
    """Points away from where the object looks, which leaves an eye room at the base."""
    u_PP, v_PP = own.u_PP, own.v_PP
    return np.maximum(u_PP, abs(v_PP) * 0.8660254 - u_PP * 0.5) - inner


def star(own: Frame, along: float, across: float, inner: float) -> np.ndarray:
    """Five points; folded into half a point, one straight edge with this normal remains."""
    u_PP, v_PP = own.u_PP, own.v_PP
    fold_PP = abs((np.arctan2(v_PP, u_PP) * (5 / np.pi) + 1) % 2 - 1) * (np.pi / 5)
    radius_PP = np.hypot(u_PP, v_PP)
    return along * radius_PP * np.cos(fold_PP) + across * radius_PP * np.sin(fold_PP) - inner


def cross(own: Frame, long: float, wide: float) -> np.ndarray:
    """Two bars of this half length and half width."""
    across_PP, along_PP = abs(own.u_PP), abs(own.v_PP)
    long_PP, short_PP = np.maximum(across_PP, along_PP), np.minimum(across_PP, along_PP)
    return np.maximum(long_PP - long, short_PP - wide)


def ring(own: Frame, middle: float, half: float) -> np.ndarray:
    """A band around this radius, of this half width."""
    return abs(circle(own, middle)) - half


def turned(own: Frame, tilt: np.float32, length: float) -> tuple[np.ndarray, np.ndarray]:
    """Two phases (P, P) of patterns that repeat after `length`, across each other.

    Args:
        own: The object's coordinates.
        tilt: Radians by which they are turned against it.
        length: In units of the radius.
    """
    frequency = np.float32(2 * np.pi / length)
    cos, sin = frequency * np.cos(tilt), frequency * np.sin(tilt)
    return cos * own.u_PP + sin * own.v_PP, cos * own.v_PP - sin * own.u_PP


def pattern(wave_PP: np.ndarray, own: Frame, length: float) -> np.ndarray:
    """The share of the light tone, in [0, 1], where a wave of this length is above 0."""
    sharp = own.edge / np.float32(2 * np.pi / length)
    return (wave_PP * sharp + np.float32(0.5)).clip(0, 1)


def inside(distance_PP: np.ndarray, edge: np.float32) -> np.ndarray:
    """How much of each pixel is inside an outline.

    Args:
        distance_PP: Signed distance to the outline in units of the radius, negative inside.
        edge: Pixels a unit.
    """
    return (np.float32(0.5) - distance_PP * edge).clip(0, 1)


def mixed(dark_3: np.ndarray, light_3: np.ndarray, share_PP: np.ndarray) -> np.ndarray:
    """Two colours, (C, P, P), the second by its share of each pixel."""
    return dark_3[:, None, None] + (light_3 - dark_3)[:, None, None] * share_PP


def pixels(
    image_CPP: np.ndarray, blur: float, noise: tuple[float, float], random: np.random.Generator
) -> np.ndarray:
    """Blurs, adds noise, and rounds to (P, P, C) uint8.

    Args:
        image_CPP: What was drawn.
        blur: Standard deviation of a Gaussian as a share of the side, 0 for none.
        noise: Range of the noise's standard deviation.
        random: Where the noise is drawn from.
    """
    if blur:
        blur_PP = _blur_matrix(image_CPP.shape[-1], blur)
        image_CPP = blur_PP @ image_CPP @ blur_PP.T
    noise_CPP = random.standard_normal(image_CPP.shape, np.float32)
    image_CPP = image_CPP + noise_CPP * np.float32(random.uniform(*noise))
    return (image_CPP.clip(0, 1) * 255 + 0.5).astype(np.uint8).transpose(1, 2, 0)


def hsv(hue: float, saturation: float, value: float) -> np.ndarray:
    """Red, green and blue of a hue in turns, a saturation and a value in [0, 1]."""
    wheel_3 = abs((hue * 6 + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1
    return (value * (1 - saturation * (1 - wheel_3.clip(0, 1)))).astype(np.float32)


@functools.cache
def axes(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixel centres in [0, 1] as a row (1, P) and a column (P, 1)."""
    centers_P = ((np.arange(side) + 0.5) / side).astype(np.float32)
    return centers_P[None, :], centers_P[:, None]


@functools.cache
def _blur_matrix(side: int, deviation: float) -> np.ndarray:
    """(P, P): a Gaussian of `deviation` × side pixels along one axis, normalised at the border."""
    at_P = np.arange(side)
    weight_PP = np.exp(-0.5 * ((at_P[:, None] - at_P) / (deviation * side)) ** 2)
    return (weight_PP / weight_PP.sum(1, keepdims=True)).astype(np.float32)


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
