"""Compare runs: results, differences, and the verdict on the first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from textwrap import shorten

from rich.box import SIMPLE_HEAD
from rich.text import Text

from mast.core.arguments import as_list
from mast.core.errors import UserError
from mast.core.run import EVALUATIONS, SPACES, RunFolder, flatten
from mast.core.table import Columns, Rows, Shown, TextTable, columns_of, literal
from mast.evaluation.paired import Difference, difference, of_changed_images
from mast.evaluation.result import Result, in_words, readable, results_in
from mast.evaluation.verdict import QUOTED, Results, Verdict, verdict

START = "before pretraining"  # the first run's starting weights
FILES = f"*/{EVALUATIONS}/*.json"  # results of all encoders in a parent folder
# Settings that change values by rounding only.
OF_MACHINES = ("extraction.device", "extraction.batch_size", "extraction.processes")


@dataclass(frozen=True)
class ComparisonRow:
    """One measure of all runs; None where a run lacks it."""

    heading: tuple[str, str, str, str]  # protocol, set, target and measure
    values: tuple[float | None, ...]  # percent, one per run
    intervals: tuple[tuple[float, float] | None, ...]  # of 95 %
    gains: tuple[Difference | None, ...]  # the first run minus each of the others, paired
    chance: float | None = None  # in percent

    @property
    def texts(self) -> list[tuple[str, str, str]]:
        """For each run its value, interval, and the first run's gain over it."""
        return [
            (
                "–" if value is None else f"{value:.1f}",
                "" if ends is None else f"[{ends[0]:.1f}, {ends[1]:.1f}]",
                "" if gain is None else str(gain),
            )
            for value, ends, gain in zip(
                self.values, self.intervals, (None, *self.gains), strict=True
            )
        ]


@dataclass(frozen=True, repr=False)
class Comparison(Shown, Rows):
    """A comparison of runs: names and folders, a row per measure, the verdict on the first, and
    notes on limits of the comparison.
    """

    runs: tuple[str, ...]
    folders: tuple[Path, ...]
    rows: tuple[ComparisonRow, ...]
    verdict: Verdict
    notes: tuple[str, ...] = field(default=())

    @property
    def by_column(self) -> Columns:
        """A row per measure and encoder; gains are of the first over this one."""
        numbers = ("value", "low", "high", "chance", "gain", "gain_low", "gain_high")
        names = ("protocol", "set", "target", "measure", "encoder", *numbers)
        unknown = math.nan
        rows = [
            (*row.heading, name, value, *(ends or (unknown, unknown)),
             unknown if row.chance is None else row.chance, *(gain or 3 * (unknown,)))
            for row in self.rows
            for name, value, ends, gain in zip(
                self.runs, row.values, row.intervals, (None, *row.gains), strict=True
            )
            if value is not None
        ]  # fmt: skip
        return columns_of(names, rows)

    def table(self) -> TextTable:
        """For each measure, a line per run."""
        title = f"Percent of the test sets, 95 % intervals; gain: {self.runs[0]} minus the other"
        table = TextTable(title=title, box=SIMPLE_HEAD, padding=0)
        for column in ("measure", "encoder"):
            table.add_column(column, max_width=16)  # so that all fit into 80
        for column in ("%", "interval", "gain"):
            table.add_column(column, justify="right")
        for (protocol, set_name, target), rows in groupby(self.rows, lambda row: row.heading[:3]):
            chance = None
            table.add_row(Text(f"{protocol}, {set_name}, {target}", "bold"))
            for row in rows:
                named = zip(self.runs, row.values, row.texts, strict=True)
                lines = [(name, *texts) for name, value, texts in named if value is not None]
                if row.chance not in (None, chance):
                    chance = row.chance
                    lines.append(("chance", f"{chance:.1f}", "", ""))
                for at, line in enumerate(lines):
                    table.add_row("" if at else row.heading[3], *line)
        return table

    def shown(self) -> Iterator[str | Text | TextTable]:
        yield self.table()
        yield from map(literal, self.notes)
        yield ""
        for line in str(self.verdict).splitlines():  # commands are copied whole
            yield line if line.startswith("To measure ") else literal(line)


def compare(runs: str | Path | Sequence[str | Path]) -> Comparison:
    """Compare the results of several runs, with the gains of the first.

    The first run's starting weights and published weights come last, if evaluated.
    """
    folders = [Path(run) for run in as_list(runs)]
    if not folders:
        raise UserError("name the runs to compare, such as runs/flowers and runs/vicreg")
    start = RunFolder(folders[0]).untrained
    if not any(folder.samefile(start) for folder in folders if start.is_dir()):
        folders += [start] * any((start / EVALUATIONS).glob("*.json"))
    results = [_results(folder) for folder in folders]
    for folder in _weights_of_others(folders[0], results):
        folders.append(folder)
        results.append(_results(folder))
    is_start = [
        at for at, folder in enumerate(folders) if at and folder.resolve() == start.resolve()
    ]
    names = [START if at in is_start else name for at, name in enumerate(short_names(folders))]
    notes: list[str] = []
    rows: list[ComparisonRow] = []
    for key in dict.fromkeys(key for of_run in results for key in of_run):
        each = [of_run.get(key) for of_run in results]
        for other, name in zip(each[1:], names[1:], strict=True):
            if each[0] is not None and other is not None:
                notes += _differences(each[0], other, f"{names[0]} and {name}")
        rows += _rows(each)
    notes += dict.fromkeys(
        f"{readable(result.set_name)}: {text}"
        for of_run in results
        for result in of_run.values()
        for text in result.notes()
    )
    others = {names[at]: of for at, of in enumerate(results) if at not in (0, *is_start)}
    of_start = next((results[at] for at in is_start), None)
    run = RunFolder(folders[0])
    judged = verdict(run, names[0], results[0], of_start, others)
    return Comparison(tuple(names), tuple(folders), tuple(rows), judged, tuple(notes))


def _rows(results: Sequence[Result | None]) -> Iterator[ComparisonRow]:
    """A row for each measure of a protocol on a set, the set's own metric first."""
    known = [result for result in results if result is not None]
    measures = dict.fromkeys(
        (target, measure)
        for result in known
        for target, measured in result.targets.items()
        for measure in sorted(measured.measures(), key=lambda name: name != result.metric)
        if not set("@/") & set(measure)
    )
    first, *others = results
    for target, measure in measures:
        each = [None if of is None else of.targets.get(target) for of in results]
        chances = [of.by_chance.get(measure) for of in each if of is not None]
        yield ComparisonRow(
            (known[0].protocol, readable(known[0].set_name), target, in_words(measure)),
            tuple(None if of is None else of.values.get(measure) for of in each),
            tuple(None if of is None else of.interval(measure) for of in each),
            tuple(
                None if first is None or other is None
                else difference(other, first, (target,), measure)
                for other in others
            ),
            next((value for value in chances if value is not None), None),
        )  # fmt: skip


def _weights_of_others(run: Path, results: Sequence[Results]) -> list[Path]:
    """Folders of published weights evaluated on a run's images; none if such a folder is among the
    results.
    """
    known = [result.encoder for of_run in results for result in of_run.values()]
    if any(encoder.get("weights") for encoder in known):
        return []
    same = {encoder.get("fingerprint") for encoder in known} - {None}
    found = []
    for file in sorted({*Path("runs").glob(FILES), *run.parent.glob(FILES)}):
        with suppress(UserError):  # others' damage
            of = Result.read(file)
            is_other = of.encoder.get("weights") and of.encoder.get("fingerprint") not in same
            if is_other and of.protocol in QUOTED and (of.protocol, of.images) in results[0]:
                found.append(file.parents[1])
    return list(dict.fromkeys(found))


def _results(run: Path) -> Results:
    """The results of a run by protocol and tested images."""
    results = results_in(run)
    if not results:
        raise UserError(f"{run} has no evaluations: measure it first, by `mast evaluate`")
    return {(result.protocol, result.images): result for result in results}


def short_names(runs: Sequence[Path]) -> tuple[str, ...]:
    """Shortest distinct endings of paths; for a space, including its encoder."""
    parts = [[part for part in run.parts if part != SPACES] for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = [
            "/".join(of[-depth - (SPACES in run.parts) :])
            for of, run in zip(parts, runs, strict=True)
        ]
        if len(set(names)) == len(names):
            return tuple(names)
    raise UserError(f"the same run is given twice: {', '.join(map(str, runs))}")


def _differences(first: Result, other: Result, runs: str) -> Iterator[str]:
    """Notes on differing conditions of two results on the same images."""
    subject = f"{first.protocol} on {readable(first.set_name)}, {runs}"
    differ = [part for part in first.fingerprints | other.fingerprints
              if first.fingerprints.get(part) != other.fingerprints.get(part)]  # fmt: skip
    if of_changed_images(first, other):
        yield (
            f"{subject}: no interval of the difference, as the test images were changed: evaluate "
            "both again"
        )
    elif differ:
        yield f"{subject}: other pixels of {', '.join(differ)} (another size, or changed)"
    ours, theirs = (
        flatten({**of.settings, **of.encoder.get("space", {})}) for of in (first, other)
    )
    differing = [
        f"{name} {shorten(str(ours.get(name)), 40)} and {shorten(str(theirs.get(name)), 40)}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name) and name not in OF_MACHINES
    ]
    if differing:
        yield f"{subject}: other settings: {'; '.join(differing)}"
