"""Tables of what a command found: on the terminal, as CSV for a spreadsheet, as Parquet."""

import csv
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from rich.table import Table
from rich.text import Text

from mast.core.checkpoint import write_atomically, write_text
from mast.core.errors import UserError
from mast.core.files import as_unicode

Value: TypeAlias = str | int | float
Columns: TypeAlias = Mapping[str, Sequence[str] | Sequence[int] | Sequence[float]]
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet begins to run a cell at
SHOWN = 20  # rows of a section on the terminal


@dataclass(frozen=True)
class Listing:
    """Rows that a command found.

    Attributes:
        columns: The values of every row, by the name of the column.
        sections: Which rows are worth a look, by heading, in the order in which to look at them.
        file: Where the rows were written; None: nowhere.
        recall: Share of the true rows that an approximate search finds, as it was measured; None:
            nothing was left out.
    """

    columns: Columns
    sections: Mapping[str, Sequence[int]]
    file: Path | None = None
    recall: float | None = None

    def shown(self) -> Iterator[Text | Table]:
        """The first rows of each section, for a rich console."""
        for heading, rows in self.sections.items():
            yield Text(heading, style="bold")
            if not rows:
                continue
            table = Table()
            for name, values in self.columns.items():
                is_text = isinstance(values[0], str)
                table.add_column(name, justify="left" if is_text else "right", overflow="fold")
            for row in islice(rows, SHOWN):
                cells = (_as_text(values[row]) for values in self.columns.values())
                table.add_row(*map(Text, cells))
            yield table
            if len(rows) > SHOWN:
                yield Text(f"and {len(rows) - SHOWN:,} more")
        if self.recall is not None:
            yield Text(f"Found approximately, with a recall of {100 * self.recall:.1f} %.")
        if self.file is not None:
            yield Text(str(self.file))


def check_file(path: Path, endings: Iterable[str]) -> None:
    """Refuse a file that could not be written, before there is anything to write.

    Raises:
        UserError: It has another ending, its kind needs an extra that is not installed, it is a
            folder, or it lies where no file can be written.
    """
    known = list(endings)
    if path.suffix not in known:
        *others, last = known
        listed = f"{', '.join(others)} or {last}" if others else last
        raise UserError(f"out must end in {listed}, got {path}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UserError("writing .parquet needs `pip install 'mast-ssl[parquet]'`")
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "not a regular file"
        raise UserError(f"out must be a file, and {path} is {kind}: give another name")
    place = next(parent for parent in target.parents if parent.exists())
    if not place.is_dir():
        raise UserError(f"cannot write {path}: {place} is not a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {path}: no permission to write into {place}")


def write_table(path: Path, columns: Columns) -> None:
    """Write columns of one length as .csv or .parquet, atomically.

    In a CSV every cell is quoted, numbers have six digits, what is NaN is empty, and text is a
    `safe_cell`.

    Args:
        path: The file, which `check_file` let pass.
        columns: Their values, by name.

    Raises:
        UserError: It cannot be written.
    """
    if path.suffix == ".parquet":
        _write_parquet(path, columns)
        return
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        table.writerow(
            safe_cell(value) if isinstance(value, str) else _as_text(value) for value in row
        )
    write_text(path, text.getvalue())


def safe_cell(name: str) -> str:
    """A name as a cell of a CSV, by OWASP's rule against formulas: a single quote before those that
    a spreadsheet would run. Quote every cell, too.
    """
    return f"'{name}" if name.startswith(FORMULA) else name


def _cell(value: Value) -> str:
    return safe_cell(value) if isinstance(value, str) else _as_text(value)


def _as_text(value: Value) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)


def _write_parquet(path: Path, columns: Columns) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {
            name: [as_unicode(value) if isinstance(value, str) else value for value in values]
            for name, values in columns.items()
        }
    )
    write_atomically(path, lambda partial: pyarrow.parquet.write_table(table, partial))
