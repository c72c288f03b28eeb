"""Find copies and near-copies in a folder of images."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mast.commands.common import command, listing_file, open_search, or_default, write_listing
from mast.core.arguments import as_list
from mast.core.checkpoint import write_text
from mast.core.errors import UserError, visible
from mast.core.files import as_unicode, named, out_file, read_rows, read_text, spelling
from mast.core.kinds import Device, EncoderLike
from mast.core.table import Listing, images_of, safe_cell

if TYPE_CHECKING:
    from mast.data import CanvasSet
    from mast.page import GalleryRow
    from mast.search.duplicates import Copy


Level: TypeAlias = Literal["exact", "near", "edited", "similar"]
PAIR = ("path", "other")
LEVELS = ("exact", "near", "edited", "similar")  # from certain to loose
_log = logging.getLogger("mast")


@command
def duplicates(
    data: str | Path,
    encoder: EncoderLike | None = None,
    level: Level = "edited",
    out: str | Path | None = None,
    size: int | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
    not_copies: str | Path | None = None,
    list: str | Path | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
    max_broken: float = 1.0,
) -> Listing:
    """Find groups of copies in a set.

    There are four levels, from certain to loose:

    - exact: the same pixels, in any file format.
    - near: compressed, resized, blurred, brightened.
    - edited: cropped, rotated, mirrored, recolored, captioned or framed.
    - similar: another photo of the same thing, judged by features alone.

    The encoder proposes pairs. Near and edited copies are verified: one image is warped onto the
    other, and most of the overlap must agree. Images without detail are near copies if the cosine
    of their features exceeds 0.99 or their perceptual hashes differ in at most 4 of 64 bits.

    Args:
        data: The images; labels are not needed.
        level: How far to go; each level includes those before it.
        ignore: Properties in which copies may differ, such as orientation; by default all. With
            level similar: changes that should not count.
        match: Properties in which copies must agree: with color, a gray version is no copy. With
            level similar: compare by these and nothing else.
        space: With level similar: a .json file from `mast neighbours --same --different`, or
            `depths` (all stages of the encoder, standardized).
        not_copies: A .csv with the columns `path` and `other`: pairs that are not copies. The page
            saves one from its ticked boxes.
        list: A .txt file to write: the path or name of every image in a group except the first.
            `FOLDER#exclude=FILE` leaves these images out.

    Returns:
        A row for each image in a group: `group`, a number from 1; `path` in the set; `level`:
        "first" for the group's first image in the order of the set, "exact" if its pixels equal
        those of an earlier image of the group, else the level at which it is a copy of the first;
        `changes` from the first, such as "cropped to 61 %, mirrored"; `agreement` with it after the
        warp, at most 1, NaN for similar images; and `cosine` of their features.
    """
    encoder = or_default(encoder, data)
    if space is not None and level != "similar":
        raise UserError("space chooses features of similar images: give --level similar with it")
    file = listing_file(out, "group", "path", "level", "changes")
    listed = None if list is None else out_file(list, {".txt": _is_list}, "list")
    from mast.data import split_cut
    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import InvarianceChoice
    from mast.search.duplicates import SAME, copies_within

    excluded = split_cut(str(data))[1].exclude
    if listed and excluded and listed.resolve() == named(excluded).resolve():
        raise UserError(f"list: {listed} would overwrite the list that data excludes")
    rejected = () if not_copies is None else _pairs(named(not_copies))
    similar = level == "similar"
    invariances = InvarianceChoice(ignore, match, space) if similar else InvarianceChoice()
    fixed = _fixed(as_list(ignore), as_list(match))
    options = EncoderOptions(encoder, size, weights, download, untrained)
    by, canvases = open_search(options, data, invariances, device, max_broken)
    features_ND = by.features(canvases).to(by.encoder.device)
    # With match or a space, what looks alike may differ in it.
    above = (SAME if by.chosen.keys() <= {"ignored"} else 1.0) if by.chosen else None
    at = {_cell(name): position for position, name in enumerate(canvases.identifiers)}
    apart = [(at[one], at[other]) for one, other in rejected if one in at and other in at]
    if len(apart) < len(rejected):
        _log.warning(
            "%d of the %d pairs in %s name no images of %s",
            len(rejected) - len(apart), len(rejected), not_copies, canvases.name,
        )  # fmt: skip
    found = copies_within(canvases, features_ND, level, above, apart, fixed)
    columns: dict[str, Any] = {
        "group": [copy.group for copy in found],
        "path": [canvases.identifiers[copy.position] for copy in found],
        "level": [copy.level for copy in found],
        "changes": [copy.changes for copy in found],
        "agreement": [copy.agreement for copy in found],
        "cosine": [copy.cosine for copy in found],
    }
    counts = Counter(copy.level for copy in found)
    of_levels = [f"{counts[each]:,} {each}" for each in LEVELS[: LEVELS.index(level) + 1]]
    summary = (
        f"{images_of(canvases.name, len(canvases), canvases.skipped)}: {counts['first']:,} "
        f"groups, {', '.join(of_levels)} copies."
    )
    write_listing(file, columns, "Copies", summary, lambda: _rows(found, canvases))
    if listed is not None:
        others = [canvases.identifiers[copy.position] for copy in found if copy.level != "first"]
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


def _fixed(ignore: Sequence[str], match: Sequence[str]) -> set[str]:
    """The properties in which copies may not differ, of properties or of operators."""
    from mast.augment import OPERATORS
    from mast.search.edits import CHANGES

    properties = {*CHANGES.values()}

    def of(names: Sequence[str]) -> set[str]:
        found = {OPERATORS[name].destroys if name in OPERATORS else name for name in names}
        if unknown := found - properties - {each.destroys for each in OPERATORS.values()} - {"all"}:
            known = ", ".join(sorted(properties))
            raise UserError(f"ignore, match: expected properties ({known}), got {unknown.pop()!r}")
        return properties if "all" in found else found

    return (properties - of(ignore) if ignore else set()) | of(match)


def _rows(found: Sequence[Copy], canvases: CanvasSet) -> list[GalleryRow]:
    """A row for each group, for the page."""
    from mast.page import GalleryRow, Item

    rows = []
    for group, copies in groupby(found, key=lambda copy: copy.group):
        items: list[Item] = []
        for copy in copies:
            loose = copy.level not in ("first", "exact")
            ends = [items[0].position, copy.position] if loose else []
            pair = tuple(_cell(canvases.identifiers[end]) for end in ends)
            caption = ": ".join(filter(None, [copy.level, copy.changes]))
            items.append(Item(canvases, copy.position, caption, copy.level == "first", pair))
        rows.append(GalleryRow(f"Group {group}", items))
    return rows
