"""`factors` and `toys`: generated images of six independent properties.

Labels are drawn first, then every image from its labels. Each property is a balanced classification
task (listed in docs/data.md), so it is known in advance which property a task needs, and invariance
to which operators destroys it. A horizontal flip swaps both pairs of diagonals, so flip-invariant
features reach at most 50 % on orientation, and the left and right columns of the grid. All else is
random and belongs to no task.

The two sets differ in a table of parameters. Those of `toys` let a small encoder at 32 pixels learn
each task: larger, saturated objects with distinct outlines, a larger eye and a tighter grid, which
shifts can cross, on an even gray ground with little noise. Stripes and checkers with equal bright
area could not be distinguished even with labels, so the bright area differs by class.

Pixels are computed as float32 in [0, 1] and returned as uint8.

Legend: N images, P side of the image in pixels, C channels.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Self, final

import numpy as np
from PIL import Image

from mast.core.errors import UserError, unknown
from mast.data.source import PARTS, SetDescription, Source, refuse_split

SPLITS = {"train": 8192, "val": 2048, "test": 2048}
CLASSES: dict[str, tuple[str, ...]] = {
    "shape": ("circle", "square", "triangle", "star", "cross", "ring"),
    "color": ("red", "orange", "lime", "green", "cyan", "azure", "violet", "magenta"),
    "orientation": ("lower right", "lower left", "upper left", "upper right"),
    "position": tuple(f"{row} {column}" for row in ("top", "middle", "bottom")
                      for column in ("left", "centre", "right")),
    "texture": ("plain", "stripes", "checker", "dots", "patches"),
    "sharpness": ("sharp", "soft", "blurred"),
}  # fmt: skip
BLUR = (0.0, 0.018, 0.036)  # standard deviation as a share of the side


class Generated(Source):
    """Images drawn from labels; equal split, size and index give equal pixels on any machine.

    Args:
        split: "train", "val" or "test", with independent random numbers.
        count: Number of images; smaller sets are prefixes of larger ones.
        side: Side of an image in pixels.

    Attributes:
        word: Name of the set.
        tasks: The class names of every task.
        drawing: Version of the pixels; raise it to rebuild caches.
    """

    word: ClassVar[str]
    tasks: ClassVar[Mapping[str, tuple[str, ...]]]
    drawing: ClassVar[int] = 2

    # Lengths are shares of the side, or of the object's radius for its parts.
    easy: ClassVar[bool]  # even ground; patterns along or across the eye; different bright areas
    radius: ClassVar[tuple[float, float]]
    grid: ClassVar[tuple[float, float, float]]  # of the centres: the first, the step, the shift
    turn: ClassVar[float]  # degrees
    hue: ClassVar[float]  # turns
    saturation: ClassVar[tuple[float, float]]
    value: ClassVar[tuple[float, float]]
    dark: ClassVar[tuple[float, float]]  # tone, as a share of the light one
    eye: ClassVar[tuple[float, float]]  # where, along the direction in which it looks, and radius
    pupil: ClassVar[tuple[float, float]]
    wave: ClassVar[float]  # of a pattern
    noise: ClassVar[float]  # the largest deviation
    shapes: ClassVar[tuple[tuple[float, ...], ...]]  # arguments of `_OUTLINES`

    def __init__(self, split: str = "train", count: int | None = None, side: int = 48) -> None:
        if split not in SPLITS:
            raise unknown(f"split of {self.word}", split, SPLITS)
        self._count = SPLITS[split] if count is None else count
        self.name = f"{self.word}@{split}"
        if self._count < 1:
            raise UserError(f"data: expected a count of 1 or more, got {self.name}:{count}")
        self.side = side
        self._stream = list(SPLITS).index(split)
        self.classes = dict(self.tasks)
        self.targets = {
            task: _balanced(len(names), self._count, (self._stream, number))
            for number, (task, names) in enumerate(self.tasks.items())
        }

    @property
    def whereabouts(self) -> str:
        """The name with the count, as sets of other counts have separate caches."""
        return f"{self.name}:{self._count}"

    @classmethod
    def named(cls, spec: str, _root: Path, _download: bool) -> Self:
        """Opens `word`, `word@SPLIT` or `word@SPLIT:COUNT`."""
        word = cls.word
        match = re.fullmatch(rf"{word}(?:@(\w+)(?::(\d+))?)?", spec)
        if match is None:
            raise UserError(
                f"data: expected {word}, {word}@test or {word}@train:4096, got {spec!r}"
            )
        split, count = match.groups()
        return cls(split or "train", int(count) if count else None)

    @classmethod
    def described(cls, spec: str, _root: Path, _download: bool) -> SetDescription:
        """The parts of `word`, or of `word:N`: N to train, a quarter each to validate and test."""
        word, _, count = spec.partition(":")
        if "@" in word:
            refuse_split(spec)
        if not count:
            return SetDescription({part: f"{word}@{part}" for part in PARTS})
        if not count.isdecimal() or int(count) < 4:
            raise UserError(f"data: expected {word}:N with 4 training images or more, got {spec}")
        few = {part: int(count) // (1 if part == "train" else 4) for part in PARTS}
        return SetDescription({part: f"{word}@{part}:{few[part]}" for part in PARTS})

    def __len__(self) -> int:
        return self._count

    def open(self, index: int, page: int = 0) -> Image.Image:
        labels = {task: int(target_N[index]) for task, target_N in self.targets.items()}
        random = np.random.default_rng((self._stream, len(self.tasks), index))
        return Image.fromarray(self.draw(labels, self.side, random))

    def fingerprint(self) -> str:
        text = f"{self.drawing} {self.name} {self._count} {self.side}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @classmethod
    def draw(cls, labels: Mapping[str, int], side: int, random: np.random.Generator) -> np.ndarray:
        """Draw an image, (side, side, 3) uint8, from its classes."""
        shape, color, orientation, position, texture, sharpness = (labels[task] for task in CLASSES)
        radius, (first, step, shift) = random.uniform(*cls.radius), cls.grid
        row, column = divmod(position, 3)
        center = np.array([column, row]) * step + first + random.uniform(-shift, shift, 2)
        angle = np.deg2rad(45 + 90 * orientation + random.uniform(-cls.turn, cls.turn))
        cos, sin = np.float32(np.cos(angle) / radius), np.float32(np.sin(angle) / radius)
        x_1P, y_P1 = _axes(side)
        dx_1P, dy_P1 = x_1P - np.float32(center[0]), y_P1 - np.float32(center[1])
        u_PP, v_PP = cos * dx_1P + sin * dy_P1, cos * dy_P1 - sin * dx_1P
        edge = np.float32(radius * side)  # pixels a radius: every outline is one pixel soft

        # --- colors ---
        hue = (color / 8 + random.uniform(-cls.hue, cls.hue)) % 1.0
        light_3 = _hsv(hue, random.uniform(*cls.saturation), random.uniform(*cls.value))
        dark_3 = light_3 * np.float32(random.uniform(*cls.dark))
        slopes = np.zeros(2, np.float32)
        if cls.easy:
            ground_3 = _hsv(0.0, 0.0, random.uniform(0.35, 0.65))
        else:
            ground_3 = _hsv(random.uniform(), random.uniform(0.0, 0.35), random.uniform(0.2, 0.8))
            slopes = random.uniform(-0.25, 0.25, 2).astype(np.float32)
        light = slopes[0] * (x_1P - 0.5) + slopes[1] * (y_P1 - 0.5)

        # --- background, surface, eye; then blur and noise ---
        image_CPP = ground_3[:, None, None] + light
        share_PP = cls._texture(CLASSES["texture"][texture], u_PP, v_PP, edge, random)
        surface_CPP = dark_3[:, None, None] + (light_3 - dark_3)[:, None, None] * share_PP
        outline_PP = _OUTLINES[shape](u_PP, v_PP, *cls.shapes[shape])
        image_CPP += (np.float32(0.5) - outline_PP * edge).clip(0, 1) * (surface_CPP - image_CPP)
        for (along, size), level in ((cls.eye, np.float32(1.0)), (cls.pupil, np.float32(0.0))):
            disk_PP = np.hypot(u_PP - along, v_PP) - size
            image_CPP += (np.float32(0.5) - disk_PP * edge).clip(0, 1) * (level - image_CPP)
        if blur := BLUR[sharpness]:
            blur_PP = _blur_matrix(side, blur)
            image_CPP = blur_PP @ image_CPP @ blur_PP.T
        noise_CPP = random.standard_normal(image_CPP.shape, np.float32)
        image_CPP = image_CPP + noise_CPP * np.float32(random.uniform(0.0, cls.noise))
        return (image_CPP.clip(0, 1) * 255 + 0.5).astype(np.uint8).transpose(1, 2, 0)

    @classmethod
    def _texture(
        cls,
        texture: str,
        u_PP: np.ndarray,
        v_PP: np.ndarray,
        edge: np.float32,
        random: np.random.Generator,
    ) -> np.ndarray:
        """The share of the light tone on the surface, in [0, 1]; if easy, unlike by class."""
        phase_u, phase_v, *turns = random.uniform(0, 2 * np.pi, 3 - cls.easy).astype(np.float32)
        # Randomly turned against the object, so that patterns do not reveal the orientation.
        tilt = np.float32(np.pi / 2 * random.integers(2)) if cls.easy else turns[0]
        frequency = np.float32(2 * np.pi / cls.wave)
        cos, sin = frequency * np.cos(tilt), frequency * np.sin(tilt)
        a_PP = cos * u_PP + sin * v_PP + phase_u
        b_PP = cos * v_PP - sin * u_PP + phase_v
        match texture:
            case "plain":
                return np.full_like(u_PP, 1.0 if cls.easy else random.uniform(0.5, 1.0))
            case "stripes":
                wave_PP = np.sin(a_PP) - (0.55 if cls.easy else 0.0)
            case "checker":
                wave_PP = np.sin(a_PP * 0.8) * np.sin(b_PP * 0.8)
            case "dots":
                dots_PP = np.cos(a_PP) + np.cos(b_PP) - 0.9
                wave_PP = -dots_PP if cls.easy else dots_PP
            case _:  # patches: a few waves of random direction and length
                wave_PP = np.zeros_like(u_PP)
                for direction, length, phase in random.uniform(0, 1, (4, 3)).astype(np.float32):
                    turn = 2 * np.pi * direction
                    along_PP = np.cos(turn) * a_PP + np.sin(turn) * b_PP
                    wave_PP += np.sin((0.3 + 0.5 * length) * along_PP + 2 * np.pi * phase)
        return (wave_PP * (edge / frequency) + np.float32(0.5)).clip(0, 1)


def _balanced(classes: int, count: int, seed: tuple[int, int]) -> np.ndarray:
    """Labels (N,): each consecutive block of `classes` images has every class once."""
    blocks = np.tile(np.arange(classes), (-(-count // classes), 1))
    return np.random.default_rng(seed).permuted(blocks, axis=1).ravel()[:count].astype(np.int64)


@final
class Factors(Generated):
    """Generated images of six properties."""

    word, tasks, easy = "factors", CLASSES, False
    radius, grid, turn = (0.2, 0.26), (0.27, 0.23, 0.07), 15
    hue, saturation, value, dark = 0.025, (0.7, 1.0), (0.8, 1.0), (0.25, 0.4)
    eye, pupil, wave, noise = (0.5, 0.27), (0.5, 0.12), 0.75, 0.04
    shapes = (0.88,), (0.78,), (0.6,), (0.55, 0.835, 0.58), (0.95, 0.34), (0.62, 0.34)


@final
class Toys(Generated):
    """The same properties, each easy to learn."""

    word, easy = "toys", True
    tasks = CLASSES | {"texture": CLASSES["texture"][:4]}  # no patches
    radius, grid, turn = (0.27, 0.3), (0.37, 0.13, 0.02), 10
    hue, saturation, value, dark = 0.02, (0.8, 1.0), (0.9, 1.0), (0.2, 0.3)
    eye, pupil, wave, noise = (0.56, 0.42), (0.72, 0.15), 0.85, 0.01
    shapes = (0.9,), (0.8,), (0.64,), (0.6, 0.8, 0.6), (1.0, 0.33), (0.76, 0.22)


# Signed distances to outlines, negative inside, in object coordinates: origin at the center,
# u along the direction in which it looks, v across, radius 1.


def _star(u: np.ndarray, v: np.ndarray, along: float, across: float, inner: float) -> np.ndarray:
    """Five points; folded into half a point, one straight edge with this normal remains."""
    fold = abs((np.arctan2(v, u) * (5 / np.pi) + 1) % 2 - 1) * (np.pi / 5)
    radius = np.hypot(u, v)
    return along * radius * np.cos(fold) + across * radius * np.sin(fold) - inner


def _cross(u: np.ndarray, v: np.ndarray, long: float, wide: float) -> np.ndarray:
    """Two bars of this half length and half width."""
    longer, shorter = np.maximum(abs(v), abs(u)), np.minimum(abs(v), abs(u))
    return np.maximum(longer - long, shorter - wide)


_OUTLINES: tuple[Callable[..., np.ndarray], ...] = (
    lambda u, v, radius: np.hypot(u, v) - radius,  # circle
    lambda u, v, half: np.maximum(abs(u), abs(v)) - half,  # square
    # triangle: points away from where the object looks, which leaves an eye room at the base
    lambda u, v, inner: np.maximum(u, abs(v) * 0.8660254 - u * 0.5) - inner,
    _star,
    _cross,
    lambda u, v, middle, half: abs(np.hypot(u, v) - middle) - half,  # ring
)


def _hsv(hue: float, saturation: float, value: float) -> np.ndarray:
    """Red, green and blue of a hue in turns, a saturation and a value in [0, 1]."""
    wheel_3 = abs((hue * 6 + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1
    return (value * (1 - saturation * (1 - wheel_3.clip(0, 1)))).astype(np.float32)


@functools.cache
def _axes(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixel centres in [0, 1] as a row (1, P) and a column (P, 1)."""
    centers_P = ((np.arange(side) + 0.5) / side).astype(np.float32)
    return centers_P[None, :], centers_P[:, None]


@functools.cache
def _blur_matrix(side: int, deviation: float) -> np.ndarray:
    """(P, P): a Gaussian of `deviation` × side pixels along one axis, normalised at the border."""
    at_P = np.arange(side)
    weight_PP = np.exp(-0.5 * ((at_P[:, None] - at_P) / (deviation * side)) ** 2)
    return (weight_PP / weight_PP.sum(1, keepdims=True)).astype(np.float32)
