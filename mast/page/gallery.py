"""A page of images to look at, row by row: what a search, or a look for copies or errors, found."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from mast.data import CanvasSet
from mast.page.html import Picture, jpeg, write_fitting

ROWS = 200  # on a page
ITEMS = 100  # in a row
SIDE = 96  # pixels of an image in a notebook


class Item(NamedTuple):
    """An image of a row."""

    canvases: CanvasSet
    position: int
    caption: str  # "": without one, and without its name
    is_query: bool = False  # whether the row is about it
    # Two names that are written into a table if the image is ticked as no copy; else it has no box.
    pair: tuple[str, ...] = ()


class GalleryRow(NamedTuple):
    """Images that belong together, in the order in which to look at them."""

    heading: str
    items: Sequence[Item]
    part: str = ""  # the heading of a part of the page, which begins with this row


@dataclass(frozen=True)
class Thumbnails:
    """From the name of an image of a set to the data URI of a small copy, "" for other names."""

    canvases: CanvasSet

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.canvases.identifiers)}

    def __call__(self, name: str) -> str:
        at = self._places.get(name)
        return "" if at is None else jpeg(thumbnail(Item(self.canvases, at, ""), SIDE))


def write_gallery(out: Path, title: str, lead: str, rows: Sequence[GalleryRow]) -> None:
    """Write a page of images that needs no network; it holds a copy of each image.

    Images with a `pair` have a box to tick, and a button of the page writes the table of the pairs.

    Args:
        out: The page.
        title: Its heading.
        lead: What it shows, in a sentence.
        rows: The first 200 are shown, of each the first 100 images.
    """

    def image(item: Item, side: int) -> dict[str, Any]:
        name, caption = item.canvases.identifiers[item.position], item.caption
        picture = Picture(jpeg(thumbnail(item, side)), f"{name}: {caption}" if caption else name)
        return {**item._asdict(), "picture": picture}

    def page(side: int) -> dict[str, Any]:
        first = [
            {
                "heading": row.heading,
                "part": row.part,
                "images": [image(item, side) for item in row.items[:ITEMS]],
                "left_out": max(0, len(row.items) - ITEMS),
            }
            for row in rows[:ROWS]
        ]
        return {"title": title, "lead": lead, "rows": first, "left_out": len(rows) - len(first),
                "has_parts": any(row.part for row in rows)}  # fmt: skip

    boxes = any(item.pair for row in rows for item in row.items)
    script = "gallery.js" if boxes else None
    advice = "name a table, .csv or .parquet"
    write_fitting(out, "gallery.html.jinja", script, page, str(out), advice)


def thumbnail(item: Item, side: int) -> Image.Image:
    """The image with its own aspect ratio, at most `side` pixels high and wide."""
    canvases = item.canvases.batch([item.position])
    canvas_HWC, aspect = canvases.image(0).numpy(), float(canvases.aspect_B[0])
    side = min(side, max(canvas_HWC.shape))
    width, height = side * min(1.0, aspect), side * min(1.0, 1 / aspect)
    size = (max(1, round(width)), max(1, round(height)))
    return Image.fromarray(canvas_HWC).resize(size, Image.Resampling.LANCZOS)
