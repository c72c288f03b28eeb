"""Tables in files: CSV that no spreadsheet runs, and what is checked before one is computed."""

import csv
import io
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from mast.core.checkpoint import write_text
from mast.core.errors import UserError

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet begins to run a cell at


def check_ending(file: Path, endings: Sequence[str]) -> None:
    """Refuse a file that could not be written when all is computed.

    Args:
        file: The table.
        endings: Of the kinds that there are, such as ".csv".

    Raises:
        UserError: It ends otherwise, or in .parquet without the extra that writes it.
    """
    if file.suffix not in endings:
        raise UserError(f"out must end in {' or '.join(endings)}, got {file}")
    if file.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UserError("writing .parquet needs `pip install 'mast-ssl[parquet]'`")


def safe_cell(name: str) -> str:
    """A name as a cell of a CSV file, by OWASP's rule against formulas.

    A single quote comes before what a spreadsheet would run; `write_csv` quotes every cell, too.
    """
    return f"'{name}" if name.startswith(FORMULA) else name


def write_csv(file: Path, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Write a CSV file with every cell quoted, atomically.

    Args:
        file: The table.
        columns: Their names.
        rows: Cells; names that others chose as `safe_cell` gives them.

    Raises:
        UserError: As `write_atomically`.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerow(columns)
    table.writerows(rows)
    write_text(file, text.getvalue())
