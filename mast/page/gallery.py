"""A page of found images, row by row: neighbors, copies or outliers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from mast.data import CanvasSet
from mast.page.html import FOLDER, SIDE, Block, Picture, Section, jpeg, write_page

ROWS = 200  # on a page
ITEMS = 100  # in a row
IMAGES = 2000  # on a page, which then has less than 10 MB


class Item(NamedTuple):
    """An image of a row."""

    canvases: CanvasSet
    position: int
    caption: str  # "" for neither caption nor name
    is_query: bool = False  # whether the row is about this image
    # Two names to write into a table if the image is ticked as no copy; without them, no box.
    pair: tuple[str, ...] = ()


class GalleryRow(NamedTuple):
    """A row of images, in order."""

    heading: str
    items: Sequence[Item]
    part: str = ""  # heading of the section that this row starts


@dataclass(frozen=True)
class Thumbnails:
    """Maps the name of an image to the data URI of a thumbnail; "" for unknown names."""

    canvases: CanvasSet

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.canvases.identifiers)}

    def __call__(self, name: str) -> str:
        at = self._places.get(name)
        return "" if at is None else jpeg(thumbnail(Item(self.canvases, at, "")))


def write_gallery(out: Path, title: str, lead: str, rows: Sequence[GalleryRow]) -> None:
    """Write a page of thumbnails that needs no network.

    Images with a `pair` have a checkbox; a button saves the table of ticked pairs.

    Args:
        out: The page.
        title: Its heading.
        lead: A sentence on what the page shows.
        rows: The first 200 are shown, at most 100 images of each and 2,000 in all.
    """
    has_boxes = any(item.pair for row in rows for item in row.items)
    has_parts = any(row.part for row in rows)
    sections = [Section("", [("lead", lead), *([("save", "")] if has_boxes else [])])]
    left = IMAGES
    for at, row in enumerate(rows):
        items = row.items[: min(ITEMS, left)]
        left -= len(items)
        if at == ROWS or not items:
            more = f"And {len(rows) - at:,} more rows; write a table to see them."
            sections.append(Section("", [("note", more)]))
            break
        blocks: list[Block] = [("heading", row.heading)] if has_parts else []
        blocks.append(("gallery", {"pictures": [*map(_picture, items)]}))
        if (more_items := len(row.items) - len(items)) > 0:
            blocks.append(("note", f"And {more_items:,} more images; write a table to see them."))
        if row.part or not has_parts:
            sections.append(Section(row.part or row.heading, blocks))
        else:  # rows of the previous section
            sections[-1] = Section(sections[-1].title, [*sections[-1].blocks, *blocks])
    script = (FOLDER / "gallery.js").read_text("utf-8") if has_boxes else ""
    write_page(out, title, sections, script)


def _picture(item: Item) -> Picture:
    name = item.canvases.identifiers[item.position]
    label = f"{name}: {item.caption}" if item.caption else name
    source = jpeg(thumbnail(item))
    return Picture(source, label, label if item.caption else "", item.is_query, item.pair)


def thumbnail(item: Item) -> Image.Image:
    """The image with its own aspect ratio, at most `SIDE` pixels high and wide."""
    canvases = item.canvases.batch([item.position])
    canvas_HWC, aspect = canvases.image(0).numpy(), float(canvases.aspect_B[0])
    side = min(SIDE, max(canvas_HWC.shape))
    width, height = side * min(1.0, aspect), side * min(1.0, 1 / aspect)
    size = (max(1, round(width)), max(1, round(height)))
    return Image.fromarray(canvas_HWC).resize(size, Image.Resampling.LANCZOS)
