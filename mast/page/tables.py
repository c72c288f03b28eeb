"""Tables of the page: numbers, what they are sorted by, and the small print below them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from mast.analyses import Grid
from mast.evaluation.compare import Comparison, ComparisonRow
from mast.evaluation.result import PRECISION, Result, readable

ASIDE = ("embedding", "retained")  # their accuracy is not that of the encoder, or linear's again


class Cell(NamedTuple):
    """One cell."""

    text: str
    number: float | None = None  # what it is sorted by
    beside: str = ""  # an interval or a gain, small below it
    clear: bool = False  # whether the gain's interval leaves out zero


class PageColumn(NamedTuple):
    """The head of a column."""

    name: str
    beside: str = ""  # small below the name
    numeric: bool = False


class PageTable(NamedTuple):
    """A table, of which the first cell of a row is its head."""

    caption: str  # for readers who cannot see its place on the page
    columns: Sequence[PageColumn]
    rows: Sequence[Sequence[Cell]]


def of_grid(caption: str, grid: Grid) -> PageTable:
    """The numbers of a figure: in every column as many decimals as its largest number needs."""
    columns, cells = [], []
    for at, name in enumerate(grid.columns):
        column = [row[at] for row in grid.rows]
        numbers = [value for value in column if not isinstance(value, str)]
        columns.append(PageColumn(name, numeric=bool(numbers)))
        places = _places(numbers)
        cells.append([Cell(v) if isinstance(v, str) else _number(v, places) for v in column])
    return PageTable(caption, columns, [*zip(*cells, strict=True)])


def main_measures(measured: Comparison, kinds: Sequence[str]) -> PageTable:
    """The first measure of every task, which its field reports first; `kinds` heads the runs."""
    counted = [row for row in measured.rows if row.heading[0] not in ASIDE] or measured.rows
    firsts = {row.heading[:3]: row for row in reversed(counted)}
    shown = [row for row in measured.rows if firsts.get(row.heading[:3]) is row]
    return _table("The main measure of each task, in percent", measured, kinds, shown)


def all_measures(measured: Comparison, kinds: Sequence[str]) -> PageTable:
    """Everything that was measured."""
    return _table("Every measure, in percent", measured, kinds, measured.rows)


def by_space(measured: Comparison) -> PageTable | None:
    """What the nearest images of the first run share: chance, then a row a space.

    None where no retrieval was measured.
    """
    prefix = PRECISION.replace("_", " ")
    found: dict[str, dict[tuple[str, str], Cell]] = {"chance": {}}
    for row in measured.rows:
        protocol, set_name, target, measure = row.heading
        if protocol == "retrieval" and row.values[0] is not None and not measure.startswith("mAP"):
            (text, beside), *_ = row.cells()
            cells = found.setdefault(measure.removeprefix(prefix), {})
            cells[target, set_name] = Cell(text, row.values[0], beside)
    heads = list(dict.fromkeys(head for cells in found.values() for head in cells))
    if not heads:
        return None
    columns = (PageColumn("nearest in"), *(PageColumn(*head, numeric=True) for head in heads))
    rows = [
        (Cell(space), *(cells.get(head, Cell("–")) for head in heads))
        for space, cells in found.items()
    ]
    return PageTable("Nearest images with the same label, in percent", columns, rows)


def of_classifiers(results: Sequence[Result]) -> list[PageTable]:
    """How often a tested classifier recognises each class, and how right its probabilities are."""
    by_class = (PageColumn("class"), PageColumn("images", numeric=True),
                PageColumn("recall, %", numeric=True), PageColumn("taken for"))  # fmt: skip
    names = ("mean probability, %", "right, %", "images")
    by_probability = [PageColumn(each, numeric=True) for each in names]
    tables = []
    for result in (of for of in results if of.of_classifier):
        name = f"{result.protocol} on {readable(result.set_name)}"
        for measured in result.targets.values():
            classes = [
                (
                    Cell(label),
                    Cell(f"{images:,}", images),
                    Cell(recall, measured.values[f"recall/{label}"]),
                    Cell(taken),
                )
                for label, images, recall, taken in measured.by_class()
            ]
            tables.append(PageTable(f"{name}: by class", by_class, classes))
            bins = [(_number(probability, 1), _number(right, 1), _number(images, 0))
                    for images, probability, right in measured.reliability]  # fmt: skip
            tables.append(PageTable(f"{name}: by probability", by_probability, bins))
    return tables


def _table(
    caption: str, measured: Comparison, kinds: Sequence[str], shown: Sequence[ComparisonRow]
) -> PageTable:
    with_chance = any(row.chance is not None for row in measured.rows)
    columns = [PageColumn("task"), PageColumn("protocol")]
    columns += [PageColumn("chance", numeric=True)] * with_chance
    columns += [
        PageColumn(name, kind, numeric=True)
        for name, kind in zip(measured.runs, kinds, strict=True)
    ]
    rows = []
    # What all runs were measured by comes first.
    for row in sorted(shown, key=lambda row: row.values.count(None)):
        protocol, set_name, target, measure = row.heading
        clear = [False, *(gain is not None and gain.is_better is not None for gain in row.gains)]
        heads = [Cell(target, beside=set_name), Cell(protocol, beside=measure)]
        heads += [Cell(row.chance_cell, row.chance)] * with_chance
        cells = [
            Cell(text, value, beside, marked)
            for value, (text, beside), marked in zip(row.values, row.cells(), clear, strict=True)
        ]
        rows.append((*heads, *cells))
    return PageTable(caption, columns, rows)


def _places(numbers: Sequence[float]) -> int:
    """Decimals: none for whole numbers, otherwise three digits of the largest."""
    finite = [abs(number) for number in numbers if math.isfinite(number)]
    if all(number == int(number) and isinstance(number, int) for number in finite):
        return 0
    largest = max(finite, default=0.0)
    return 1 if largest >= 10 else 2 if largest >= 1 else 3


def _number(value: float, places: int) -> Cell:
    if not math.isfinite(value):
        return Cell("–")
    return Cell(f"{value:.{places}f}", float(value))
