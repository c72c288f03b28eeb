"""What a protocol measured on a set: a file with everything needed to measure it again.

N units (images, episodes) that a measure is the mean over.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final, get_type_hints

import torch
from rich.text import Text
from torch import Tensor

from mast.core.arguments import fits
from mast.core.checkpoint import write_json
from mast.core.errors import UserError
from mast.core.files import read_json, short_name
from mast.core.run import EVALUATIONS
from mast.core.table import FittedTable, Shown, as_frame, columns_of
from mast.core.tensors import DIGEST, digest, read_tensors, write_tensors
from mast.encoders.fingerprint import weights_are_in
from mast.evaluation.intervals import Measured, end_names

_log = logging.getLogger("mast")

EACH = "each"  # inside evaluations: what every image contributed
ARRAYS = ("each", "draws", "weights", "files")  # of a target, beside its values
NUMBERS = ("chosen", "counts", "by_chance")  # likewise
METHOD = "interval"  # of a target: by what method each of its intervals was found
ACCURACIES = ("top1", "top5", "mean_per_class")
ENDS = end_names("")  # of an interval
LONGEST = 150  # bytes of the name of a set in that of a file
PRECISION = "precision_"  # of the nearest images; what follows names a space
TOLD = "told_"  # of a space that heads read; what follows names the operators that they tell
# What is read of the fields that may hold anything, each behind the field that it is in.
READ: dict[str, Any] = {
    "settings.extraction": dict[str, Any],
    "settings.extraction.size": int,
    "settings.protocol": dict[str, Any],
    "settings.protocol.seed": int,
    "settings.protocol.share": float,
    "settings.protocol.operators": list[str] | None,
    "settings.protocol.held_out": dict[str, float],
    "split.share": float,
    "split.seed": int,
    "split.of": str,
    "near_duplicates.images": int,
    "near_duplicates.above": float,
    "encoder.fingerprint": str,
    "encoder.own_weights": bool,
    "encoder.weights": dict[str, Any],
    "encoder.encoder": dict[str, Any],
    "encoder.encoder.name": str,
    "encoder.normalization": dict[str, Any],
    "encoder.normalization.mean": list[float],
}
SHIFT = 0.02  # of the share of a class: smaller ones are not named
NEEDED = {"split": {"share", "seed"}, "near_duplicates": {"images", "above"}}  # where they are
CHOSEN, TAKEN = TEXT_COLUMNS = ("chosen on validation", "taken for")
MOST = 1000  # targets, and characters of a name
NAMED = 3  # targets, in a line
DEEP = 20  # fields in fields
LARGEST = 1e100  # no number is as large


def in_words(measure: str) -> str:
    """A measure's name as users read it: "mean per class", "top-1", "AP small", "mAP area"."""
    named = re.sub(r"^top(?=\d)", "top-", measure).replace("_", " ")
    return re.sub(r"^(m?)ap(?=\d|\b)", r"\1AP", named)


@dataclass(frozen=True)
class TargetResult:
    """One target's measures; all but values and choices are written where there are any.

    Args:
        values: Measures, in percent, with the ends of their 95 % intervals beside them
            (`top1`, `top1_low`, `top1_high`), at one magnitude (`rotate@0.2`), or of one class
            (`ap/dog`).
        chosen: Hyper-parameters that validation chose, and their validation accuracy.
        each: What every unit contributed to a measure that is a mean, (N,) with 1 for 100 %; this
            and the next three are in a file of their own.
        draws: A measure that is no mean, on each test set of the bootstrap, (R,) with 1 for 100 %.
        counts: How many of something there were, such as labelled images.
        intervals: By what method each interval was found, such as "Wilson".
        by_chance: What each measure is without a look at the images, in percent.
        weights: What each image's credit for "top1" weighs in a weighted mean, (N,) of mean 1.
        files: The number of the file of each unit, (N,), where files have several.
        confusion: Of a classifier, images by their class and then by what they were taken for.
        reliability: Likewise, rows of images, their mean probability and how often they are right,
            the last two in percent.
    """

    values: dict[str, float] = field(default_factory=dict)
    chosen: dict[str, float] = field(default_factory=dict)
    each: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    draws: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    counts: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, str] = field(default_factory=dict)
    by_chance: dict[str, float] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    files: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    confusion: dict[str, dict[str, int]] = field(default_factory=dict)
    reliability: list[list[float]] = field(default_factory=list)

    def by_class(self) -> list[tuple[str, int, str, str]]:
        """Of each class its name, images, recall with interval, and what most were taken for."""
        rows = []
        for name, taken in self.confusion.items():
            wrong = sorted((pair for pair in taken.items() if pair[0] != name),
                           key=lambda pair: -pair[1])[:NAMED]  # fmt: skip
            mistakes = ", ".join(f"{other} {count:,}" for other, count in wrong)
            recall = str(_cell(self.values, f"recall/{name}"))
            rows.append((name, sum(taken.values()), recall, mistakes))
        return rows

    def credit(self, measure: str) -> Tensor | None:
        """What every unit contributed to a measure, (N,); above 1 where units weigh differently."""
        weight_N = self.weights.get(measure)
        if weight_N is None:
            return self.each.get(measure)
        return weight_N * self.each["top1"] if "top1" in self.each else None

    def interval(self, measure: str) -> tuple[float, float] | None:
        """The ends of a measure's interval in percent; None where it has none."""
        low, high = map(self.values.get, end_names(measure))
        return None if low is None or high is None else (low, high)

    def chance(self, measure: str) -> float | None:
        """What a measure is without a look at the images; None where that is not known."""
        if measure.startswith(PRECISION):  # of a random order, whatever the space
            return self.values.get("chance")
        return self.by_chance.get(measure)

    def check(self) -> None:
        """Refuse, by a ValueError, numbers that cannot have been measured."""
        of_all = (self.values, self.chosen, self.counts, self.by_chance)
        for name, value in (pair for numbers in of_all for pair in numbers.items()):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} is {value!r}, which is no number")
            if not abs(value) < LARGEST:
                raise ValueError(f"{name} is {str(value)[:40]}")
        for name, value in (*self.values.items(), *self.by_chance.items()):
            share = name in ACCURACIES or name.startswith((PRECISION, "mAP_"))
            if share and not -1e-6 <= value <= 100 + 1e-6:
                raise ValueError(f"{name} is {value:g} %")
        for name in self.values:
            if (ends := self.interval(name)) is not None and ends[0] > ends[1]:
                raise ValueError(f"the interval of {name} is from {ends[0]:g} to {ends[1]:g}")
        names = [name for name in self.values if "/" not in name]  # others end in a class
        if long := [name for name in names if len(name) > MOST]:
            raise ValueError(f"{long[0][:40]}… has {len(long[0]):,} characters")


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
        images: Hash of which images were tested and of their labels, whatever their size.
        metric: What the field reports on this set, "top1" or "mean_per_class".
        split: How train and test were drawn from one set, as `EvaluationData` has it.
        encoder: What was measured: its source, its fingerprint and what rebuilds it.
        duplicates: How many test images have an exact copy in a part, by part.
        near_duplicates: As `near_copies` found them.
        provenance: Versions, machine and git revision.
        files: Number of files, by part, where some have several images, such as tiles of scenes.
    """

    protocol: str
    set_name: str
    targets: dict[str, TargetResult]
    settings: dict[str, Any]
    fingerprints: dict[str, str]
    sizes: dict[str, int]
    images: str = ""
    metric: str = "top1"
    split: dict[str, Any] = field(default_factory=dict)
    encoder: dict[str, Any] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict, compare=False)
    near_duplicates: dict[str, Any] = field(default_factory=dict, compare=False)
    provenance: dict[str, Any] = field(default_factory=dict, compare=False)
    files: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """In a line, with one measure of each of the first targets."""
        parts = [
            f"{target} {in_words(name)} {_cell(measured.values, name)}"
            for target, measured in self.targets.items()
            for name in [self.metric, *measured.values][self.metric not in measured.values :][:1]
        ]
        more = ["…"] if len(parts) > NAMED else []
        return f"Result({self.protocol} on {self.set_name}: {'; '.join([*parts[:NAMED], *more])})"

    def _repr_html_(self) -> str:
        return Results([self])._repr_html_()

    @classmethod
    def collect(cls, measured: Iterable[Measured], **fields: Any) -> Result:
        """Sort a protocol's pairs by target; `fields` are all other fields of the result."""
        targets: dict[str, TargetResult] = {}
        for name, value in measured:
            target, measure = name.split("/", maxsplit=1)
            result = targets.setdefault(target, TargetResult())
            kind, _, rest = measure.partition("/")
            if isinstance(value, Tensor):
                assert kind in ARRAYS, f"{name} is an array of no known kind"
                getattr(result, kind)[rest] = value
            elif isinstance(value, str):
                assert kind == METHOD, f"{name} is a text of no known kind"
                result.intervals[rest] = value
            elif kind in NUMBERS:
                getattr(result, kind)[rest] = value
            else:
                result.values[measure] = value
        return cls(targets=targets, **fields)

    def notes(self) -> list[str]:
        """Notes on the test images: how they were drawn, and which were learned from."""
        tested = self.sizes.get("test")
        files = self.files.get("test")
        notes = []
        if self.split:
            share = f"{100 * self.split['share']:g} % of each class"
            notes.append(
                f"{tested} of {sum(self.sizes.values())} images were tested, "
                f"{share if files is None else f'of whole files or groups about {share}'}, drawn "
                f"by seed {self.split['seed']}; the others were learned from"
            )
        if files is not None:
            notes.append(
                f"the {tested} test images are of {files} files or groups: intervals say what "
                "others would have given"
            )
        held = self.settings.get("protocol", {}).get("held_out", {})
        notes += [
            _beside_held_out(of, held) for of in self.targets.values() if of.confusion and held
        ]
        notes += [
            f"{count} of {tested} test images are in {part} too, pixel for pixel"
            for part, count in self.duplicates.items()
            if count
        ]
        if self.near_duplicates:
            notes.append(
                f"{self.near_duplicates['images']} of {tested} test images have a near-copy among "
                f"those to learn from (cosine above {self.near_duplicates['above']:g})"
            )
        return notes

    @property
    def of_classifier(self) -> bool:
        """Whether it is a test of a classifier of `mast fit`, not of an encoder."""
        return any(target.confusion for target in self.targets.values())

    @property
    def published(self) -> str | None:
        """The name with a tag whose weights were measured; None where it was something else."""
        return published_name(self.encoder)

    @property
    def drawn_from(self) -> str:
        """The set whose images were tested, or of which they were drawn where it has no parts."""
        return self.set_name.removesuffix("@test") if self.split else self.set_name

    def may_share_images(self, other: Result) -> bool:
        """Whether some images were tested in both, as both are of one set: drawn of a folder by two
        seeds, or a folder and a part of it. Copies in sets of different content are not looked for.
        """
        if self.drawn_from == other.drawn_from:
            return True
        whole, other_whole = (of.split.get("of", "") if of.split else of.images
                              for of in (self, other))  # fmt: skip
        return bool(whole) and whole == other_whole

    @property
    def stem(self) -> str:
        """Name of its file: the protocol, and the end of the set's name."""
        return short_name(f"{self.protocol}-{readable(self.set_name)}")

    def write(self, folder: str | Path) -> Path:
        """Write it into a run folder, wholly or not at all.

        The file is `evaluations/<protocol>-<set>.json`; an older one of the same set or images is
        replaced; where the name is taken by another set, a hash is added to it. What every image
        contributed is in `evaluations/each/`, as safetensors of the same name.
        """
        path = Path(folder) / EVALUATIONS / f"{self.stem}.json"
        if not _replaces(self, path):
            mark = hashlib.sha256(f"{self.set_name} {self.images}".encode()).hexdigest()[:6]
            path = path.with_name(f"{self.stem}-{mark}.json")
        as_json = asdict(self)
        arrays = {
            f"{target}/{kind}/{measure}": values
            for target, of_target in self.targets.items()
            for kind in ARRAYS
            for measure, values in getattr(of_target, kind).items()
        }
        as_json["targets"] = {
            target: {kind: of for kind, of in kinds.items()
                     if kind not in ARRAYS and (of or kind in ("values", "chosen"))}
            for target, kinds in as_json["targets"].items()
        }  # fmt: skip
        for kind in ("split", "files", "duplicates", "near_duplicates"):
            if not as_json[kind]:
                del as_json[kind]
        text = json.dumps(as_json, allow_nan=False)  # refused before anything is replaced
        if arrays:
            write_tensors(_each_file(path), arrays)
        else:
            _each_file(path).unlink(missing_ok=True)  # of an older result, which this one replaces
        whole = json.loads(text)
        if arrays:
            whole[EACH] = digest(arrays)
        write_json(path, {**whole, DIGEST: digest({}, whole)})
        return path

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """Read a file that `write` wrote, and what every image contributed, if that is there."""
        path = Path(path)
        try:
            raw = read_json(path)
            expected = raw.pop(DIGEST, None)  # none in files of earlier versions
            if expected not in (None, digest({}, raw)):
                raise UserError(f"{path} is damaged, it is not what was written: evaluate again")
            each_digest = raw.pop(EACH, None)  # likewise
            measured = raw.pop("targets")
            if len(measured) > MOST:
                raise ValueError(f"{len(measured):,} targets")
            targets = {name: _target(name, kinds) for name, kinds in measured.items()}
            _check(raw)
            result = cls(targets=targets, **raw)
        except UserError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            what = " ".join(str(error).split())[:200]
            raise UserError(f"{path} is not the result of an evaluation ({what}).") from error
        if os.path.lexists(_each_file(path)):
            arrays, _ = read_tensors(_each_file(path), "evaluate again")
            if each_digest not in (None, digest(arrays)) or not _take(arrays, targets):
                raise UserError(f"{_each_file(path)} does not belong to {path}: evaluate again")
        return result


def results_in(run: str | Path) -> list[Result]:
    """The results in a run folder, without those of another encoder than the one there."""
    found = []
    for file in sorted((Path(run) / EVALUATIONS).glob("*.json")):
        result = Result.read(file)
        if weights_are_in(Path(run) / "encoder.safetensors", result.encoder) is False:
            _tell(file)
        else:
            found.append(result)
    return found


@functools.cache
def _tell(file: Path) -> None:  # once, however often it is looked at
    _log.warning("%s is of another encoder than its run and is left out: evaluate again", file)


def _target(name: str, kinds: dict[str, Any]) -> TargetResult:
    target = TargetResult(**kinds)
    target.check()
    hints = get_type_hints(TargetResult)
    if not all(_fits(getattr(target, kind), hints[kind]) for kind in ("confusion", "reliability")):
        raise ValueError(f"{name[:40]} has no table of classes or probabilities")
    if any(len(row) != 3 for row in target.reliability):
        raise ValueError(f"{name[:40]} has probabilities without images")
    if len(name) > MOST or set(ARRAYS) & set(kinds) or not _fits(target.intervals, dict[str, str]):
        raise ValueError(f"{name[:40]} is no target")
    return target


def _check(raw: dict[str, Any]) -> None:
    """Refuse fields of a file that are not of their types."""
    hints = get_type_hints(Result)
    for name, value in raw.items():
        if not _fits(value, hints.get(name, Any)):
            raise ValueError(f"{name} is {str(value)[:80]!r}")
        if name in NEEDED and value and not NEEDED[name] <= set(value):
            raise ValueError(f"{name} lacks one of {', '.join(sorted(NEEDED[name]))}")
    for path, hint in READ.items():
        *within, name = path.split(".")
        fields = functools.reduce(lambda fields, key: fields.get(key, {}), within, raw)
        if name in fields and not _fits(fields[name], hint):
            raise ValueError(f"{path} is {str(fields[name])[:80]!r}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of JSON is of a type, and neither endless nor nested without end."""
    return fits(value, hint) and _is_finite(value)


def _is_finite(value: Any, deep: int = 0) -> bool:
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return deep < DEEP and all(_is_finite(part, deep + 1) for part in parts)
    return not isinstance(value, int | float) or abs(value) < LARGEST


def _replaces(result: Result, path: Path) -> bool:
    """Whether a result may overwrite a file: there is none, or it is of the same set and split."""
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
        seeds = [split.get("seed") for split in (old.get("split", {}), result.split)]
        same = old["set_name"] == result.set_name and seeds[0] == seeds[1]
        return bool(same or old["images"] == result.images)
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return True


def _take(arrays: Mapping[str, Tensor], targets: Mapping[str, TargetResult]) -> bool:
    """Add what units contributed to their targets; False where some of it cannot be theirs."""
    for name, values in arrays.items():
        target, kind, measure = [*name.split("/", maxsplit=2), "", ""][:3]
        value = targets[target].values.get(measure) if target in targets else None
        types = (torch.int64,) if kind == "files" else (torch.float32, torch.float64)
        if value is None or kind not in ARRAYS or values.dtype not in types or values.ndim != 1:
            return False
        if len(values) == 0 or not bool(values.isfinite().all()):
            return False
        if kind == "each" and abs(100 * float(values.double().mean()) - value) >= 0.01:
            return False
        getattr(targets[target], kind)[measure] = values
    return all(len(of.each.get(measure, ())) == len(files_N)
               for of in targets.values() for measure, files_N in of.files.items())  # fmt: skip


def _each_file(path: Path) -> Path:
    return path.parent / EACH / f"{path.stem}.safetensors"


def published_name(encoder: Mapping[str, Any]) -> str | None:
    """The name with a tag whose weights a described encoder has; None: it has others."""
    name: str = encoder.get("encoder", {}).get("name", "")
    return name if "." in name and not encoder.get("own_weights") else None


def readable(set_name: str) -> str:
    """The end of a set's name, fit for a file: `flowers17-test` for `/data/flowers17/test`."""
    name = re.sub(r"[^\w.+]+", "-", "/".join(Path(set_name).parts[-2:])).strip("-.") or "set"
    return short_name(name, LONGEST, set_name)


@final
class Results(Shown, list[Result]):
    """Results as a list, which is shown as tables."""

    def shown(self) -> list[FittedTable]:
        return tables(self)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row for each measure, in percent, with its interval."""
        rows = [
            (result.protocol, result.set_name, target, name, value,
             *(of.interval(name) or (math.nan, math.nan)))
            for result in self
            for target, of in result.targets.items()
            for name, value in of.values.items()
            if not name.endswith(ENDS)
        ]  # fmt: skip
        names = ("protocol", "set", "target", "measure", "value", "low", "high")
        return as_frame(columns_of(names, rows))


def tables(results: Sequence[Result]) -> list[FittedTable]:
    """What was measured, in percent: accuracies, the set's own metric in bold; for each retrieval
    the precision in every space; every other measure at each magnitude; and notes below.
    """
    each = [(result, target, of) for result in results for target, of in result.targets.items()]
    accuracies = [
        (
            result.protocol,
            _short(result.set_name),
            target,
            *(_cell(of.values, name, bold=name == result.metric) for name in ACCURACIES),
            _chance_cell(of, result.metric),
            _chosen(of.chosen),
        )
        for result, target, of in each
        if set(ACCURACIES) & of.values.keys()
    ]
    columns = ("protocol", "set", "target", "top-1", "top-5", "mean per class", "chance", CHOSEN)
    shown = (
        [_table(3, "Accuracy (test set, %, 95 % intervals)", columns, accuracies)]
        if accuracies
        else []
    )
    shown += [_spaces(result) for result in results if _by_space(result)]
    others = [
        (result, target, name, of)
        for result, target, of in each
        if not _by_space(result)
        for name in of.values
        if name not in ACCURACIES and not name.endswith(ENDS) and not set("@/") & set(name)
    ]
    shown += [_other_measures(others)] if others else []
    for result, _, of in each:
        if of.confusion:
            shown += _of_classifier(_short(result.set_name), of)
    notes = dict.fromkeys(
        f"{_short(result.set_name)}: {text}." for result in results for text in result.notes()
    )
    if shown and notes:
        shown[-1].caption = "\n".join(notes)
    return shown


def _table(
    named: int, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> FittedTable:
    """A table of which the first columns name a row; the others are numbers, but for text ones."""
    table = FittedTable(named, title=title)
    for at, column in enumerate(columns):
        text = at < named or column in TEXT_COLUMNS
        table.add_column(column, justify="left" if text else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _by_space(result: Result) -> list[str]:
    """The precisions of a retrieval, one a space; none of any other protocol."""
    first = next(iter(result.targets.values()), TargetResult())
    return [name for name in first.values if name.startswith(PRECISION) and not name.endswith(ENDS)]


def _spaces(result: Result) -> FittedTable:
    """A row for chance and for each space, a column for each target."""
    k = result.settings["protocol"]["k"]
    title = f"Share of the {k} nearest that agree ({_short(result.set_name)}, %, 95 % intervals)"
    rows = [
        (
            name.removeprefix(PRECISION).replace("_", " "),
            *(_cell(of.values, name) for of in result.targets.values()),
        )
        for name in ("chance", *_by_space(result))
    ]
    return _table(1, title, ("nearest in", *result.targets), rows)


def _of_classifier(name: str, measured: TargetResult) -> list[FittedTable]:
    """How often each class is recognised, and how often each probability is right."""
    bins = [
        (f"{probability:.1f}", f"{right:.1f}", f"{count:,.0f}")
        for count, probability, right in measured.reliability
    ]
    classes = [
        (label, f"{images:,}", recall, taken)
        for label, images, recall, taken in measured.by_class()
    ]
    return [
        _table(0, f"By probability ({name}, %)", ("mean probability", "right", "images"), bins),
        _table(
            1,
            f"By class ({name}, recall in %, 95 % intervals)",
            ("class", "images", "recall", TAKEN),
            classes,
        ),
    ]


def _other_measures(rows: Sequence[tuple[Result, str, str, TargetResult]]) -> FittedTable:
    """A row for each measure, a column for each magnitude at which one was taken."""
    magnitudes = sorted(
        {name.split("@")[1] for *_, of in rows for name in of.values if "@" in name}
    )
    with_chance = any(measured.chance(name) is not None for _, _, name, measured in rows)
    numbers = ("value", *(["chance"] if with_chance else []), *(f"at {m}" for m in magnitudes))
    cells = [
        (
            result.protocol,
            _short(result.set_name),
            target,
            in_words(name),
            _cell(measured.values, name),
            *([_chance_cell(measured, name)] if with_chance else []),
            *(_cell(measured.values, f"{name}@{magnitude}") for magnitude in magnitudes),
        )
        for result, target, name, measured in rows
    ]
    columns = ("protocol", "set", "target", "measure", *numbers)
    return _table(4, "Other measures (%)", columns, cells)


def _beside_held_out(measured: TargetResult, held: dict[str, float]) -> str:
    """How a test of a classifier compares with what was held out when it was fitted, and why."""
    top1, low, high = (measured.values[f"top1{end}"] for end in ("", *ENDS))
    then, least, most = (held[f"top1{end}"] for end in ("", *ENDS))
    gap = top1 - then
    below = gap - math.hypot(top1 - low, most - then)
    above = gap + math.hypot(high - top1, then - least)
    text = (
        f"of images that `mast fit` held out {then:.1f} % [{least:.1f}, {most:.1f}] were right; "
        f"the difference is {gap:+.1f} points [{below:+.1f}, {above:+.1f}]"
    )
    if may_be_chance := below <= 0 <= above:
        text += " and may be chance"
    tested = {name: sum(taken.values()) for name, taken in measured.confusion.items()}
    here = {name: count / sum(tested.values()) for name, count in tested.items()}
    learned = {name: measured.counts.get(name, 0) for name in tested}
    there = {name: count / max(1, sum(learned.values())) for name, count in learned.items()}
    other = max(here, key=lambda name: abs(here[name] - there[name]))
    if any(learned.values()) and abs(here[other] - there[other]) >= SHIFT:
        weighed = sum(there[name] * measured.values[f"recall/{name}"] for name in tested)
        text += (
            f". Class shares differ, most in {other}: {100 * here[other]:.0f} % here, "
            f"{100 * there[other]:.0f} % of the images learned from; with those shares "
            f"{weighed:.1f} % would be right here"
        )
    if may_be_chance:
        return text
    why = (
        "these images are easier, or it learned from more than it had then"
        if gap > 0
        else "another source, or near-copies among those that it learned from"
    )
    return f"{text}. What shares do not explain is in the images: {why}"


def _short(set_name: str) -> str:
    """The end of a path, which tells sets apart well enough."""
    return "/".join(Path(set_name).parts[-2:])


def _chosen(chosen: dict[str, float]) -> str:
    """What validation chose, and what that reached there."""
    text = ", ".join(
        f"{name.replace('_', ' ')} {value:.3g}"
        for name, value in chosen.items()
        if name != "validation"
    )
    return f"{text} ({chosen['validation']:.1f} %)" if "validation" in chosen else text


def _chance_cell(measured: TargetResult, name: str) -> str:
    chance = measured.chance(name)
    return "" if chance is None else f"{chance:.1f}"


def _cell(values: dict[str, float], name: str, bold: bool = False) -> str | Text:
    if name not in values:
        return "–"
    value = f"{values[name]:.1f}"
    low, high = map(values.get, end_names(name))
    ends = "" if low is None or high is None else f" [{low:.1f}, {high:.1f}]"
    return Text.assemble((value, "bold"), ends) if bold else value + ends
