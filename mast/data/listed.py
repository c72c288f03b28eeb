"""Images listed in a table, `list:photos.csv`; and Python lists, DataFrames and images."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mast.core.checkpoint import write_atomically, write_text
from mast.core.errors import UserError
from mast.core.files import cells, named, read_rows, read_text, state_of
from mast.data.folder import Files
from mast.data.profiles import in_srgb
from mast.data.source import PARTS, WHOLE, SetDescription, label_column, part_of

# Usual names of columns of paths, and of the column of splits.
PATHS = ("path", "paths", "file", "filename", "filepath", "image")
SPLIT = "split"


def _rows(file: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    if file.suffix == ".csv":
        header, *rows = read_rows(file, PATHS) or [[]]
        return [dict(zip_longest(header, row[: len(header)], fillvalue="")) for row in rows]
    ways = map(cells, filter(None, read_text(file).splitlines()))
    return [
        {PATHS[0]: line if os.path.exists(named(file.parent / line)) else first}
        for line, first in ways
    ]


def _part(row: Mapping[str, str]) -> str:
    """The split of a row, spelled as for folders: "val" for `Validation`."""
    said = next((value for name, value in row.items() if name.lower() == SPLIT), "")
    part, other = part_of(said) or ("", "")
    return "" if other else part


def columns_of(spec: str) -> dict[str, dict[str, str]]:
    """The columns of a list, by path; empty for other sets."""
    rows = _rows(_file(spec)[0]) if spec.startswith("list:") else []
    path = next((each for row in rows[:1] for each in row if each.lower() in PATHS), "")
    return {name: {row[path]: row[name] for row in rows} for row in rows[:1] for name in row}


def _file(spec: str) -> tuple[Path, str | None]:
    """The table of `list:FILE` or `list:FILE@part`, and the split."""
    name, _, part = spec.partition(":")[2].rpartition("@")
    name, named_part = (name, part) if name and part in PARTS else (spec.partition(":")[2], None)
    file = named(name)
    if file.suffix not in (".csv", ".txt"):
        raise UserError(f"{spec}: expected a .csv or a .txt, got {file.name}")
    return file, named_part


def open_listed(spec: str, _root: Path, _download: bool) -> Files:
    """Opens `list:FILE`, or `list:FILE@PART` with a column `split`.

    A .csv has a column of paths, and optionally labels; a .txt has one path per line. Paths are
    relative to the file.
    """
    file, part = _file(spec)
    rows = [row for row in _rows(file) if part is None or _part(row) == part]
    columns = list(rows[0]) if rows else []
    column = next((each for each in columns if each.lower() in PATHS), "")
    if rows and not column:
        raise UserError(f"{spec}: expected a column {' or '.join(PATHS)}, got {', '.join(columns)}")
    files = [(row[column], *state_of(named(file.parent / row[column]))) for row in rows]
    label = label_column(columns)
    return Files(spec, file.parent, files, () if label is None else [row[label] for row in rows])


def describe_listed(spec: str, _root: Path, _download: bool) -> SetDescription:
    """The splits of the column `split`; without it, all images."""
    parts = {*map(_part, _rows(_file(spec)[0]))}
    named_parts = {part: f"{spec}@{part}" for part in PARTS if part in parts}
    return SetDescription(named_parts or {WHOLE: spec})


def as_spec(photos: Any, folder: Path, option: str = "data") -> str:
    """The name of a set. A name or a folder is returned unchanged; a list of files, a DataFrame
    with a column of paths (and perhaps labels) or a list of PIL images is written to `folder`.
    Errors name the option.
    """
    if isinstance(photos, str | Path):
        return str(photos)
    if hasattr(photos, "columns"):
        column = next((each for each in photos.columns if str(each).lower() in PATHS), None)
        if column is None:
            raise UserError(
                f"{option}: expected a column {' or '.join(PATHS)}, got {[*photos.columns]}"
            )
        absolute = [os.path.abspath(named(path)) for path in photos[column]]
        table = photos.assign(**{column: absolute}).convert_dtypes()  # 1 stays so beside no label
        return _written(table.to_csv(index=False), ".csv", folder)
    photos = list(photos) if isinstance(photos, Iterable) else [photos]
    if not photos:
        raise UserError(f"{option}: expected one or more images, got none")
    if all(isinstance(each, str | Path) for each in photos):
        paths = [os.path.abspath(named(each)) for each in photos]
        return _written("\n".join(paths) + "\n", ".txt", folder)
    if all(isinstance(each, Image.Image) for each in photos):
        return _saved(photos, folder)
    kinds = ", ".join(sorted({type(each).__name__ for each in photos}))
    raise UserError(f"{option}: expected a folder, files, a DataFrame or images, got {kinds}")


def _written(text: str, ending: str, folder: Path) -> str:
    """Write a list, and return its name."""
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
    file = folder / f"{digest}{ending}"
    if not file.is_file():
        write_text(file, text)
    return f"list:{file}"


def _saved(images: Sequence[Image.Image], folder: Path) -> str:
    """Write images as PNG, losslessly, into a folder."""
    digest, plain = hashlib.sha256(), list[Image.Image]()
    for each in images:
        keeps = each.mode in ("L", "RGB", "RGBA")  # and its color profile
        plain.append(each if keeps else in_srgb(each).convert("RGB"))
        about = plain[-1].mode, each.size, plain[-1].info.get("icc_profile")
        digest.update(repr(about).encode() + np.asarray(plain[-1]).tobytes())
    place = folder / digest.hexdigest()[:16]
    for at, each in enumerate(plain):
        file = place / f"{at:06d}.png"
        if not file.is_file():
            write_atomically(file, partial(each.save, format="PNG"))
    return str(place)
