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

Legend: P side of the image in pixels, C channels.
"""

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np

from mast.data.generated import (
    Frame,
    Generated,
    axes,
    circle,
    cross,
    frame,
    hsv,
    inside,
    mixed,
    pattern,
    pixels,
    ring,
    square,
    star,
    triangle,
    turned,
)

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
BLUR = (0.0, 0.018, 0.036)  # standard deviation as a share of the side
_LENGTH = 0.75  # after which a pattern repeats, in units of the radius


@final
class Factors(Generated):
    """Generated images; see the module."""

    word: ClassVar[str] = "factors"
    tasks: ClassVar[Mapping[str, tuple[str, ...]]] = CLASSES
    drawing: ClassVar[int] = 2

    @staticmethod
    def draw(labels: Mapping[str, int], side: int, random: np.random.Generator) -> np.ndarray:
        shape, color, orientation, position, texture, sharpness = (labels[task] for task in CLASSES)

        radius = random.uniform(0.2, 0.26)
        row, column = divmod(position, 3)
        center = np.array([column, row]) * 0.23 + 0.27 + random.uniform(-0.07, 0.07, 2)
        angle = 45 + 90 * orientation + random.uniform(-15, 15)
        own = frame(side, center, radius, angle)

        # --- colours ---
        hue = (color / 8 + random.uniform(-0.025, 0.025)) % 1.0
        light_3 = hsv(hue, random.uniform(0.7, 1.0), random.uniform(0.8, 1.0))
        dark_3 = light_3 * np.float32(random.uniform(0.25, 0.4))
        ground_3 = hsv(random.uniform(), random.uniform(0.0, 0.35), random.uniform(0.2, 0.8))

        # --- background, surface, eye; then blur and noise ---
        x_1P, y_P1 = axes(side)
        slope_x, slope_y = random.uniform(-0.25, 0.25, 2).astype(np.float32)
        image_CPP = ground_3[:, None, None] + (slope_x * (x_1P - 0.5) + slope_y * (y_P1 - 0.5))
        share_PP = _texture(texture, own, random)
        surface_CPP = mixed(dark_3, light_3, share_PP)
        image_CPP += inside(_outline(shape, own), own.edge) * (surface_CPP - image_CPP)
        eye_PP = np.hypot(own.u_PP - 0.5, own.v_PP)
        image_CPP += inside(eye_PP - 0.27, own.edge) * (np.float32(1.0) - image_CPP)
        image_CPP -= inside(eye_PP - 0.12, own.edge) * image_CPP
        return pixels(image_CPP, BLUR[sharpness], (0.0, 0.04), random)


def _outline(shape: int, own: Frame) -> np.ndarray:
    match CLASSES["shape"][shape]:
        case "circle":
            return circle(own, 0.88)
        case "square":
            return square(own, 0.78)
        case "triangle":
            return triangle(own, 0.6)
        case "star":
            return star(own, 0.55, 0.835, 0.58)
        case "cross":
            return cross(own, 0.95, 0.34)
        case _:
            return ring(own, 0.62, 0.34)


def _texture(texture: int, own: Frame, random: np.random.Generator) -> np.ndarray:
    """The share of the light tone on the surface, in [0, 1]."""
    phase_u, phase_v, tilt = random.uniform(0, 2 * np.pi, 3).astype(np.float32)
    # Turned at random against the object, so that a pattern says nothing of the orientation.
    a_PP, b_PP = turned(own, tilt, _LENGTH)
    a_PP, b_PP = a_PP + phase_u, b_PP + phase_v
    match CLASSES["texture"][texture]:
        case "plain":
            return np.full_like(own.u_PP, random.uniform(0.5, 1.0))
        case "stripes":
            wave_PP = np.sin(a_PP)
        case "checker":
            wave_PP = np.sin(a_PP * 0.8) * np.sin(b_PP * 0.8)
        case "dots":
            wave_PP = np.cos(a_PP) + np.cos(b_PP) - 0.9
        case _:  # patches: a few waves of random direction and length
            wave_PP = np.zeros_like(own.u_PP)
            for direction, length, phase in random.uniform(0, 1, (4, 3)).astype(np.float32):
                turn = 2 * np.pi * direction
                along_PP = np.cos(turn) * a_PP + np.sin(turn) * b_PP
                wave_PP += np.sin((0.3 + 0.5 * length) * along_PP + 2 * np.pi * phase)
    return pattern(wave_PP, own, _LENGTH)
