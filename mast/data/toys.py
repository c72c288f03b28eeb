"""`toys`: the six factors of `factors`, drawn so that a small encoder at 32 pixels learns each.

The tasks, and what destroys them, are those of `factors`; textures are four. What is otherwise:

| task        | in `toys`                                                                       |
| ----------- | ------------------------------------------------------------------------------- |
| shape       | larger objects with distinct outlines: a thin ring, deep points, long arms      |
| color       | saturated and bright                                                            |
| orientation | an eye half as large again, white with a small pupil, which a blur leaves white |
| position    | a tighter grid, so that a shift of the view can outdo it                        |
| texture     | plain, bright stripes on a dark surface, checker, dark dots on a bright surface |
| sharpness   | the same three blurs                                                            |

The ground is grey and even, with little noise. Stripes and checkers that are bright on the same
share of the surface were not told apart, even with labels; so the share differs by class. Chance
is size, exact hue, saturation and brightness, small shifts and turns, the phase of the texture,
whether it runs along the eye or across, the brightness of the ground, and noise.
"""

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np

from mast.data import factors
from mast.data.generated import (
    Frame,
    Generated,
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

CLASSES = factors.CLASSES | {"texture": ("plain", "stripes", "checker", "dots")}
DESTROYED_BY = factors.DESTROYED_BY

BLUR = factors.BLUR
_LENGTH = 0.85  # after which a pattern repeats, in units of the radius


@final
class Toys(Generated):
    """Generated images; see the module."""

    word: ClassVar[str] = "toys"
    tasks: ClassVar[Mapping[str, tuple[str, ...]]] = CLASSES
    drawing: ClassVar[int] = 2

    @staticmethod
    def draw(labels: Mapping[str, int], side: int, random: np.random.Generator) -> np.ndarray:
        shape, color, orientation, position, texture, sharpness = (labels[task] for task in CLASSES)

        radius = random.uniform(0.27, 0.3)
        row, column = divmod(position, 3)
        center = np.array([column, row]) * 0.13 + 0.37 + random.uniform(-0.02, 0.02, 2)
        angle = 45 + 90 * orientation + random.uniform(-10, 10)
        own = frame(side, center, radius, angle)

        # --- colours ---
        hue = (color / 8 + random.uniform(-0.02, 0.02)) % 1.0
        light_3 = hsv(hue, random.uniform(0.8, 1.0), random.uniform(0.9, 1.0))
        dark_3 = light_3 * np.float32(random.uniform(0.2, 0.3))
        ground_3 = hsv(0.0, 0.0, random.uniform(0.35, 0.65))

        # --- background, surface, eye; then blur and noise ---
        surface_CPP = mixed(dark_3, light_3, _texture(texture, own, random))
        image_CPP = ground_3[:, None, None] + np.zeros_like(surface_CPP)
        image_CPP += inside(_outline(shape, own), own.edge) * (surface_CPP - image_CPP)
        eye_PP = np.hypot(own.u_PP - 0.56, own.v_PP)
        image_CPP += inside(eye_PP - 0.42, own.edge) * (np.float32(1.0) - image_CPP)
        pupil_PP = np.hypot(own.u_PP - 0.72, own.v_PP)
        image_CPP -= inside(pupil_PP - 0.15, own.edge) * image_CPP
        return pixels(image_CPP, BLUR[sharpness], (0.0, 0.01), random)


def _outline(shape: int, own: Frame) -> np.ndarray:
    match CLASSES["shape"][shape]:
        case "circle":
            return circle(own, 0.9)
        case "square":
            return square(own, 0.8)
        case "triangle":
            return triangle(own, 0.64)
        case "star":
            return star(own, 0.6, 0.8, 0.6)
        case "cross":
            return cross(own, 1.0, 0.33)
        case _:
            return ring(own, 0.76, 0.22)


def _texture(texture: int, own: Frame, random: np.random.Generator) -> np.ndarray:
    """The share of the light tone on the surface, in [0, 1]; on average it differs by class."""
    phase_u, phase_v = random.uniform(0, 2 * np.pi, 2).astype(np.float32)
    # Along the eye or across, by chance, so that a pattern says nothing of the orientation.
    a_PP, b_PP = turned(own, np.float32(np.pi / 2 * random.integers(2)), _LENGTH)
    a_PP, b_PP = a_PP + phase_u, b_PP + phase_v
    match CLASSES["texture"][texture]:
        case "plain":
            return np.ones_like(own.u_PP)
        case "stripes":
            wave_PP = np.sin(a_PP) - 0.55
        case "checker":
            wave_PP = np.sin(a_PP * 0.8) * np.sin(b_PP * 0.8)
        case _:  # dots, dark ones
            wave_PP = 0.9 - np.cos(a_PP) - np.cos(b_PP)
    return pattern(wave_PP, own, _LENGTH)
