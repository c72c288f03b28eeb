"""Tables of a page: numbers as text, with small print below."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from mast.analyses import Grid
from mast.evaluation.compare import Comparison

ASIDE = ("embedding", "retained")  # not the encoder's accuracy, or a repetition of linear's


class Cell(NamedTuple):
    """One cell."""

    text: str
    small: str = ""  # interval or gain
    clear: bool = False  # whether the gain's interval excludes zero


class PageColumn(NamedTuple):
    """A column heading."""

    name: str
    small: str = ""  # below the name
    numeric: bool = False


class PageTable(NamedTuple):
    """A table; the first cell of each row is its heading."""

    caption: str
    columns: Sequence[PageColumn]
    rows: Sequence[Sequence[Cell]]


def of_grid(caption: str, grid: Grid) -> PageTable:
    """The numbers of a figure; decimals per column depend on its largest number."""
    columns, cells = [], []
    for at, name in enumerate(grid.columns):
        column = [row[at] for row in grid.rows]
        numbers = [value for value in column if not isinstance(value, str)]
        columns.append(PageColumn(name, numeric=bool(numbers)))
        places = _places(numbers)
        cells.append([Cell(_text(value, places)) for value in column])
    return PageTable(caption, columns, [*zip(*cells, strict=True)])


def main_measures(measured: Comparison, kinds: Sequence[str]) -> PageTable:
    """The main measure of each task; `kinds` are the headings of the runs."""
    reported = [row for row in measured.rows if row.heading[0] not in ASIDE] or measured.rows
    firsts = {row.heading[:3]: row.heading for row in reversed(reported)}
    return all_measures(measured, kinds, "The main measure of each task", {*firsts.values()})


def all_measures(
    measured: Comparison,
    kinds: Sequence[str],
    caption: str = "Every measure",
    headings: set[tuple[str, str, str, str]] | None = None,
) -> PageTable:
    """Results in percent: all, or the rows of some headings."""
    with_chance = any(row.chance is not None for row in measured.rows)
    columns = [PageColumn("task"), PageColumn("protocol")]
    columns += [PageColumn("chance", numeric=True)] * with_chance
    columns += map(PageColumn, measured.runs, kinds, [True] * len(kinds))
    rows = []
    # Measures that all runs have come first.
    for row in sorted(measured.rows, key=lambda row: row.values.count(None)):
        if headings is None or row.heading in headings:
            protocol, set_name, target, measure = row.heading
            clear = [gain is not None and gain.is_better is not None for gain in row.gains]
            (value, interval, _), *others = row.texts
            cells = [Cell(value, interval)]
            cells += [
                Cell(value, gain, marked)
                for (value, _, gain), marked in zip(others, clear, strict=True)
            ]
            chance = [Cell("" if row.chance is None else f"{row.chance:.1f}")] * with_chance
            rows.append([Cell(target, set_name), Cell(protocol, measure), *chance, *cells])
    return PageTable(f"{caption}, in percent", columns, rows)


def _places(numbers: Sequence[float]) -> int:
    """Decimals: none for whole numbers, otherwise three digits of the largest."""
    finite = [abs(number) for number in numbers if math.isfinite(number)]
    if all(isinstance(number, int) for number in finite):
        return 0
    largest = max(finite, default=0.0)
    return 1 if largest >= 10 else 2 if largest >= 1 else 3


def _text(value: str | float, places: int) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.{places}f}" if math.isfinite(value) else "–"
