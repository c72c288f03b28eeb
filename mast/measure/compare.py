"""Runs side by side: what each measured, and how far they differ on the same test images.

The interval of a difference is paired, so that what makes an image hard for every encoder cancels:
Tango's where every image is right or wrong, else of a bootstrap, in which each test set that is
drawn is scored for both runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mast.core.errors import UserError
from mast.core.run import flatten
from mast.core.table import FittedTable
from mast.measure.bootstrap import difference_interval, percentiles
from mast.measure.result import ENDS, FOLDER, Result, readable

# They change no value beyond rounding.
OF_MACHINES = ("extraction.device", "extraction.batch_size", "extraction.processes")


@dataclass(frozen=True)
class Difference:
    """A run's value minus that of the first run, in percentage points; the interval is of 95 %.

    `low` and `high` are None where the measure is not a mean over images.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Row:
    """One measure of all runs.

    Args:
        heading: Protocol, set, target and measure.
        values: Percent, one a run; None where a run was not measured so.
        intervals: The ends of each value's own 95 % interval; None where there is none.
        differences: To the first run, one for each of the others; None where there is none.
    """

    heading: tuple[str, str, str, str]
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    differences: tuple[Difference | None, ...]

    def cells(self) -> list[tuple[str, str]]:
        """For each run its value, and its interval (the first run) or difference (the others)."""
        cells = []
        for at, value in enumerate(self.values):
            beside, interval = "", self.intervals[at]
            difference = self.differences[at - 1] if at else None
            if at == 0 and interval is not None:
                beside = f"[{interval[0]:.1f}, {interval[1]:.1f}]"
            elif difference is not None:
                beside = f"{difference.value:+.1f}"
                if difference.low is not None:
                    beside += f" [{difference.low:+.1f}, {difference.high:+.1f}]"
            cells.append(("–" if value is None else f"{value:.1f}", beside))
        return cells


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Args:
        runs: Their names.
        rows: One a measure.
        notes: Why some could not be compared, or only with care.
    """

    runs: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    def table(self) -> FittedTable:
        """A table for a rich console; a difference is below its value."""
        table = FittedTable(
            3, title=f"Test sets, %; differences to {self.runs[0]} are paired; 95 % intervals"
        )
        for column in ("protocol, set", "target", "measure"):
            table.add_column(column)
        for run in self.runs:
            table.add_column(run, justify="right")
        for row in self.rows:
            protocol, set_name, *measured = row.heading
            cells = ("\n".join(filter(None, cell)) for cell in row.cells())
            table.add_row(f"{protocol}, {set_name}", *measured, *cells)
        return table


def compare(
    runs: str | Path | Sequence[str | Path], seed: int = 0, resamples: int = 1000
) -> Comparison:
    """Put what was measured of several runs side by side.

    Args:
        runs: Run folders with evaluations, or one; differences are to the first.
        seed: Of the bootstrap.
        resamples: Test sets that the bootstrap draws.

    Returns:
        A row for each measure of each protocol, set and target that one of the runs has, what the
        field reports on the set first.

    Raises:
        UserError: No run, or one without evaluations.
    """
    folders = [Path(run) for run in ((runs,) if isinstance(runs, str | Path) else runs)]
    if not folders:
        raise UserError("name the runs to compare, such as runs/flowers and runs/vicreg")
    results = [_results(folder) for folder in folders]
    names = _names(folders)
    notes: list[str] = []
    rows: list[Row] = []
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
            values = tuple(_value(result, target, measure) for result in (first, *others))
            differences = tuple(
                _difference(first, other, target, measure, seed, resamples) if paired else None
                for other, paired in zip(others, comparable, strict=True)
            )
            intervals = tuple(_interval(result, target, measure) for result in (first, *others))
            heading = (key[0], set_name, target, measure.replace("_", " "))
            rows.append(Row(heading, values, intervals, differences))
    notes += _namesakes(results)
    notes += _of_tests(results)
    return Comparison(names, tuple(rows), tuple(notes))


def _results(run: Path) -> dict[tuple[str, str], Result]:
    """The results of a run by protocol and tested images."""
    files = sorted((run / FOLDER).glob("*.json"))
    if not files:
        raise UserError(f"{run} has no evaluations; measure it first, by `mast evaluate`")
    results = [Result.read(file) for file in files]
    return {(result.protocol, result.images): result for result in results}


def _namesakes(results: Sequence[Mapping[tuple[str, str], Result]]) -> Iterator[str]:
    """A note for each set of which runs were measured on different images."""
    images: dict[tuple[str, str], set[str]] = {}
    for of_run in results:
        for (protocol, tested), result in of_run.items():
            images.setdefault((protocol, readable(result.set_name)), set()).add(tested)
    for (protocol, name), different in images.items():
        if len(different) > 1:
            yield f"{protocol} on {name}: other images or labels; each has rows of its own"


def _of_tests(results: Sequence[Mapping[tuple[str, str], Result]]) -> list[str]:
    """What must be said of the test images of each set."""
    notes = (
        f"{readable(result.set_name)}: {text}"
        for of_run in results
        for result in of_run.values()
        for text in result.notes()
    )
    return list(dict.fromkeys(notes))


def _names(runs: list[Path]) -> tuple[str, ...]:
    """The last part of each path, or as many as tell them apart."""
    for depth in range(1, max(len(run.parts) for run in runs) + 1):
        names = ["/".join(run.parts[-depth:]) for run in runs]
        if len(set(names)) == len(names):
            return tuple(names)
    raise UserError(f"the same run is given twice: {', '.join(map(str, runs))}")


def _comparable(
    first: Result | None,
    other: Result | None,
    names: tuple[str, ...],
    index: int,
    notes: list[str],
) -> bool:
    """Whether there are two results, of the same images; what differs becomes a note."""
    if first is None or other is None:
        return False
    subject = f"{first.protocol} on {readable(first.set_name)}, {names[0]} and {names[index]}"
    differ = [part for part in first.fingerprints | other.fingerprints
              if first.fingerprints.get(part) != other.fingerprints.get(part)]  # fmt: skip
    if differ:
        notes.append(f"{subject}: other pixels of {', '.join(differ)} (another size, or changed)")
    settings, other_settings = flatten(first.settings), flatten(other.settings)
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


def _value(result: Result | None, target: str, measure: str) -> float | None:
    if result is None or target not in result.targets:
        return None
    return result.targets[target].values.get(measure)


def _interval(result: Result | None, target: str, measure: str) -> tuple[float, float] | None:
    low, high = (_value(result, target, f"{measure}{end}") for end in ENDS)
    return None if low is None or high is None else (low, high)


def _difference(
    first: Result | None,
    other: Result | None,
    target: str,
    measure: str,
    seed: int,
    resamples: int,
) -> Difference | None:
    before, after = _value(first, target, measure), _value(other, target, measure)
    if first is None or other is None or before is None or after is None:
        return None
    of_first, of_other = first.targets[target], other.targets[target]
    if measure in of_first.each and measure in of_other.each:
        credit_N, other_N = of_first.each[measure], of_other.each[measure]
        if credit_N.shape == other_N.shape:
            low, high, _ = difference_interval(other_N - credit_N, seed, resamples)
            return Difference(after - before, 100 * low, 100 * high)
    drawn_alike = all(
        first.settings["protocol"][name] == other.settings["protocol"][name]
        for name in ("seed", "resamples")
    )
    if drawn_alike and measure in of_first.draws and measure in of_other.draws:
        value_R, other_R = of_first.draws[measure], of_other.draws[measure]
        if value_R.shape == other_R.shape:
            low, high = percentiles(other_R - value_R)
            return Difference(after - before, 100 * low, 100 * high)
    return Difference(after - before)
