"""Images and points of the page as text: JPEGs in data URIs, and JSON that a script can read.

N images, P side of an image in pixels, A arrangements.
"""

import base64
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from mast.analyses import Gallery, Map
from mast.analyses.figure import class_colors
from mast.core.errors import visible

QUALITY = 88  # of the JPEGs
INK = {"#000000": "currentColor"}  # black cannot be seen on a dark page


@dataclass(frozen=True)
class Picture:
    """One image of a gallery.

    Attributes:
        source: Its data URI.
        caption: What it is.
    """

    source: str
    caption: str


@dataclass(frozen=True)
class Shelf:
    """A gallery as the page shows it."""

    title: str
    pictures: tuple[Picture, ...]
    columns: int | None = None


@dataclass(frozen=True)
class Plane:
    """A map as the page shows it.

    Attributes:
        arrangements: Names of what can be chosen.
        colorings: Names of what can be chosen.
        count: Of points.
        sheet: All images side by side, a data URI.
        points: For the script, JSON without markup.
    """

    arrangements: tuple[str, ...]
    colorings: tuple[str, ...]
    count: int
    sheet: str
    points: str


def shelf(gallery: Gallery, side: int) -> Shelf:
    """A gallery with images of at most `side` pixels."""
    pictures = (jpeg(_shrunk(picture_PP3, side)) for picture_PP3 in gallery.pictures_NPP3)
    captioned = (Picture(*both) for both in zip(pictures, gallery.captions, strict=True))
    return Shelf(gallery.title, tuple(captioned), gallery.columns)


def plane(points_map: Map, side: int) -> Plane:
    """A map with images of at most `side` pixels."""
    pictures = [_shrunk(picture_PP3, side) for picture_PP3 in points_map.pictures_NPP3]
    sheet, columns, cell = _sheet(pictures)
    colorings = [
        _coloring(classes, points_map.colors[task]) for task, classes in points_map.classes.items()
    ]
    points = {
        "captions": points_map.captions,
        "colorings": colorings,
        "columns": columns,
        "points": points_map.points_AN2.tolist(),
        "side": cell,
    }
    names = tuple(points_map.classes)
    return Plane(points_map.arrangements, names, len(points_map.captions), sheet, as_json(points))


def _coloring(classes: Sequence[str], label_N: np.ndarray) -> dict[str, Any]:
    """The classes of a task with their colours, the outline of all, and the points' classes."""
    colors = class_colors(classes)
    return {
        "classes": [
            {"name": name, "color": INK.get(fill, fill)}
            for name, fill in zip(classes, colors.fills, strict=True)
        ],
        "outline": colors.outline,
        "labels": [int(label) for label in label_N],
    }


def as_json(value: Any) -> str:
    """JSON for a script element: null for what is not finite, nothing that ends the element."""
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def jpeg(image: Image.Image) -> str:
    """An image as a data URI."""
    content = io.BytesIO()
    image.save(content, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def _shrunk(picture_PP3: np.ndarray, side: int) -> Image.Image:
    image = Image.fromarray(picture_PP3)
    image.thumbnail((side, side))
    return image


def _sheet(pictures: Sequence[Image.Image]) -> tuple[str, int, int]:
    """All images in one, how many are in a row, and the side of each."""
    side = max((max(picture.size) for picture in pictures), default=1)
    columns = max(1, math.ceil(len(pictures) ** 0.5))
    rows = max(1, math.ceil(len(pictures) / columns))
    sheet = Image.new("RGB", (columns * side, rows * side))
    for at, picture in enumerate(pictures):
        sheet.paste(picture, (at % columns * side, at // columns * side))
    return jpeg(sheet), columns, side


def _finite(value: Any) -> Any:
    """Numbers to four decimals, None where they are not finite, and text as it can be shown."""
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
