"""Runs side by side: what each measured, how far they differ, and whether the first is better."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.text import Text

from mast.core.errors import UserError
from mast.core.run import EVALUATIONS, SPACES, RunFolder, flatten
from mast.core.table import Columns, FittedTable, Rows, Shown, columns_of, literal
from mast.evaluation.paired import Difference, difference, of_changed_images
from mast.evaluation.result import ENDS, Result, in_words, readable, results_in
from mast.evaluation.verdict import QUOTED, Verdict, verdict

START = "before pretraining"  # what the first run started as
# They change no value beyond rounding.
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
    def chance_cell(self) -> str:
        return "" if self.chance is None else f"{self.chance:.1f}"

    def beside(self) -> list[tuple[str, str]]:
        """For each run the interval of its value, and what the first run gains over it."""
        texts = []
        for interval, gain in zip(self.intervals, (None, *self.gains), strict=True):
            ends = "" if interval is None else f"[{interval[0]:.1f}, {interval[1]:.1f}]"
            change = "" if gain is None else f"{gain.value:+.1f}"
            if gain is not None and math.isfinite(gain.low):
                change += f" [{gain.low:+.1f}, {gain.high:+.1f}]"
            texts.append((ends, change))
        return texts

    def cells(self) -> list[tuple[str, str]]:
        """For each run its value and, below it, its interval (first run) or the gain over it."""
        return [
            ("–" if value is None else f"{value:.1f}", change if at else ends)
            for at, (value, (ends, change)) in enumerate(
                zip(self.values, self.beside(), strict=True)
            )
        ]


@dataclass(frozen=True, repr=False)
class Comparison(Shown, Rows):
    """Runs side by side: their names and folders, a row a measure, the verdict on the first, and
    notes on why some could not be compared, or only with care.
    """

    runs: tuple[str, ...]
    folders: tuple[Path, ...]
    rows: tuple[ComparisonRow, ...]
    verdict: Verdict
    notes: tuple[str, ...] = field(default=())

    @property
    def by_column(self) -> Columns:
        """A row for each measure and encoder that has it; gains are of the first over it."""
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

    def table(self) -> FittedTable:
        """Under each measure a line for each run that has it."""
        title = f"Percent of the test sets, 95 % intervals; gain: {self.runs[0]} minus the other"
        table = FittedTable(1, title=title, box=SIMPLE_HEAD, padding=0)
        for column in ("measure", "encoder"):
            table.add_column(column, max_width=16)  # so that all fit into 80
        for column in ("%", "interval", "gain"):
            table.add_column(column, justify="right")
        for (protocol, set_name, target), rows in groupby(self.rows, lambda row: row.heading[:3]):
            chance = ""
            table.add_row(Text(f"{protocol}, {set_name}, {target}", "bold"))
            for row in rows:
                lines = [
                    (name, f"{value:.1f}", *beside)
                    for name, value, beside in zip(self.runs, row.values, row.beside(), strict=True)
                    if value is not None
                ]
                if row.chance_cell != chance and row.chance_cell:
                    lines.append(("chance", chance := row.chance_cell, "", ""))
                for at, line in enumerate(lines):
                    table.add_row("" if at else row.heading[3], *line)
        return table

    def shown(self) -> Iterator[str | Text | FittedTable]:
        yield self.table()
        yield from map(literal, self.notes)
        yield ""
        for line in str(self.verdict).splitlines():  # commands are copied whole
            yield line if line.startswith("To measure ") else literal(line)


def compare(
    runs: str | Path | Sequence[str | Path], seed: int = 0, resamples: int = 1000
) -> Comparison:
    """Put what was measured of several runs side by side, with the gains of the first.

    What the first started as comes last, and weights of others, where these were measured.
    """
    folders = [_located(run) for run in ((runs,) if isinstance(runs, str | Path) else runs)]
    if not folders:
        raise UserError("name the runs to compare, such as runs/flowers and runs/vicreg")
    start = _with_start(folders)
    _with_weights_of_others(folders)
    results = [_results(folder) for folder in folders]
    names = short_names(folders)
    if start is not None:
        names = (*names[:start], START, *names[start + 1 :])
    notes: list[str] = []
    rows: list[ComparisonRow] = []
    for key in dict.fromkeys(key for of_run in results for key in of_run):
        first, *others = (of_run.get(key) for of_run in results)
        comparable = [
            _comparable(first, other, names, index, notes)
            for index, other in enumerate(others, start=1)
        ]
        measures = dict.fromkeys(
            (target, measure)
            for result in (first, *others)
            if result is not None
            for target, measured in result.targets.items()
            for measure in sorted(measured.values, key=lambda name: name != result.metric)
            if not measure.endswith(ENDS) and not set("@/") & set(measure)
        )
        set_name = next(readable(result.set_name) for result in (first, *others) if result)
        for target, measure in measures:
            each = [None if of is None else of.targets.get(target) for of in (first, *others)]
            values = tuple(None if of is None else of.values.get(measure) for of in each)
            gains = tuple(
                difference(other, first, (target,), measure, seed, resamples)
                if first is not None and other is not None and paired
                else None
                for other, paired in zip(others, comparable, strict=True)
            )
            intervals = tuple(None if of is None else of.interval(measure) for of in each)
            heading = (key[0], set_name, target, in_words(measure))
            chances = (of.chance(measure) for of in each if of is not None)
            chance = next((value for value in chances if value is not None), None)
            rows.append(ComparisonRow(heading, values, intervals, gains, chance))
    notes += _namesakes(results)
    notes += dict.fromkeys(
        f"{readable(result.set_name)}: {text}"
        for of_run in results
        for result in of_run.values()
        for text in result.notes()
    )
    others_by_name = {
        name: of_other
        for at, (name, of_other) in enumerate(zip(names, results, strict=True))
        if at not in (0, start)
    }
    of_start = None if start is None else results[start]
    judged = verdict(
        RunFolder(folders[0]), names[0], results[0], of_start, others_by_name, seed, resamples
    )
    return Comparison(names, tuple(folders), tuple(rows), judged, tuple(notes))


def _with_start(folders: list[Path]) -> int | None:
    """Add what the first run started as, if it was measured and is not there yet; its place or
    None.
    """
    start = RunFolder(folders[0]).untrained
    places = [folder.resolve() for folder in folders]
    if start.resolve() in places:
        return places.index(start.resolve())
    if not any((start / EVALUATIONS).glob("*.json")):
        return None
    folders.append(start)
    return len(folders) - 1


def _with_weights_of_others(folders: list[Path]) -> None:
    """Add encoders with weights of others that were measured on images of the first, unless one is
    there already.
    """
    known = [result for folder in folders for result in results_in(folder)]
    if any(result.encoder.get("weights") for result in known):
        return
    same = {result.encoder.get("fingerprint") for result in known} - {None}
    tested = {(of.protocol, of.images) for of in results_in(folders[0]) if of.protocol in QUOTED}
    for place in dict.fromkeys((Path("runs"), folders[0].parent)):
        for folder, of in _evaluated(place):
            others = of.encoder.get("weights") and of.encoder.get("fingerprint") not in same
            if others and (of.protocol, of.images) in tested and folder not in folders:
                folders.append(folder)


def _evaluated(place: Path) -> Iterator[tuple[Path, Result]]:
    """What was measured of encoders in a folder that holds a folder of each."""
    for file in sorted(place.glob(f"*/{EVALUATIONS}/*.json")):
        with suppress(UserError):  # others' damage
            yield file.parents[1], Result.read(file)


def _located(run: str | Path) -> Path:
    """The folder of what was evaluated, by the name or file that `evaluate` took, too."""
    path = Path(run)
    if path.is_file() and RunFolder(path.parent).config.is_file():
        path = path.parent
    found = set[Path]()
    if path.is_dir() and not any((path / EVALUATIONS).glob("*.json")):
        found = {folder for folder, _ in _evaluated(path / SPACES)}
    elif not path.is_dir():
        known = [*_evaluated(Path("runs"))]
        found = {folder for folder, of in known if of.encoder.get("source") == str(run)}
        if not found and path.is_file():
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            found = {
                folder
                for folder, of in known
                if sha256 in (of.encoder.get("weights", {}).get("sha256"), of.encoder.get("sha256"))
            }
    if len(found) > 1:
        folders = " and ".join(sorted(map(str, found)))
        raise UserError(f"{run} was evaluated in several ways: name one of {folders}")
    return found.pop() if found else path


def _results(run: Path) -> dict[tuple[str, str], Result]:
    """The results of a run by protocol and tested images."""
    results = results_in(run)
    if not results:
        raise UserError(f"{run} has no evaluations: measure it first, by `mast evaluate`")
    return {(result.protocol, result.images): result for result in results}


def _namesakes(results: Sequence[Mapping[tuple[str, str], Result]]) -> Iterator[str]:
    """A note for each set on whose name the runs agree but not on its images."""
    images: dict[tuple[str, str], set[str]] = {}
    for of_run in results:
        for (protocol, tested), result in of_run.items():
            images.setdefault((protocol, readable(result.set_name)), set()).add(tested)
    for (protocol, name), different in images.items():
        if len(different) > 1:
            yield f"{protocol} on {name}: other images or labels; each has rows of its own"


def short_names(runs: Sequence[Path]) -> tuple[str, ...]:
    """The last part of each path, or as many as tell them apart; of a space its encoder, too."""
    parts = [[part for part in run.parts if part != SPACES] for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = [
            "/".join(of[-depth - (SPACES in run.parts) :])
            for of, run in zip(parts, runs, strict=True)
        ]
        if len(set(names)) == len(names):
            return tuple(names)
    raise UserError(f"the same run is given twice: {', '.join(map(str, runs))}")


def _comparable(
    first: Result | None, other: Result | None, names: tuple[str, ...], index: int, notes: list[str]
) -> bool:
    """Whether both results exist, of the same images; differences become notes."""
    if first is None or other is None:
        return False
    subject = f"{first.protocol} on {readable(first.set_name)}, {names[0]} and {names[index]}"
    differ = [part for part in first.fingerprints | other.fingerprints
              if first.fingerprints.get(part) != other.fingerprints.get(part)]  # fmt: skip
    if of_changed_images(first, other):
        notes.append(
            f"{subject}: no interval of the difference, as the test images were changed: evaluate "
            "both again"
        )
    elif differ:
        notes.append(f"{subject}: other pixels of {', '.join(differ)} (another size, or changed)")
    settings, other_settings = (
        flatten({**of.settings, **of.encoder.get("space", {})}) for of in (first, other)
    )
    differing = [
        f"{name} {_brief(settings.get(name))} and {_brief(other_settings.get(name))}"
        for name in sorted(settings.keys() | other_settings.keys())
        if settings.get(name) != other_settings.get(name) and name not in OF_MACHINES
    ]
    if differing:
        notes.append(f"{subject}: other settings: {'; '.join(differing)}")
    return True


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
