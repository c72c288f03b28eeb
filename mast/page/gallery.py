"""A page of found images, row by row: neighbors, copies or outliers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from mast.data import CanvasSet
from mast.page.html import FOLDER, Block, Picture, Section, jpeg, write_page

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
    has_boxes = any(item.pair for row in rows for item in row.items)
    script = (FOLDER / "gallery.js").read_text("utf-8") if has_boxes else ""
    opening: list[Block] = [("lead", lead)]
    if has_boxes:
        opening.append(("save", ""))
    has_parts = any(row.part for row in rows)

    def sections(side: int) -> list[Section]:
        shown = [Section("", opening)]
        for row in rows[:ROWS]:
            blocks: list[Block] = [("heading", row.heading)] if has_parts else []
            blocks.append(("gallery", {"pictures": [_picture(x, side) for x in row.items[:ITEMS]]}))
            if (more := len(row.items) - ITEMS) > 0:
                blocks.append(("note", f"And {more:,} more images, which only a table has."))
            if row.part or not has_parts:
                shown.append(Section(row.part or row.heading, blocks))
            else:  # rows of the part that began before
                shown[-1] = Section(shown[-1].title, [*shown[-1].blocks, *blocks])
        if (more := len(rows) - ROWS) > 0:
            shown.append(
                Section("", [("note", f"And {more:,} more rows, which only a table has.")])
            )
        return shown

    write_page(out, title, sections, "name a table, .csv or .parquet", script)


def _picture(item: Item, side: int) -> Picture:
    name = item.canvases.identifiers[item.position]
    label = f"{name}: {item.caption}" if item.caption else name
    source = jpeg(thumbnail(item, side))
    return Picture(source, label, label if item.caption else "", item.is_query, item.pair)


def thumbnail(item: Item, side: int) -> Image.Image:
    """The image with its own aspect ratio, at most `side` pixels high and wide."""
    canvases = item.canvases.batch([item.position])
    canvas_HWC, aspect = canvases.image(0).numpy(), float(canvases.aspect_B[0])
    side = min(side, max(canvas_HWC.shape))
    width, height = side * min(1.0, aspect), side * min(1.0, 1 / aspect)
    size = (max(1, round(width)), max(1, round(height)))
    return Image.fromarray(canvas_HWC).resize(size, Image.Resampling.LANCZOS)
