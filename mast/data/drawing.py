"""What generated images are drawn with: an object's own coordinates, layers, colours, blur.

Colours and pixels are float32 in [0, 1].

Legend: P side of the image in pixels, C channels.
"""

import functools
from dataclasses import dataclass

import numpy as np


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
