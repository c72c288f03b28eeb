"""Find copies in a folder of images and, on request, move all but one of each group."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from mast.commands.common import command, listing_file, open_search, or_default, write_listing
from mast.core.arguments import as_list
from mast.core.checkpoint import write_text
from mast.core.errors import UserError, counted, visible
from mast.core.files import (
    as_unicode,
    in_gb,
    named,
    out_file,
    read_rows,
    read_text,
    spelling,
)
from mast.core.kinds import Device, EncoderLike
from mast.core.moves import LIST
from mast.core.moves import restore as put_back
from mast.core.table import Listing, images_of, safe_cell

if TYPE_CHECKING:
    from mast.data import CanvasSet
    from mast.page import View
    from mast.search.duplicates import Copy


Level: TypeAlias = Literal["exact", "near", "edited", "similar"]
PAIR = ("path", "other")
LEVELS = get_args(Level)  # from certain to loose
FACTS = ("width", "height", "bytes", "date")  # columns that the terminal does not show
Group: TypeAlias = "list[Copy]"
_log = logging.getLogger("mast")


@command
def duplicates(
    data: str | Path,
    encoder: EncoderLike | None = None,
    level: Level = "edited",
    out: str | Path | None = None,
    keep: str = "largest",
    reference: str | Path | None = None,
    list: str | Path | None = None,
    move_to: str | Path | None = None,
    restore: str | Path | None = None,
    not_copies: str | Path | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
    size: int | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
) -> Listing:
    """Find groups of copies in a set and, on request, move all but one of each.

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
        keep: Which image of each group comes first and stays: largest (most pixels, without a plain
            border; then the larger file, then the older), sharpest, oldest, newest, first (by name)
            or folder:NAME, to prefer a subfolder of data.
        reference: A folder: only copies of its photos are found. It is not changed.
        move_to: A folder to which all but the first of each group move, with their relative paths.
            Nothing is deleted or overwritten. Groups of several labels (subfolders count as labels)
            stay without --keep folder:NAME; so do copies that show more than the first or too
            little detail, links and what they point to.
        restore: A `moved.jsonl` that --move_to wrote; its files move back to data, nothing else.
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
        A row for each image in a group: `group`, a number from 1, groups of certain copies first;
        `path` in the set; `level`: "first" for the image to keep, "exact" if its pixels equal those
        of an earlier image of the group, else the level at which it is a copy of the first;
        `changes` from the first, such as "cropped to 61 %, mirrored"; `agreement` with it after the
        warp, at most 1, NaN for similar images; `cosine` of their features; `conflict`: the labels
        or splits (train, test) if the group has several; `width` and `height` in pixels, `bytes`
        and `date` of the photo. After restore, a row for each file: `path`, and the reason if the
        file was `left`.
    """
    encoder = or_default(encoder, data)
    if restore is not None:
        return _restored(named(restore), data)
    if space is not None and level != "similar":
        raise UserError(f"space: expected --level similar, got {level}")
    file = listing_file(out, "group", "path", "level", "changes")
    listed = None if list is None else out_file(list, {".txt": _is_list}, "list")
    from mast.data.pieces import split_cut
    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import InvarianceChoice
    from mast.page import Thumbnails
    from mast.search import cleanup
    from mast.search.duplicates import SAME, copies_within
    from mast.search.preference import FOLDER, preferred

    apart_of = None if reference is None else cleanup.check_reference(reference, data)
    place = None if move_to is None else cleanup.check_target(move_to, data, apart_of)
    if listed and place:
        raise UserError("list: expected --list or --move_to, got both")
    excluded = split_cut(str(data))[1].exclude
    if listed and excluded and listed.resolve() == named(excluded).resolve():
        raise UserError(f"list: {listed} would overwrite the list that data excludes")
    rejected = () if not_copies is None else _pairs(named(not_copies))
    similar = level == "similar"
    invariances = InvarianceChoice(ignore, match, space) if similar else InvarianceChoice()
    fixed, strict = _fixed(as_list(ignore), as_list(match))
    options = EncoderOptions(encoder, size, weights, download, untrained)
    spec = data if apart_of is None else cleanup.with_reference(data, apart_of)
    by, photos = open_search(options, spec, invariances, device)
    order_N = preferred(photos, keep, named(split_cut(str(data))[0]), apart_of)
    canvases = photos.part(order_N, photos.name if reference is None else str(data))
    features_ND = by.features(photos)[order_N].to(by.encoder.device)
    # With match or a space, images of near-equal pixels may still differ.
    above = (SAME if by.chosen.keys() <= {"ignored"} else 1.0) if by.chosen else None
    at = {_cell(name): position for position, name in enumerate(canvases.identifiers)}
    apart = [(at[one], at[other]) for one, other in rejected if one in at and other in at]
    if len(apart) < len(rejected):
        _log.warning(
            "not_copies: %d of the %d pairs in %s are not images of %s",
            len(rejected) - len(apart), len(rejected), not_copies, canvases.name,
        )  # fmt: skip
    found = copies_within(canvases, features_ND, level, above, apart, fixed, strict)
    groups = groups_of(found, canvases, apart_of)
    columns = _columns(groups, canvases)
    counts = Counter(columns["level"])
    of_levels = [f"{counts[each]:,} {each}" for each in LEVELS[: LEVELS.index(level) + 1]]
    summary = (
        f"{images_of(canvases.name, len(canvases), canvases.skipped)}: "
        f"{counted(len(groups), 'group')}; copies: {', '.join(of_levels)}."
    )
    by_folder = keep.startswith(FOLDER)  # which decides between labels, too
    agreeing = [group for group in groups if by_folder or not _conflict(group, canvases)]
    if conflicts := len(groups) - len(agreeing):
        summary += f" {counted(conflicts, 'group')} with several labels or splits"
        summary += "." if place is None else " stay; --keep folder:NAME moves them."
    if flat := sum(copy.is_flat for group in groups for copy in group):
        summary += f" {flat:,} with too little detail to be verified: look at them."
    write_listing(file, columns, "Copies", lambda: [copies_view(groups, canvases, summary)])
    if listed is not None:
        _write_list(listed, groups, canvases)
    if place is not None:
        summary += " " + cleanup.move_copies(agreeing, canvases, data, place)
    sections = {summary: range(len(columns["path"]))}
    return Listing(columns, sections, file, picture=Thumbnails(canvases), hidden=FACTS)


def groups_of(
    found: Sequence[Copy], canvases: CanvasSet, reference: Path | None = None
) -> list[Group]:
    """Groups of copies, certain ones first; with a reference only groups that contain it."""
    groups = [[*copies] for _, copies in groupby(found, key=lambda copy: copy.group)]
    if reference is not None:
        from mast.search.preference import is_below

        of_reference = [is_below(canvases.file(at), reference) for at in range(len(canvases))]
        groups = [
            [first, *(copy for copy in others if not of_reference[copy.position])]
            for first, *others in groups
            if of_reference[first.position]
        ]
    groups = [group for group in groups if len(group) > 1]

    def order(group: Group) -> tuple[int, str]:
        return LEVELS.index(_loosest(group)), canvases.identifiers[group[0].position]

    return sorted(groups, key=order)


def _loosest(group: Group) -> str:
    """The least certain level of a group."""
    return max((copy.level for copy in group[1:]), key=LEVELS.index)


def _columns(groups: Sequence[Group], canvases: CanvasSet) -> dict[str, Any]:
    from mast.search.preference import date_of

    found = [(number, group, copy) for number, group in enumerate(groups, 1) for copy in group]
    copies = [copy for _, _, copy in found]
    facts = [canvases.facts[copy.position] for copy in copies]
    dates = [time.localtime(date_of(canvases, copy.position)) for copy in copies]
    return {
        "group": [number for number, _, _ in found],
        "path": [canvases.identifiers[copy.position] for copy in copies],
        "level": [copy.level for copy in copies],
        "changes": [copy.changes for copy in copies],
        "agreement": [copy.agreement for copy in copies],
        "cosine": [copy.cosine for copy in copies],
        "conflict": [_conflict(group, canvases) for _, group, _ in found],
        "width": [each.full_width for each in facts],
        "height": [each.full_height for each in facts],
        "bytes": [each.file_bytes for each in facts],
        "date": [time.strftime("%Y-%m-%d %H:%M:%S", date) for date in dates],
    }


def _conflict(group: Group, canvases: CanvasSet) -> str:
    """The labels or the splits of a group, if it has several; otherwise ""."""
    from mast.data.source import UNLABELLED, part_of

    for task, label_N in canvases.targets.items():
        labels = {*label_N[[copy.position for copy in group]].tolist()} - {UNLABELLED}
        if len(labels) > 1:
            return f"labels: {', '.join(canvases.classes[task][label] for label in sorted(labels))}"
    names = [canvases.identifiers[copy.position] for copy in group]
    found = [part_of(name.partition("/")[0]) for name in names if "/" in name]
    parts = {part for part, _ in filter(None, found)}
    return f"parts: {', '.join(sorted(parts))}" if len(parts) > 1 else ""


def _write_list(file: Path, groups: Sequence[Group], canvases: CanvasSet) -> None:
    """Write the path (or name) of every image except the first of each group."""
    names = [as_unicode(_path(copy, canvases)) for _, *others in groups for copy in others]
    if broken := [name for name in names if "\n" in name]:
        raise UserError(f"list: expected names without line breaks, got {broken[0]!r}")
    write_text(file, "".join(f"{name}\n" for name in names))


def _path(copy: Copy, canvases: CanvasSet) -> str:
    """The path of an image, with its page or tile."""
    from mast.data.pieces import file_of

    name, file = canvases.identifiers[copy.position], canvases.file(copy.position)
    return name if file is None else f"{file}{name[len(file_of(name)) :]}"


def _restored(file: Path, data: str | Path) -> Listing:
    """Move files back, and list them."""
    from mast.data.pieces import split_cut

    root = named(split_cut(str(data))[0])
    if not root.is_dir():
        raise UserError(f"restore: expected data to be the folder to move back to, got {data}")
    file = file / LIST if file.is_dir() else file
    if not file.is_file():
        raise UserError(f"restore: expected a list that --move_to wrote ({LIST}), got {file}")
    found = put_back(file, root)
    columns = {"path": [path for path, _ in found], "left": [why for _, why in found]}
    left = [at for at, (_, why) in enumerate(found) if why]
    back = f"{len(found) - len(left):,} of {counted(len(found), 'file')} moved back to {root}."
    return Listing(columns, {back: left})


def _pairs(file: Path) -> Sequence[tuple[str, str]]:
    """Pairs of names, as cells, of images that are not copies of each other."""
    rows = read_rows(file, PAIR)
    if rows[:1] != [[*PAIR]] or any(len(row) != len(PAIR) for row in rows):
        raise UserError(f"not_copies: {file} must have the two columns {' and '.join(PAIR)}")
    return [(spelling(one), spelling(other)) for one, other in rows[1:]]


def _cell(name: str) -> str:
    """A name as the page writes it into a table of pairs."""
    return visible(safe_cell(spelling(name)))


def _is_list(path: Path) -> bool:
    """Whether a file is a list of images: text with a name on each line."""
    names = read_text(path).split("\n")
    return all(Path(name).suffix or "#" in name or name.isdecimal() for name in names if name)


def _fixed(ignore: Sequence[str], match: Sequence[str]) -> tuple[set[str], set[str]]:
    """Properties in which copies may differ only as near copies do, and those that must agree."""
    from mast.augment import OPERATORS
    from mast.search.edits import CHANGES

    properties = {*CHANGES.values()}

    def of(names: Sequence[str]) -> set[str]:
        found = {OPERATORS[name].changes if name in OPERATORS else name for name in names}
        if unknown := found - properties - {each.changes for each in OPERATORS.values()} - {"all"}:
            known = ", ".join(sorted(properties))
            raise UserError(f"ignore, match: expected properties ({known}), got {unknown.pop()!r}")
        return properties if "all" in found else found

    return properties - of(ignore) if ignore else set(), of(match)


def copies_view(groups: Sequence[Group], canvases: CanvasSet, lead: str) -> View:
    """A row for each group, for a page."""
    from mast.page import GalleryRow, Item, View
    from mast.search.preference import date_of

    rows = []
    for number, group in enumerate(groups, 1):
        conflict = _conflict(group, canvases)
        items: list[Item] = []
        for copy in group:
            facts = canvases.facts[copy.position]
            day = time.strftime("%Y-%m-%d", time.localtime(date_of(canvases, copy.position)))
            size = in_gb(facts.file_bytes) if facts.file_bytes else ""
            about = [f"{facts.full_width} × {facts.full_height}", size, day]
            loose = copy.level not in ("first", "exact")
            ends = [items[0].position, copy.position] if loose else []
            pair = tuple(_cell(canvases.identifiers[end]) for end in ends)
            is_kept = copy.level == "first" or copy.is_flat or bool(conflict)
            caption = ": ".join(filter(None, [copy.level, copy.changes]))
            caption += f"; {', '.join(filter(None, about))}"
            is_first = copy.level == "first"
            items.append(Item(canvases, copy.position, caption, is_first, is_kept, pair))
        heading = f"Group {number}, {_loosest(group)}"
        heading += f": different {conflict}" if conflict else ""
        rows.append(GalleryRow(heading, items))
    return View("Copies", lead, rows)
