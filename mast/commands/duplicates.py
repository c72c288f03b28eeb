"""Find copies and near-copies in a folder of images."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.commands.common import command, listing_file, open_search, or_default, write_listing
from mast.core.checkpoint import write_text
from mast.core.errors import UserError, visible
from mast.core.files import as_unicode, named, out_file, read_rows, read_text, spelling
from mast.core.kinds import Device, EncoderLike
from mast.core.table import Listing, images_of, safe_cell

if TYPE_CHECKING:
    from mast.data import CanvasSet
    from mast.invariance.choice import SearchEncoder
    from mast.page import GalleryRow, Item
    from mast.search.duplicates import Copy


PAIR = ("path", "other")
TURNING = {"horizontal_flip", "rotate"}  # where all are ignored, turned images are hashed, too
_log = logging.getLogger("mast")


@command
def duplicates(
    data: str | Path,
    encoder: EncoderLike | None = None,
    above: float | None = None,
    out: str | Path | None = None,
    size: int | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
    margin: float | None = None,
    not_copies: str | Path | None = None,
    list: str | Path | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
    max_broken: float = 1.0,
) -> Listing:
    """Find groups of exact copies and of near-copies in a set.

    Exact copies have the same pixels after resizing for the encoder. Near-copies were recompressed,
    resized, brightened, recolored or blurred: the cosine of their features exceeds 0.99, or their
    perceptual hashes differ in at most 4 of 64 bits. Ignore and match choose what else may differ.
    All pairs are compared.

    Args:
        data: The images; labels are not needed.
        above: Smallest cosine of near-copies; turns hashes off. By default 0.99 on features
            standardized over the set, or 0.95 with ignore, plus hashes; with match or space only
            the margin decides. Pairs that exceed the margin are always joined.
        ignore: What copies may also differ in: operators, properties such as orientation, or "all"
            measured ones. With orientation, mirrored and rotated images are hashed too.
        match: Compare only by these operators or properties: with color, a gray version is not a
            copy.
        margin: With ignore, match or space, a pair also counts as near-copies if its cosine
            exceeds, by this much, the two images' mean cosine to their three nearest others. 0.2
            by default, 0.3 for fewer than 50 images; needs ten.
        not_copies: A .csv with the columns `path` and `other`: pairs that are not copies. The page
            saves one from its ticked boxes.
        list: A .txt file to write: the path or name of every image in a group except the first.
            `FOLDER#exclude=FILE` leaves these images out.

    Returns:
        A row for each image in a group: `group`, a number from 1; `path` in the set; `kind`:
        "first" for the group's first image in the order of the set, "exact" for one with the same
        pixels as an image above it in the group, else "near"; and `cosine` to the first. All images
        in a group are copies of its first. An adapted encoder adds `changed_by`, the property in
        which a near-copy probably differs from the first, such as "orientation", or "none" of the
        measured ones, and its `probability`.
    """
    encoder = or_default(encoder, data)
    if above is not None and not -1 <= above <= 1:
        raise UserError(f"above is a cosine, from -1 to 1, got {above:g}")
    if margin is not None and not 0 < margin <= 2:
        raise UserError(f"margin is a difference of cosines, above 0 and up to 2, got {margin:g}")
    file = listing_file(out, "group", "path", "kind", "cosine")
    listed = None if list is None else out_file(list, {".txt": _is_list}, "list")
    from mast.data import split_cut
    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import InvarianceChoice
    from mast.search.duplicates import FEW, MARGIN, SAME, WIDE, copies_within
    from mast.search.nearest import NEAR

    excluded = split_cut(str(data))[1].exclude
    if listed and excluded and listed.resolve() == named(excluded).resolve():
        raise UserError(f"list: {listed} would overwrite the list that data excludes")
    rejected = () if not_copies is None else _pairs(named(not_copies))
    invariances = InvarianceChoice(ignore, match, space)
    if margin is not None and not invariances.of_depths:
        raise UserError("margin acts with ignore, match or space: give one of them, or above")
    options = EncoderOptions(encoder, size, weights, download, untrained)
    by, canvases = open_search(options, data, invariances, device, max_broken)
    features_ND = by.features(canvases).to(by.encoder.device)
    chosen = bool(by.chosen)
    ignored = by.chosen.get("ignored", ())
    alike = by.chosen.keys() <= {"ignored"}  # copies are what looks alike but for what is ignored
    usual = NEAR if not chosen else SAME if alike else 1.0
    least = usual if above is None else above
    hashes = alike and above is None
    turns = TURNING & {*(by.adapted.operators if by.adapted else ())}
    turned = bool(turns) and turns <= {*ignored}
    at = {_cell(name): position for position, name in enumerate(canvases.identifiers)}
    apart = [(at[one], at[other]) for one, other in rejected if one in at and other in at]
    if len(apart) < len(rejected):
        _log.warning(
            "%d of the %d pairs in %s name no images of %s",
            len(rejected) - len(apart), len(rejected), not_copies, canvases.name,
        )  # fmt: skip
    usual_margin = MARGIN if len(canvases) >= FEW else WIDE
    margin = (usual_margin if margin is None else margin) if chosen else None
    found = copies_within(canvases, features_ND, least, margin, apart, hashes, turned)
    columns: dict[str, Any] = {
        "group": [copy.group for copy in found],
        "path": [canvases.identifiers[copy.position] for copy in found],
        "kind": [copy.kind for copy in found],
        "cosine": [copy.cosine for copy in found],
    }
    changed = _changed_by(by, canvases, found)
    if by.adapted is not None:
        known = [changed.get(copy.position, ("", math.nan)) for copy in found]
        columns["changed_by"] = [name for name, _ in known]
        columns["probability"] = [probability for _, probability in known]
    counts = Counter(copy.kind for copy in found)
    summary = (
        f"{images_of(canvases.name, len(canvases), canvases.skipped)}: {counts['first']:,} "
        f"groups, {counts['exact']:,} exact and {counts['near']:,} near copies."
    )
    write_listing(file, columns, "Copies", summary, lambda: _rows(found, canvases, changed))
    if listed is not None:
        others = [canvases.identifiers[copy.position] for copy in found if copy.kind != "first"]
        names = [as_unicode(_path(name, canvases.name)) for name in others]
        if broken := [name for name in names if "\n" in name]:
            raise UserError(f"{broken[0]!r} has a line break, which no list can hold: rename it")
        write_text(listed, "".join(f"{name}\n" for name in names))
    from mast.page import Thumbnails

    return Listing(columns, {summary: range(len(found))}, file, picture=Thumbnails(canvases))


def _pairs(file: Path) -> Sequence[tuple[str, str]]:
    """The names of images that are not copies of each other, as cells."""
    rows = read_rows(file, PAIR)
    if rows[:1] != [[*PAIR]] or any(len(row) != len(PAIR) for row in rows):
        raise UserError(f"{file} must have the two columns {' and '.join(PAIR)}")
    return [(spelling(one), spelling(other)) for one, other in rows[1:]]


def _cell(name: str) -> str:
    """A name as the page writes it into a table of pairs."""
    return visible(safe_cell(spelling(name)))


def _is_list(path: Path) -> bool:
    """Whether a file is a list of images: text of which each line is a name."""
    names = read_text(path).split("\n")
    return all(Path(name).suffix or "#" in name or name.isdecimal() for name in names if name)


def _path(name: str, data: str) -> str:
    """The path of an image in a folder; its name where it is no file there."""
    from mast.data import split_cut
    from mast.data.pieces import file_of

    path = os.path.join(split_cut(data)[0], name)
    return path if os.path.exists(file_of(path)) else name


def _changed_by(
    by: SearchEncoder, canvases: CanvasSet, found: Sequence[Copy]
) -> dict[int, tuple[str, float]]:
    """What changed of its group's first, and how probable that is, by position of near-copies."""
    near = [copy for copy in found if copy.kind == "near"]
    if by.adapted is None or not near:
        return {}
    first = {copy.group: copy.position for copy in found if copy.kind == "first"}
    features_NF = by.depths(canvases)
    ends = [[first[copy.group] for copy in near], [copy.position for copy in near]]
    named = by.adapted.changed_by(*(features_NF[places] for places in ends))
    return dict(zip(ends[1], named, strict=True))


def _rows(
    found: Sequence[Copy], canvases: CanvasSet, changed: Mapping[int, tuple[str, float]]
) -> list[GalleryRow]:
    """A row for each group, for the page."""
    from mast.page import GalleryRow, Item

    rows = []
    for group, copies in groupby(found, key=lambda copy: copy.group):
        items: list[Item] = []
        for copy in copies:
            ends = [items[0].position, copy.position] if copy.kind == "near" else []
            pair = tuple(_cell(canvases.identifiers[end]) for end in ends)
            caption = copy.kind
            if caption != "first":
                name, probability = changed.get(copy.position, ("", 0.0))
                caption += f", {copy.cosine:.4f}"
                caption += f", {name} {100 * probability:.0f} %" if name else ""
            items.append(Item(canvases, copy.position, caption, copy.kind == "first", pair))
        rows.append(GalleryRow(f"Group {group}", items))
    return rows
