"""Tables that keep their words where the terminal, or what is printed to, is narrow.

What is in a cell is shown as it is: a text is no markup, and has no control characters.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from mast.core.errors import visible

WIDTH = 120  # characters of what is shown outside of a terminal
MONOSPACED = "white-space: pre; overflow-x: auto; line-height: normal"


class Shown(ABC):
    """What a command returns: an interpreter and a notebook show it as the command line does."""

    @abstractmethod
    def shown(self) -> Iterable[str | Text | Table]:
        """What is printed: tables and headings, and lines that no terminal breaks."""

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


def literal(text: str, style: str = "") -> Text:
    """A text for a table, whatever is in it."""
    return Text(visible(text), style)


@final
class FittedTable(Table):
    """A table whose text folds between words, and whose numbers do not fold.

    Columns that do not fit side by side follow below, beside the first ones once more. Columns to
    the right are numbers.

    Args:
        keys: How many of the first columns say what a row is.
        options: Those of a `rich.table.Table`.
    """

    def __init__(self, keys: int, **options: Any) -> None:
        super().__init__(**options)
        self.keys = keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """One table or several, each with the width of every column."""
        _, right, _, left = self.padding
        beside = right + left + 1  # with the line between two columns

        def least(column: Column) -> int:
            """Characters of the longest word, or of the longest number."""
            header, *cells = (Measurement.get(console, options, cell) for cell in _cells(column))
            whole = column.no_wrap or column.justify == "right"
            widths = [cell.maximum if whole else cell.minimum for cell in cells]
            return max([header.minimum, *widths])

        def most(column: Column) -> int:
            return max(Measurement.get(console, options, cell).maximum for cell in _cells(column))

        keys, rest = self.columns[: self.keys], self.columns[self.keys :]
        room = options.max_width - 1 - sum(least(column) + beside for column in keys)
        parts: list[list[Column]] = [[]]
        used = 0
        for column in rest:
            needed = least(column) + beside
            if used + needed > room and parts[-1]:
                parts.append([])
                used = 0
            parts[-1].append(column)
            used += needed
        for part in parts:
            columns = [*keys, *part]
            free = options.max_width - 1 - beside * len(columns)
            widths = _shared(free, [(least(column), most(column)) for column in columns])
            table = Table(box=self.box, padding=self.padding, show_lines=self.show_lines)
            table.title = _shown(self.title, "table.title") if part is parts[0] else None
            table.caption = _shown(self.caption, "table.caption") if part is parts[-1] else None
            for column, width in zip(columns, widths, strict=True):
                header = _shown(column.header)
                table.add_column(header, justify=column.justify, width=width, overflow="fold")
            rows = zip(*(column.cells for column in columns), strict=True)
            for row, cells in zip(self.rows, rows, strict=True):
                table.add_row(*map(_shown, cells), end_section=row.end_section)
            yield table


def _shown(cell: Any, style: str = "") -> Any:
    return literal(cell, style) if isinstance(cell, str) else cell


def _cells(column: Column) -> Iterator[RenderableType]:
    yield from map(_shown, (column.header, *column.cells))


def _shared(room: int, bounds: Sequence[tuple[int, int]]) -> list[int]:
    """Widths between bounds that have room together; where it is short, all but the least."""
    widths = [least for least, _ in bounds]
    spare = room - sum(widths)
    for at in sorted(range(len(bounds)), key=lambda at: bounds[at][1] - bounds[at][0]):
        more = min(bounds[at][1] - bounds[at][0], max(0, spare))
        widths[at] += more
        spare -= more
    return widths
