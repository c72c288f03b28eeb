"""Move copies out of their folder, and compare with photos of a reference folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mast.core.display import track
from mast.core.errors import UserError, counted
from mast.core.files import named, quoted
from mast.core.moves import LIST, move
from mast.data import open_source, set_name
from mast.data.canvas import CanvasSet
from mast.data.photos import changed
from mast.data.pieces import split_cut
from mast.search.duplicates import Copy
from mast.search.preference import is_below


def check_target(folder: str | Path, data: str | Path, reference: Path | None) -> Path:
    """The folder to move copies to; raises if they cannot or must not move there."""
    root, cut = split_cut(str(data))
    place = named(folder)
    if not named(root).is_dir() or cut.tile is not None or cut.pages != "first":
        raise UserError(f"move_to: expected data to be a folder of whole files, got {data}")
    if not str(folder) or is_below(place, named(root)) or is_below(named(root), place):
        raise UserError(f"move_to: expected a folder outside of {root}, got {str(folder)!r}")
    if reference is not None and is_below(place, reference):
        raise UserError(f"move_to: expected a folder outside of the reference, got {folder}")
    above = next(each for each in (place, *place.absolute().parents) if os.path.lexists(each))
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise UserError(f"move_to: expected a folder to write to, got {folder}")
    return place


def check_reference(reference: str | Path, data: str | Path) -> Path:
    """The real path of the reference folder."""
    place = Path(os.path.realpath(named(reference)))
    root = named(split_cut(str(data))[0])
    if not place.is_dir():
        raise UserError(f"reference: expected a folder, got {reference}")
    if root.exists() and is_below(root, place):
        raise UserError(f"reference: expected a folder that does not contain data, got {reference}")
    return place


def with_reference(data: str | Path, reference: Path) -> str:
    """A set with the files of data and reference."""
    files = dict[str, None]()
    for option, spec in {"data": data, "reference": reference}.items():
        source = open_source(spec)
        for at in range(len(source)):
            file = source.path(at)
            if file is None or not source.identifier(at).endswith(file.name):
                raise UserError(f"{option}: expected whole files with --reference, got {spec}")
            files[os.path.abspath(file)] = None
    return set_name([*files])


def move_copies(
    groups: Sequence[Sequence[Copy]], canvases: CanvasSet, data: str | Path, folder: Path
) -> str:
    """Move all but the first of each group; returns a sentence on what moved and what stays.

    Args:
        groups: Copies that may move, each group starting with the image that stays.
        canvases: The set.
        data: Its folder.
        folder: The folder to move to.
    """
    root = named(split_cut(str(data))[0])
    files = {copy.position: canvases.file(copy.position) for group in groups for copy in group}
    real = {at: os.path.realpath(file) for at, file in files.items() if file is not None}
    start, whole = os.path.abspath(root), os.path.realpath(root)
    paths = {at: os.path.relpath(os.path.abspath(file), start)
             for at, file in files.items() if file is not None}  # fmt: skip
    # Moving a link or its target may break the link.
    linked = {real[at] for at in paths if real[at] != os.path.normpath(f"{whole}/{paths[at]}")}
    stale = changed(canvases, [*paths])
    moving, staying = list[str](), Counter[str]()
    for first, *others in groups:
        for copy in others:
            at = copy.position
            if real[at] in linked:
                staying["linked"] += 1
            elif {first.position, at} & stale:
                staying["changed meanwhile"] += 1
            elif copy.shows_more:
                staying["showing more than the first"] += 1
            elif copy.is_flat:
                staying["showing too little detail to be verified"] += 1
            else:
                moving.append(paths[at])
    done = track(move(root, moving, folder), "moving files", len(moving), "files")
    text = f"{counted(sum(1 for _ in done), 'file')} moved to {folder}."
    if staying:
        text += f" Not moved: {', '.join(f'{count} {why}' for why, count in staying.items())}."
    if moving:
        text += f" `mast duplicates {quoted(root)} --restore {quoted(folder / LIST)}` undoes it."
    return text
