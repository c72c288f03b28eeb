"""Tables of what a command found: on the terminal, as CSV for a spreadsheet, as Parquet."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from mast.core.checkpoint import write_atomically, write_text
from mast.core.files import as_unicode
from mast.core.table import Shown, literal

Value: TypeAlias = str | int | float
Columns: TypeAlias = Mapping[str, Sequence[str] | Sequence[int] | Sequence[float]]
# Where a spreadsheet would begin to run a formula, full-width characters and those behind spaces or
# quotes included; it may also take a semicolon, a tab or a line end for the end of a cell.
FORMULA = re.compile(r"""(?:^|[;\t\r\n])(?=['"\s]*[-=+@＝＋－＠])|^(?=['"]*[\t\r\n])""")
SHOWN = 20  # rows of a section on the terminal
_HEADER = 65_536  # characters that are read of a file to find its first columns


@dataclass(frozen=True, repr=False)
class Listing(Shown):
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
            yield literal(heading, "bold")
            if not rows:
                continue
            table = Table()
            for name, values in self.columns.items():
                is_text = isinstance(values[0], str)
                side: JustifyMethod = "left" if is_text else "right"
                table.add_column(literal(name), justify=side, overflow="fold")
            for row in islice(rows, SHOWN):
                cells = (_as_text(values[row]) for values in self.columns.values())
                table.add_row(*map(literal, cells))
            yield table
            if len(rows) > SHOWN:
                yield Text(f"and {len(rows) - SHOWN:,} more")
        if self.recall is not None:
            yield Text(f"Found approximately, with a recall of {100 * self.recall:.1f} %.")
        if self.file is not None:
            yield literal(str(self.file))


def with_broken(columns: Columns, broken: Mapping[str, str]) -> Columns:
    """A row more for each broken image, with its name in `path` and the reason in `broken`.

    Args:
        columns: Text and numbers.
        broken: Reason by name; without any the columns stay as they are.
    """
    if not broken:
        return columns
    texts = {"path": list(broken), "broken": list(broken.values())}
    added = {**columns, "broken": [""] * len(columns["path"])}
    blank = {
        name: "" if values and isinstance(values[0], str) else math.nan
        for name, values in added.items()
    }
    return {
        name: [*values, *texts.get(name, len(broken) * [blank[name]])]
        for name, values in added.items()
    }


def images_of(name: str, count: int, broken: Mapping[str, str]) -> str:
    """How many images of a set there are, and how many more are broken."""
    are = "are" if len(broken) > 1 else "is"
    return f"{count:,} images of {name}" + (f" ({len(broken):,} more {are} broken)" * bool(broken))


def begins(*columns: str | tuple[str, ...]) -> Callable[[Path], bool]:
    """What says whether a file is a table, .csv or .parquet, whose first columns are these.

    Args:
        columns: The name of each, or those that it may have.
    """

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
        return len(names) >= len(columns) and all(
            name in ((allowed,) if isinstance(allowed, str) else allowed)
            for name, allowed in zip(names, columns, strict=False)
        )

    return is_table


def write_table(path: Path, columns: Columns) -> None:
    """Write columns of one length as .csv or .parquet, atomically.

    In a CSV every cell is quoted, numbers have six digits, what is NaN is empty, and text is a
    `safe_cell`.

    Args:
        path: The file, which `out_file` let pass.
        columns: Their values, by name.

    Raises:
        UserError: It cannot be written.
    """
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table(
            {
                name: [as_unicode(value) if isinstance(value, str) else value for value in values]
                for name, values in columns.items()
            }
        )
        write_atomically(path, lambda partial: pyarrow.parquet.write_table(table, partial))
        return
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in (columns, *zip(*columns.values(), strict=True)):
        rows.writerow(safe_cell(of) if isinstance(of, str) else _as_text(of) for of in row)
    write_text(path, text.getvalue())


def safe_cell(name: str) -> str:
    """A name as a cell of a CSV, by OWASP's rule against formulas: a single quote before what a
    spreadsheet would run. No two names make the same cell. Quote every cell, too.
    """
    return FORMULA.sub(r"\g<0>'", name)


def _as_text(value: Value) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)
