"""`factors`: generated images in which six properties vary independently of each other.

Each property is a balanced classification task, so that it is known beforehand which task needs
which property kept, and which operator's invariance destroys it:

| task        | classes | what it is                          | destroyed by invariance to   |
| ----------- | ------- | ----------------------------------- | ---------------------------- |
| shape       | 6       | outline of the object               | (none; cutout hides parts)   |
| color       | 8       | hue of the object                   | color jitter, grayscale,     |
|             |         |                                     | invert                       |
| orientation | 4       | the diagonal to which its eye looks | horizontal flip, rotate      |
| position    | 9       | cell of a 3 × 3 grid, of its centre | crop, translate, flip        |
| texture     | 5       | pattern on its surface              | strong blur, cutout          |
| sharpness   | 3       | how much the whole image is blurred | blur, sharpness, motion blur |

A horizontal flip swaps both pairs of diagonals, so what is invariant to it reaches 50 % at most,
and it swaps the left and right columns of the grid. `DESTROYED_BY` names the operators.
Everything else is chance and belongs to no task: size, exact hue, saturation and brightness, small
shifts and turns, phase of the texture, a dull background with a gradient, and pixel noise.

Pixels are computed as float32 in [0, 1] and returned as uint8.

Legend: P side of the image in pixels, N images, C channels.
"""

import functools
import hashlib
import re
from pathlib import Path
from typing import final

import numpy as np
from PIL import Image

from mast.core.errors import UserError, unknown
from mast.data.source import PARTS, SetDescription, Source, refuse_split

CLASSES: dict[str, tuple[str, ...]] = {
    "shape": ("circle", "square", "triangle", "star", "cross", "ring"),
    "color": ("red", "orange", "lime", "green", "cyan", "azure", "violet", "magenta"),
    "orientation": ("lower right", "lower left", "upper left", "upper right"),
    "position": tuple(f"{row} {column}" for row in ("top", "middle", "bottom")
                      for column in ("left", "centre", "right")),
    "texture": ("plain", "stripes", "checker", "dots", "patches"),
    "sharpness": ("sharp", "soft", "blurred"),
}  # fmt: skip
DESTROYED_BY: dict[str, tuple[str, ...]] = {
    "shape": (),
    "color": ("color_jitter", "grayscale", "invert"),
    "orientation": ("horizontal_flip", "rotate"),
    "position": ("random_resized_crop", "translate_x", "translate_y", "horizontal_flip"),
    "texture": ("gaussian_blur", "cutout"),
    "sharpness": ("gaussian_blur", "sharpness", "motion_blur"),
}
SPLITS = {"train": 8192, "val": 2048, "test": 2048}

_DRAWING = 2  # raise it when a change here alters the pixels, so that caches are rebuilt
_BLUR = (0.0, 0.018, 0.036)  # standard deviation as a share of the side


@final
class Factors(Source):
    """Generated images; the same split, size and index give the same pixels everywhere.

    Args:
        split: "train", "val" or "test"; they share no random number.
        count: Number of images; a smaller set is the beginning of a larger one.
        side: Side of an image in pixels.

    Raises:
        UserError: If the split is unknown or the set would be empty.
    """

    def __init__(self, split: str = "train", count: int | None = None, side: int = 48) -> None:
        if split not in SPLITS:
            raise unknown("split of factors", split, SPLITS)
        self._count = SPLITS[split] if count is None else count
        if self._count < 1:
            raise UserError(f"factors@{split}:{count} has no image: expected a count of 1 or more.")
        self.name = f"factors@{split}"
        self.side = side
        self._stream = list(SPLITS).index(split)
        self.classes = CLASSES
        self.targets = {
            task: _balanced(len(names), self._count, (self._stream, number))
            for number, (task, names) in enumerate(CLASSES.items())
        }

    def __len__(self) -> int:
        return self._count

    def open(self, index: int) -> Image.Image:
        labels = {task: int(target_N[index]) for task, target_N in self.targets.items()}
        random = np.random.default_rng((self._stream, len(CLASSES), index))
        return Image.fromarray(draw(labels, self.side, random))

    def identifier(self, index: int) -> str:
        return f"{index:06d}"

    def fingerprint(self) -> str:
        text = f"{_DRAWING} {self.name} {self._count} {self.side}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def open_factors(spec: str, _root: Path, _download: bool) -> Factors:
    """Opens `factors`, `factors@SPLIT` or `factors@SPLIT:COUNT`.

    Raises:
        UserError: It is written in another way.
    """
    match = re.fullmatch(r"factors(?:@(\w+)(?::(\d+))?)?", spec)
    if match is None:
        raise UserError(
            f"cannot read {spec!r}: expected factors, factors@test or factors@train:4096."
        )
    split, count = match.groups()
    return Factors(split or "train", int(count) if count else None)


def describe_factors(spec: str) -> SetDescription:
    """The parts of `factors`, or of `factors:N`: N images to learn from, and a quarter to others.

    Raises:
        UserError: N is no number of images, or a single split is named.
    """
    if spec.startswith("factors@"):
        refuse_split(spec)
    count = spec.removeprefix("factors").removeprefix(":")
    if not count:
        return SetDescription({part: f"factors@{part}" for part in PARTS})
    if not count.isdecimal() or int(count) < 4:
        raise UserError(f"expected factors:N with 4 training images or more, got factors:{count}")
    few = {part: int(count) // (1 if part == "train" else 4) for part in PARTS}
    return SetDescription({part: f"factors@{part}:{few[part]}" for part in PARTS})


def _balanced(classes: int, count: int, seed: tuple[int, int]) -> np.ndarray:
    """Labels (N,): every run of `classes` images from the start holds each class once."""
    blocks = np.tile(np.arange(classes), (-(-count // classes), 1))
    return np.random.default_rng(seed).permuted(blocks, axis=1).ravel()[:count].astype(np.int64)


def draw(labels: dict[str, int], side: int, random: np.random.Generator) -> np.ndarray:
    """Draws one image.

    Args:
        labels: The class of every task in `CLASSES`.
        side: Side of the image in pixels.
        random: Where everything that belongs to no task is drawn from.

    Returns:
        (P, P, 3) uint8.
    """
    shape, color, orientation, position, texture, sharpness = (labels[task] for task in CLASSES)
    x_1P, y_P1 = _axes(side)

    # --- the object's own coordinates: u towards the eye, its radius is 1 ---
    radius = random.uniform(0.2, 0.26)
    row, column = divmod(position, 3)
    center_x, center_y = np.array([column, row]) * 0.23 + 0.27 + random.uniform(-0.07, 0.07, 2)
    angle = np.deg2rad(45 + 90 * orientation + random.uniform(-15, 15))
    cos, sin = np.float32(np.cos(angle) / radius), np.float32(np.sin(angle) / radius)
    dx_1P, dy_P1 = x_1P - np.float32(center_x), y_P1 - np.float32(center_y)
    u_PP, v_PP = cos * dx_1P + sin * dy_P1, cos * dy_P1 - sin * dx_1P
    edge = np.float32(radius * side)  # pixels a unit: makes every outline one pixel soft

    # --- colours ---
    hue = (color / 8 + random.uniform(-0.025, 0.025)) % 1.0
    light_3 = _hsv(hue, random.uniform(0.7, 1.0), random.uniform(0.8, 1.0))
    dark_3 = light_3 * np.float32(random.uniform(0.25, 0.4))
    ground_3 = _hsv(random.uniform(), random.uniform(0.0, 0.35), random.uniform(0.2, 0.8))

    # --- background, surface, eye; then blur and noise ---
    slope_x, slope_y = random.uniform(-0.25, 0.25, 2).astype(np.float32)
    image_CPP = ground_3[:, None, None] + (slope_x * (x_1P - 0.5) + slope_y * (y_P1 - 0.5))
    share_PP = _texture(texture, u_PP, v_PP, edge, random)
    surface_CPP = dark_3[:, None, None] + (light_3 - dark_3)[:, None, None] * share_PP
    image_CPP += _inside(_outline(shape, u_PP, v_PP), edge) * (surface_CPP - image_CPP)
    eye_PP = np.hypot(u_PP - 0.5, v_PP)
    image_CPP += _inside(eye_PP - 0.27, edge) * (np.float32(1.0) - image_CPP)
    image_CPP -= _inside(eye_PP - 0.12, edge) * image_CPP
    if sharpness:
        blur_PP = _blur_matrix(side, _BLUR[sharpness])
        image_CPP = blur_PP @ image_CPP @ blur_PP.T
    noise_CPP = random.standard_normal(image_CPP.shape, np.float32)
    image_CPP += noise_CPP * np.float32(random.uniform(0.0, 0.04))
    return (image_CPP.clip(0, 1) * 255 + 0.5).astype(np.uint8).transpose(1, 2, 0)


def _outline(shape: int, u_PP: np.ndarray, v_PP: np.ndarray) -> np.ndarray:
    """Signed distance to the outline in units of the radius, negative inside."""
    match CLASSES["shape"][shape]:
        case "circle":
            return np.hypot(u_PP, v_PP) - 0.88
        case "square":
            return np.maximum(abs(u_PP), abs(v_PP)) - 0.78
        case "triangle":  # points away from the eye, which leaves the eye room at the base
            return np.maximum(u_PP, abs(v_PP) * 0.8660254 - u_PP * 0.5) - 0.6
        case "star":  # folded into half a point: one straight edge remains
            fold_PP = abs((np.arctan2(v_PP, u_PP) * (5 / np.pi) + 1) % 2 - 1) * (np.pi / 5)
            radius_PP = np.hypot(u_PP, v_PP)
            return 0.55 * radius_PP * np.cos(fold_PP) + 0.835 * radius_PP * np.sin(fold_PP) - 0.58
        case "cross":
            across_PP, along_PP = abs(u_PP), abs(v_PP)
            long_PP, short_PP = np.maximum(across_PP, along_PP), np.minimum(across_PP, along_PP)
            return np.maximum(long_PP - 0.95, short_PP - 0.34)
        case _:  # ring
            return abs(np.hypot(u_PP, v_PP) - 0.62) - 0.34


def _texture(
    texture: int, u_PP: np.ndarray, v_PP: np.ndarray, edge: np.float32, random: np.random.Generator
) -> np.ndarray:
    """The share of the light tone on the surface, in [0, 1]."""
    phase_u, phase_v, tilt = random.uniform(0, 2 * np.pi, 3).astype(np.float32)
    frequency = np.float32(2 * np.pi / 0.75)
    sharp = edge / frequency
    # Turned at random against the object, so that a pattern says nothing of the orientation.
    cos, sin = frequency * np.cos(tilt), frequency * np.sin(tilt)
    a_PP = cos * u_PP + sin * v_PP + phase_u
    b_PP = cos * v_PP - sin * u_PP + phase_v
    match CLASSES["texture"][texture]:
        case "plain":
            return np.full_like(u_PP, random.uniform(0.5, 1.0))
        case "stripes":
            wave_PP = np.sin(a_PP)
        case "checker":
            wave_PP = np.sin(a_PP * 0.8) * np.sin(b_PP * 0.8)
        case "dots":
            wave_PP = np.cos(a_PP) + np.cos(b_PP) - 0.9
        case _:  # patches: a few waves of random direction and length
            wave_PP = np.zeros_like(u_PP)
            for direction, length, phase in random.uniform(0, 1, (4, 3)).astype(np.float32):
                turn = 2 * np.pi * direction
                along_PP = np.cos(turn) * a_PP + np.sin(turn) * b_PP
                wave_PP += np.sin((0.3 + 0.5 * length) * along_PP + 2 * np.pi * phase)
    return (wave_PP * sharp + np.float32(0.5)).clip(0, 1)


def _inside(distance_PP: np.ndarray, edge: np.float32) -> np.ndarray:
    return (np.float32(0.5) - distance_PP * edge).clip(0, 1)


def _hsv(hue: float, saturation: float, value: float) -> np.ndarray:
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
