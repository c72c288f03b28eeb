"""Tables for terminals, notebooks and files; cells are plain text, without markup."""

import csv
import io
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import islice
from operator import contains
from pathlib import Path
from typing import Any, TypeAlias, final

from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from mast.core.checkpoint import write_atomically, write_text
from mast.core.errors import UserError, visible
from mast.core.files import as_unicode

WIDTH = 120  # width in characters outside a terminal
MONOSPACED = "white-space: pre; overflow-x: auto; line-height: normal"
Value: TypeAlias = str | int | float
Columns: TypeAlias = Mapping[str, Sequence[str] | Sequence[int] | Sequence[float]]
# Where a spreadsheet would start a formula, including full-width characters and those after spaces
# or quotes; a semicolon, tab or line end may also end a cell.
FORMULA = re.compile(r"""(?:^|[;\t\r\n])(?=['"\s]*[-=+@＝＋－＠])|^(?=['"]*[\t\r\n])""")
SHOWN = 20  # rows per section on the terminal
SECTIONS = 10  # in a notebook
_HEADER = 65_536  # characters to read of a file to find its first columns


class Shown(ABC):
    """A command's result; interpreters and notebooks show it as the command line does."""

    @abstractmethod
    def shown(self) -> Iterable[str | Text | Table]:
        """Tables, headings and lines to print; lines are not wrapped."""

    def __repr__(self) -> str:
        console = Console(width=WIDTH, color_system=None, force_jupyter=False)
        with console.capture() as captured:
            for part in self.shown():
                if isinstance(part, str):
                    console.out(visible(part), highlight=False)
                else:
                    console.print(part)
        return captured.get().rstrip("\n")

    def _repr_html_(self) -> str:
        return f'<pre style="{MONOSPACED}">{escape(repr(self))}</pre>'


class ShownText(Shown):
    """The printed output as text."""

    @property
    @abstractmethod
    def text(self) -> str:
        """A summary in a few lines."""

    def shown(self) -> tuple[str]:
        """The text."""
        return (self.text,)


class Rows(Sequence[dict[str, Any]]):
    """A result of rows, with length, indexing, slicing and `to_pandas`."""

    @property
    @abstractmethod
    def by_column(self) -> Columns:
        """Values of all rows by column name."""

    def __len__(self) -> int:
        return len(next(iter(self.by_column.values()), ()))

    def __getitem__(self, at: int | slice | str) -> Any:
        if isinstance(at, str):
            return self.by_column[at]
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        return {name: values[at] for name, values in self.by_column.items()}

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`."""
        return as_frame(self.by_column)


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
    """Columns from rows."""
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def as_frame(columns: Columns) -> Any:
    """Columns as a `pandas.DataFrame`."""
    try:
        import pandas
    except ImportError as error:
        raise UserError("to_pandas needs `pip install 'mast-ssl[pandas]'`") from error
    return pandas.DataFrame({name: list(values) for name, values in columns.items()})


def literal(text: str, style: str = "") -> Text:
    """Text for a table, without interpreting markup."""
    return Text(visible(text), style)


@final
class TextTable(Table):
    """A table of plain text, without markup or control characters; long cells fold."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        self.title, self.caption = _literal(self.title), _literal(self.caption)
        self.columns = [
            replace(each, header=_literal(each.header), _cells=[*map(_literal, each.cells)],
                    overflow="fold")
            for each in self.columns
        ]  # fmt: skip
        yield from super().__rich_console__(console, options)


def _literal(cell: Any) -> Any:
    return literal(cell) if isinstance(cell, str) else cell


@dataclass(frozen=True, repr=False)
class Listing(Shown, Rows):
    """Rows found by a command.

    Attributes:
        columns: Values of all rows by column name.
        sections: Rows to show by heading, in order.
        file: File of the rows, if written.
        grouped_by: A column that is constant within a section, so the heading shows it.
        hidden: Columns that only files and Python have.
        picture: Maps a name in the column `path` to the data URI of a thumbnail, or "".
    """

    columns: Columns
    sections: Mapping[str, Sequence[int]]
    file: Path | None = None
    grouped_by: str = ""
    picture: Callable[[str], str] | None = None
    hidden: Collection[str] = ()

    @property
    def by_column(self) -> Columns:
        return self.columns

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "picture": None}  # which reads the images

    def _repr_html_(self) -> str:
        """The first rows of the first sections, with their images."""
        if self.picture is None:
            return super()._repr_html_()
        parts = []
        for heading, rows in islice(self.sections.items(), SECTIONS):
            shown = [self[row] for row in islice(rows, SHOWN)]
            about = self._image(shown[0][self.grouped_by]) if shown and self.grouped_by else ""
            lines = ["<th></th>" + "".join(f"<th>{escape(name)}</th>" for name in self.columns)]
            for row in shown:
                texts = (escape(visible(_as_text(value))) for value in row.values())
                lines += [f"<td>{self._image(row['path'])}" + "".join(f"<td>{of}" for of in texts)]
            table = "".join(f"<tr>{line}</tr>" for line in lines)
            parts.append(f"<p>{about} {escape(visible(heading))}</p><table>{table}</table>")
        return "".join(parts)

    def _image(self, name: str) -> str:
        source = self.picture(name) if self.picture else ""
        return f'<img src="{source}">' if source else ""

    def shown(self) -> Iterator[Text | Table]:
        """The first rows of each section, for a rich console."""
        for heading, rows in self.sections.items():
            yield literal(heading, "bold")
            if not rows:
                continue
            table, left_out = TextTable(), {self.grouped_by, *self.hidden}
            columns = {name: of for name, of in self.columns.items() if name not in left_out}
            for name, values in columns.items():
                table.add_column(name, justify="left" if isinstance(values[0], str) else "right")
            for row in islice(rows, SHOWN):
                table.add_row(*(_as_text(values[row]) for values in columns.values()))
            yield table
            if len(rows) > SHOWN:
                yield Text(f"and {len(rows) - SHOWN:,} more")
        if self.file is not None:
            yield literal(str(self.file))


def with_broken(columns: Columns, broken: Mapping[str, str]) -> Columns:
    """Add a row for each broken image (reason by name), with the column `broken`."""
    if not broken:
        return columns
    count, added = len(broken), {"path": [*broken], "broken": [*broken.values()]}
    rows = {**columns, "broken": [""] * len(columns["path"])}
    blank = {name: "" if isinstance([*of, 0][0], str) else math.nan for name, of in rows.items()}
    return {name: [*of, *added.get(name, [blank[name]] * count)] for name, of in rows.items()}


def images_of(name: str, count: int, broken: Mapping[str, str]) -> str:
    """Number of images of a set, and of broken ones."""
    more = f" ({len(broken):,} more {'are' if len(broken) > 1 else 'is'} broken)" if broken else ""
    return f"{count:,} images of {name}{more}"


def begins(*columns: str | tuple[str, ...]) -> Callable[[Path], bool]:
    """A predicate for files: whether it is a .csv or .parquet table with these first columns.

    Each column is its name, or its possible names.
    """
    allowed = [(each,) if isinstance(each, str) else each for each in columns]

    def is_table(path: Path) -> bool:
        try:
            if path.suffix == ".parquet":
                import pyarrow.parquet

                names = pyarrow.parquet.read_schema(path).names
            else:
                with path.open(encoding="utf-8", newline="") as file:
                    names = next(csv.reader([file.readline(_HEADER)]), [])
        except (OSError, ValueError, csv.Error):
            return False
        return len(names) >= len(allowed) and all(map(contains, allowed, names))

    return is_table


def write_table(path: Path, columns: Columns) -> None:
    """Write columns as .csv or .parquet, atomically.

    In a CSV, cells are quoted, numbers have six digits, NaN is empty, and text is a `safe_cell`.
    """
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        texts = {
            name: [as_unicode(value) if isinstance(value, str) else value for value in values]
            for name, values in columns.items()
        }
        table = pyarrow.table(texts)
        write_atomically(path, lambda partial: pyarrow.parquet.write_table(table, partial))
        return
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in (columns, *zip(*columns.values(), strict=True)):
        rows.writerow(safe_cell(of) if isinstance(of, str) else _as_text(of) for of in row)
    write_text(path, text.getvalue())


def safe_cell(name: str) -> str:
    """A name as a CSV cell, by OWASP's rule against formulas: a single quote precedes text that a
    spreadsheet would run. Different names give different cells. Cells must be quoted, too.
    """
    return FORMULA.sub(r"\g<0>'", name)


def _as_text(value: Value) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)
