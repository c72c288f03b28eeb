"""A page of photos: rows of found images and, if features are passed, neighbors of any photo."""

import base64
import io
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from markupsafe import Markup
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mast.core.errors import visible
from mast.core.files import as_unicode
from mast.data import CanvasSet
from mast.data.source import UNLABELLED
from mast.page.html import FOLDER, POLICY, SIDE, hashed, jpeg, rendered
from mast.search.reduced import Reduced

PHOTOS = 5000  # on a page, which then has less than 25 MB
ITEMS = 500  # in a row
SHEET = 10  # photos along a side of a sheet
QUALITY = 60
SIDES = {300: 256, 1200: SIDE, 5000: 96}  # pixels of a thumbnail, by how many there are at most
SCRIPTS = ("state", "tiles", "rows", "views", "main")


class Item(NamedTuple):
    """An image of a row."""

    canvases: CanvasSet
    position: int
    caption: str
    is_query: bool = False  # whether the row is about this image
    kept: bool | None = None  # whether "keep" is ticked at first; without it, no box
    pair: tuple[str, ...] = ()  # two names to save if they are ticked as not copies, or no box


class GalleryRow(NamedTuple):
    """A row of images, in order."""

    heading: str
    items: Sequence[Item]


class View(NamedTuple):
    """Rows under one title, and a sentence on what they show."""

    title: str
    lead: str
    rows: Sequence[GalleryRow]


class Searched(NamedTuple):
    """A set whose photos are ranked by any choice of properties."""

    canvases: CanvasSet
    space: Reduced
    start: str = ""  # what is seen first, as in the page's address: "photo=a.jpg&match=color"


@dataclass(frozen=True)
class Thumbnails:
    """Maps the name of an image to the data URI of a thumbnail; "" for unknown names."""

    canvases: CanvasSet

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.canvases.identifiers)}

    def __call__(self, name: str) -> str:
        at = self._places.get(name)
        return "" if at is None else jpeg(thumbnail(self.canvases, at, SIDE))


def write_gallery(
    out: Path, title: str, views: Sequence[View], searched: Searched | None = None, lead: str = ""
) -> None:
    """Write a page that loads nothing and needs no server.

    Args:
        out: The page.
        title: Its heading.
        views: Rows of images: at most 500 in a row, and 5,000 photos on the page.
        searched: The photos to choose from; without it, the page has rows only.
        lead: A sentence on what the page shows.
    """
    photos = dict[tuple[str, str], tuple[CanvasSet, int]]()
    if searched is not None:
        canvases = searched.canvases
        names = enumerate(canvases.identifiers)
        photos = {(canvases.name, name): (canvases, at) for at, name in names}
    shown = [_view(view, photos) for view in views]
    every = [*photos.values()]
    side = next(side for most, side in SIDES.items() if len(photos) <= most)
    side = min(side, 2 + max((int(of.pixels.size_N2[at].max()) for of, at in every), default=side))
    sheets = [_sheet(every[start : start + SHEET**2], side)
              for start in range(0, len(every), SHEET**2)]  # fmt: skip
    style = "".join((FOLDER / name).read_text("utf-8") for name in ("base.css", "gallery.css"))
    style += "".join(f".sheet-{at} {{ background-image: url({each}); }}\n"
                     for at, each in enumerate(sheets))  # fmt: skip
    script, worker = (
        "\n".join((FOLDER / "scripts" / f"{name}.js").read_text("utf-8") for name in names)
        for names in (SCRIPTS, ("space",))
    )
    data = {
        "names": [visible(as_unicode(name)) for _, name in photos],
        "labels": [_label(*photo) for photo in every],
        "views": shown,
        "start": "" if searched is None else searched.start,
        "space": None if searched is None else _space(searched.space),
    }
    if searched is not None:
        share = 100 * searched.space.agreement
        lead += (
            f" Features are rounded to keep this file small: {share:.1f} % of the ten nearest "
            "photos are those of an exact search."
        )
    policy = f"{POLICY}script-src '{hashed(script)}'; worker-src blob:; base-uri 'none'; "
    rendered(
        out, "gallery.html.jinja", title=title, lead=lead, policy=f"{policy}form-action 'none'",
        style=Markup(style), data=Markup(json.dumps(data).replace("<", "\\u003c")),
        script=Markup(script), worker=Markup(worker),
    )  # fmt: skip


def _view(view: View, photos: dict[tuple[str, str], tuple[CanvasSet, int]]) -> dict[str, Any]:
    """A view as the page reads it; its photos are added to those of the page."""
    places = {photo: at for at, photo in enumerate(photos)}
    rows = list[dict[str, Any]]()
    for row in view.rows:
        tiles = list[dict[str, Any]]()
        for canvases, position, caption, is_query, kept, pair in row.items[:ITEMS]:
            photo = canvases.name, canvases.identifiers[position]
            if photo not in places and len(places) == PHOTOS:
                break
            photos.setdefault(photo, (canvases, position))
            at = places.setdefault(photo, len(places))
            tiles.append({"at": at, "caption": visible(caption), "query": is_query, "kept": kept,
                          "pair": pair})  # fmt: skip
        if not tiles:
            break
        more = len(row.items) - len(tiles)
        rows.append({"heading": visible(row.heading), "tiles": tiles, "more": more})
    left = len(view.rows) - len(rows)
    return {"title": view.title, "lead": visible(view.lead), "rows": rows, "more": left}


def _label(canvases: CanvasSet, at: int) -> str:
    """The first label of an image, or ""."""
    task, label_N = next(iter(canvases.targets.items()), ("", [UNLABELLED]))
    label = label_N[at if task else 0]
    return "" if label == UNLABELLED else visible(canvases.classes[task][label])


def _space(space: Reduced) -> dict[str, Any]:
    """Features and choices as the page reads them."""
    return {
        "features": [_packed(each) for part in space.features for each in part],
        "properties": {
            name: {"factor": [_packed(each) for each in of.factor], "floor": of.floor}
            for name, of in space.properties.items()
        },
        "lengths": _packed(torch.stack([*space.lengths])),
        "maps": [_packed(pad_sequence([*each], batch_first=True))
                 for each in zip(*space.maps, strict=True)],
        "places": _packed((255 * torch.stack([*space.places])).round().byte()),
        "axes": sum(len(part.scale) for part in space.features), "every": space.every,
    }  # fmt: skip


def _packed(numbers: Tensor) -> str:
    """Numbers as text."""
    return base64.b64encode(zlib.compress(numbers.contiguous().numpy().tobytes(), 9)).decode()


def _sheet(photos: Sequence[tuple[CanvasSet, int]], side: int) -> str:
    """A hundred photos as one image, as a data URI: each whole, on a transparent square."""
    sheet = Image.new("RGBA", (SHEET * side, SHEET * side))
    for place, (canvases, at) in enumerate(photos):
        image = thumbnail(canvases, at, side - 2)  # so that no neighbor shows at the edge
        row, column = divmod(place, SHEET)
        corner = column * side + (side - image.width) // 2, row * side + (side - image.height) // 2
        sheet.paste(image, corner)
    content = io.BytesIO()
    sheet.save(content, "WEBP", quality=QUALITY)
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"


def thumbnail(canvases: CanvasSet, at: int, side: int) -> Image.Image:
    """An image with its own aspect ratio, within a square."""
    batch = canvases.batch([at])
    canvas_HWC, aspect = batch.image(0).numpy(), float(batch.aspect_B[0])
    width, height = side * min(1.0, aspect), side * min(1.0, 1 / aspect)
    size = (max(1, round(width)), max(1, round(height)))
    return Image.fromarray(canvas_HWC).resize(size, Image.Resampling.LANCZOS)
