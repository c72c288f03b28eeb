"""Images and points of the page as text: JPEGs in data URIs, and JSON that a script can read.

N images, P side of an image in pixels, A arrangements.
"""

import json
import math
from typing import Any

import numpy as np
from PIL import Image

from mast.analyses import Gallery, Map
from mast.analyses.figure import class_colors
from mast.core.errors import visible
from mast.page.html import Picture, jpeg

INK = {"#000000": "currentColor"}  # black cannot be seen on a dark page


def shelf(gallery: Gallery, side: int) -> dict[str, Any]:
    """A gallery with images of at most `side` pixels."""
    pictures = [
        Picture(jpeg(_shrunk(picture_PP3, side)), caption)
        for picture_PP3, caption in zip(gallery.pictures_NPP3, gallery.captions, strict=True)
    ]
    return {"title": gallery.title, "columns": gallery.columns, "pictures": pictures}


def plane(points_map: Map, side: int) -> dict[str, Any]:
    """A map as the page shows it: names to choose from, images, and `points` for the script.

    The images have at most `side` pixels, and stand side by side in one.
    """
    pictures = [_shrunk(picture_PP3, side) for picture_PP3 in points_map.pictures_NPP3]
    cell = max(max(picture.size) for picture in pictures)
    columns = math.ceil(len(pictures) ** 0.5)
    sheet = Image.new("RGB", (columns * cell, math.ceil(len(pictures) / columns) * cell))
    for at, picture in enumerate(pictures):
        sheet.paste(picture, (at % columns * cell, at // columns * cell))
    points = {
        "captions": points_map.captions,
        "colorings": [_coloring(points_map, task) for task in points_map.classes],
        "columns": columns,
        "points": points_map.points_AN2.tolist(),
        "side": cell,
    }
    return {
        "arrangements": points_map.arrangements,
        "colorings": [*points_map.classes],
        "count": len(points_map.captions),
        "sheet": jpeg(sheet),
        "points": as_json(points),
    }


def _coloring(points_map: Map, task: str) -> dict[str, Any]:
    """The classes of a task with their colors, the outline of all, and the points' classes."""
    classes = points_map.classes[task]
    colors = class_colors(classes)
    return {
        "classes": [
            {"name": name, "color": INK.get(fill, fill)}
            for name, fill in zip(classes, colors.fills, strict=True)
        ],
        "outline": colors.outline,
        "labels": [int(label) for label in points_map.colors[task]],
    }


def as_json(value: Any) -> str:
    """JSON for a script element: null for what is not finite, nothing that ends the element."""
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shrunk(picture_PP3: np.ndarray, side: int) -> Image.Image:
    image = Image.fromarray(picture_PP3)
    image.thumbnail((side, side))
    return image


def _finite(value: Any) -> Any:
    """Numbers to four decimals, None where they are not finite, and text as it can be shown."""
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
