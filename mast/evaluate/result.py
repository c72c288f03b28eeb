"""What a protocol measured on a set: a file with everything needed to measure it again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from mast.core.checkpoint import write_json
from mast.core.errors import UserError

FOLDER = "evaluations"  # inside a run folder
ACCURACIES = ("top1", "top5", "mean_per_class")


@dataclass(frozen=True)
class TargetResult:
    """One target's measures.

    Args:
        values: Measures, in percent, with the ends of their 95 % intervals beside them
            (`top1`, `top1_low`, `top1_high`).
        chosen: Hyper-parameters that validation chose, and their validation accuracy.
    """

    values: dict[str, float] = field(default_factory=dict)
    chosen: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """One protocol on one set, with all its targets.

    Args:
        protocol: Name in `EVALUATORS`.
        set_name: Name of the test set.
        targets: Measures by target.
        settings: Every setting of the protocol and of the extraction, seeds included.
        fingerprints: Of the sets' content, by part ("train", "val", "test").
        sizes: Number of images, by part.
    """

    protocol: str
    set_name: str
    targets: dict[str, TargetResult]
    settings: dict[str, Any]
    fingerprints: dict[str, str]
    sizes: dict[str, int]

    @classmethod
    def collect(cls, measured: Iterable[tuple[str, float]], **about: Any) -> Result:
        """Sort a protocol's `(name, value)` pairs by target, measures apart from choices."""
        targets: dict[str, TargetResult] = {}
        for name, value in measured:
            target, measure = name.split("/", maxsplit=1)
            result = targets.setdefault(target, TargetResult())
            if measure.startswith("chosen/"):
                result.chosen[measure.removeprefix("chosen/")] = value
            else:
                result.values[measure] = value
        return cls(targets=targets, **about)

    @property
    def path(self) -> Path:
        """Where it lies in a run folder."""
        safe = re.sub(r"[^\w.+@-]+", "_", self.set_name)
        return Path(FOLDER) / f"{self.protocol}-{safe}.json"

    def write(self, folder: str | Path) -> Path:
        """Write it as JSON into a run folder, wholly or not at all.

        Args:
            folder: The run folder; `evaluations/` is made in it.

        Returns:
            The file, `evaluations/<protocol>-<set>.json`; an older one is replaced.

        Raises:
            UserError: If it cannot be written.
        """
        path = Path(folder) / self.path
        write_json(path, asdict(self))
        return path

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """Read a file that `write` wrote.

        Raises:
            UserError: If it is not such a file.
        """
        try:
            raw = json.loads(Path(path).read_text(encoding="utf-8"))
            targets = {name: TargetResult(**target) for name, target in raw.pop("targets").items()}
            return cls(targets=targets, **raw)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path} is not the result of an evaluation ({error}).") from error


def tables(results: Sequence[Result]) -> list[Table]:
    """What was measured, in percent.

    Args:
        results: What to show.

    Returns:
        Tables for a rich console: accuracies of whole test sets, a row for each protocol, set and
        target; then every other measure, a row each, with its value at each magnitude.
    """
    shown = Table(title="Accuracy (test set, %, 95 % intervals)")
    for column in ("protocol", "set", "target"):
        shown.add_column(column)
    for column in ("top-1", "top-5", "mean per class"):
        shown.add_column(column, justify="right")
    shown.add_column("chosen on validation")
    for result in results:
        for target, measured in result.targets.items():
            shown.add_row(
                result.protocol,
                _short(result.set_name),
                target,
                *(_cell(measured.values, name) for name in ACCURACIES),
                ", ".join(f"{name} {value:.3g}" for name, value in measured.chosen.items()),
            )
    others = [
        (result, target, name, measured.values)
        for result in results
        for target, measured in result.targets.items()
        for name in measured.values
        if name not in ACCURACIES and not name.endswith(("_low", "_high")) and "@" not in name
    ]
    return [shown, _other_measures(others)] if others else [shown]


def _other_measures(rows: Sequence[tuple[Result, str, str, dict[str, float]]]) -> Table:
    """A row for each measure, a column for each magnitude at which one was taken."""
    magnitudes = sorted({name.split("@")[1] for *_, v in rows for name in v if "@" in name})
    shown = Table(title="Other measures (%)")
    for column in ("protocol", "set", "target", "measure"):
        shown.add_column(column)
    for column in ("value", *(f"at {magnitude}" for magnitude in magnitudes)):
        shown.add_column(column, justify="right")
    for result, target, name, values in rows:
        shown.add_row(
            result.protocol,
            _short(result.set_name),
            target,
            name.replace("_", " "),
            _cell(values, name),
            *(_cell(values, f"{name}@{magnitude}") for magnitude in magnitudes),
        )
    return shown


def _short(set_name: str) -> str:
    """The end of a path, which tells sets apart well enough."""
    return "/".join(Path(set_name).parts[-2:])


def _cell(values: dict[str, float], name: str) -> str:
    if name not in values:
        return "–"
    if f"{name}_low" not in values:
        return f"{values[name]:.1f}"
    return f"{values[name]:.1f} [{values[f'{name}_low']:.1f}, {values[f'{name}_high']:.1f}]"
