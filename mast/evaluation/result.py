"""Results of a protocol on a set: a dataclass, its JSON file, and tables.

N units (images, episodes) that a measure is the mean over.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from rich.box import SIMPLE_HEAD
from rich.text import Text
from torch import Tensor

from mast.core.checkpoint import write_json
from mast.core.errors import UserError, visible
from mast.core.files import read_json, short_name
from mast.core.run import EVALUATIONS
from mast.core.table import Shown, TextTable, as_frame, columns_of, literal
from mast.core.tensors import DIGEST, digest, read_tensors, write_tensors
from mast.encoders.fingerprint import weights_are_in
from mast.evaluation.intervals import Measured, end_names

_log = logging.getLogger("mast")

EACH = "each"  # folder of arrays inside evaluations, and their digest in a result
ARRAYS = ("each", "draws", "weights", "files")  # fields of a target other than its values
ENDS = end_names("")  # of an interval
LONGEST = 150  # bytes of the name of a set in that of a file
NAMED = 3  # classes in a line


def in_words(measure: str) -> str:
    """Readable name of a measure: "mean per class", "top-1", "AP small", "mAP area"."""
    named = re.sub(r"^top(?=\d)", "top-", measure).replace("_", " ").replace("/", " ")
    return re.sub(r"^(m?)ap(?=\d|\b)", r"\1AP", named)


@dataclass(frozen=True)
class TargetResult:
    """One target's measures.

    Args:
        values: Measures, in percent, with the ends of their 95 % intervals (`top1`, `top1_low`,
            `top1_high`), at one magnitude (`rotate@0.2`), or of one class (`ap/dog`).
        chosen: Hyper-parameters that validation chose, and their validation accuracy.
        each: What every unit contributed to a measure that is a mean, (N,) with 1 for 100 %; this
            and the next three are in a file of their own.
        draws: A measure that is no mean, on each test set of the bootstrap, (R,) with 1 for 100 %.
        weights: What each image's credit for "top1" weighs in a weighted mean, (N,) of mean 1.
        files: The number of the file of each unit, (N,), where files have several.
        counts: How many of something there were, such as labelled images.
        intervals: The method of each interval, such as "Wilson".
        by_chance: The chance level of each measure, in percent.
        confusion: Of a classifier, images by their class and then by the predicted one.
    """

    values: dict[str, float] = field(default_factory=dict)
    chosen: dict[str, float] = field(default_factory=dict)
    each: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    draws: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    weights: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    files: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    counts: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, str] = field(default_factory=dict)
    by_chance: dict[str, float] = field(default_factory=dict)
    confusion: dict[str, dict[str, int]] = field(default_factory=dict)

    def taken_for(self, name: str) -> str:
        """The classes that most images of a class were taken for, with their numbers."""
        others = {other: n for other, n in self.confusion.get(name, {}).items() if other != name}
        most = sorted(others.items(), key=lambda pair: -pair[1])[:NAMED]
        return ", ".join(f"{other} {count:,}" for other, count in most)

    def measures(self) -> Iterator[str]:
        """The names of the measures, without those of the ends of intervals."""
        return (name for name in self.values if not name.partition("/")[0].endswith(ENDS))

    def credit(self, measure: str) -> Tensor | None:
        """What every unit contributed to a measure, (N,); above 1 where units weigh differently."""
        weight_N = self.weights.get(measure)
        return self.each.get(measure) if weight_N is None else weight_N * self.each["top1"]

    def interval(self, measure: str) -> tuple[float, float] | None:
        """The ends of a measure's interval in percent; None where it has none."""
        low, high = map(self.values.get, end_names(measure))
        return None if low is None or high is None else (low, high)

    def ends(self, measure: str) -> str:
        """The interval as a text; empty where there is none."""
        interval = self.interval(measure)
        return "" if interval is None else f"[{interval[0]:.1f}, {interval[1]:.1f}]"


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """One protocol on one set, with all its targets.

    Args:
        protocol: Name in `EVALUATORS`.
        set_name: Name of the test set.
        targets: Measures by target.
        settings: Every setting of the protocol and of the extraction, seeds included.
        fingerprints: Of the sets' content, by part ("train", "val", "test").
        sizes: Number of images, by part.
        images: Hash of the test images' names and labels, independent of their size.
        metric: What the field reports on this set, "top1" or "mean_per_class".
        split: How train and test were drawn from one set, as `EvaluationData` has it.
        encoder: What was measured: its source, its fingerprint and what rebuilds it.
        duplicates: How many test images have an exact copy in a part, by part.
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
    provenance: dict[str, Any] = field(default_factory=dict, compare=False)
    files: dict[str, int] = field(default_factory=dict)

    def shown(self) -> Iterator[TextTable | Text]:
        """A table of its own."""
        return Results([self]).shown()

    @classmethod
    def collect(cls, measured: Iterable[Measured], **fields: Any) -> Result:
        """Sort a protocol's pairs by target; `fields` are all other fields of the result."""
        targets: dict[str, TargetResult] = {}
        for name, value in measured:
            target, measure = name.split("/", maxsplit=1)
            result = targets.setdefault(target, TargetResult())
            kind, _, rest = measure.partition("/")
            if kind == "interval":
                result.intervals[rest] = str(value)
            elif kind in (*ARRAYS, "chosen", "counts", "by_chance"):
                getattr(result, kind)[rest] = value
            else:
                assert isinstance(value, int | float), f"{name} is an array of no known kind"
                result.values[measure] = value
        return cls(targets=targets, **fields)

    def notes(self) -> list[str]:
        """Notes on the test images: how they were drawn, and which were learned from."""
        tested, files = self.sizes.get("test"), self.files.get("test")
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
                f"the {tested} test images are of {files} files or groups, and intervals cover "
                "other files"
            )
        return notes + notes_on_copies(self.duplicates, tested)

    @property
    def of_classifier(self) -> bool:
        """Whether it is a test of a classifier of `mast fit`, not of an encoder."""
        return any(target.confusion for target in self.targets.values())

    @property
    def published(self) -> str | None:
        """The name with a tag whose weights were measured; None where it was something else."""
        name: str = self.encoder.get("encoder", {}).get("name", "")
        return name if "." in name and not self.encoder.get("own_weights") else None

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
        if self._is_of_another_set(path):
            mark = hashlib.sha256(f"{self.set_name} {self.images}".encode()).hexdigest()[:6]
            path = path.with_name(f"{self.stem}-{mark}.json")
        arrays = {
            f"{target}/{kind}/{measure}": values
            for target, of_target in self.targets.items()
            for kind in ARRAYS
            for measure, values in getattr(of_target, kind).items()
        }
        targets = {
            target: {kind: of for kind, of in vars(of_target).items() if kind not in ARRAYS}
            for target, of_target in self.targets.items()
        }
        whole = {**vars(self), "targets": targets, **({EACH: digest(arrays)} if arrays else {})}
        write_json(path, {**whole, DIGEST: digest({}, whole)})  # first, as it refuses NaN
        if arrays:
            write_tensors(_each_file(path), arrays)
        return path

    def _is_of_another_set(self, path: Path) -> bool:
        try:
            old = Result.read(path)
        except UserError:
            return False
        same = (old.set_name, old.split.get("seed")) == (self.set_name, self.split.get("seed"))
        return not same and old.images != self.images

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """Read a file that `write` wrote, and what every image contributed."""
        path = Path(path)
        whole = read_json(path)
        try:
            if whole.pop(DIGEST) != digest({}, whole):
                raise UserError(f"{path} is damaged, it is not what was written: evaluate again")
            each_digest = whole.pop(EACH, None)
            targets = {name: TargetResult(**of) for name, of in whole.pop("targets").items()}
            result = cls(targets=targets, **whole)
        except (LookupError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is not the result of an evaluation ({error})") from error
        if each_digest is not None:
            arrays, _ = read_tensors(_each_file(path), "evaluate again")
            if each_digest != digest(arrays):
                raise UserError(f"{_each_file(path)} does not belong to {path}: evaluate again")
            for name, array in arrays.items():
                target, kind, measure = name.split("/", maxsplit=2)
                getattr(targets[target], kind)[measure] = array
        return result


def notes_on_copies(duplicates: Mapping[str, int], tested: int | None) -> list[str]:
    """Notes on test images that were learned from, by part."""
    return [
        f"{count} of {tested} test images are in {part} too, pixel for pixel"
        for part, count in duplicates.items()
        if count
    ]


def results_in(run: str | Path) -> list[Result]:
    """The results in a run folder, without those of another encoder than the one there."""
    found = []
    for file in sorted((Path(run) / EVALUATIONS).glob("*.json")):
        result = Result.read(file)
        if weights_are_in(Path(run) / "encoder.safetensors", result.encoder) is False:
            _warn_of_another_encoder(file)
        else:
            found.append(result)
    return found


@functools.cache
def _warn_of_another_encoder(file: Path) -> None:  # once, however often results are read
    _log.warning("%s is of another encoder than its run and is left out: evaluate again", file)


def _each_file(path: Path) -> Path:
    return path.parent / EACH / f"{path.stem}.safetensors"


# ---------------------------------------------------------------------------------------- names


def readable(set_name: str) -> str:
    """The end of a set's name, fit for a file: `flowers17-test` for `/data/flowers17/test`."""
    name = re.sub(r"[^\w.+]+", "-", _short(set_name)).strip("-.") or "set"
    return short_name(name, LONGEST, set_name)


def _short(set_name: str) -> str:
    """The end of a path, which usually identifies a set."""
    return "/".join(Path(set_name).parts[-2:])


# ---------------------------------------------------------------------------------------- table


@final
class Results(Shown, list[Result]):
    """Results as a list, which is shown as a table."""

    def shown(self) -> Iterator[TextTable | Text]:
        yield table(self)
        notes = (f"{_short(of.set_name)}: {note}." for of in self for note in of.notes())
        yield from map(literal, dict.fromkeys(notes))

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row for each measure, in percent, with its interval."""
        rows = [
            (result.protocol, result.set_name, target, name, of.values[name],
             *(of.interval(name) or (math.nan, math.nan)))
            for result in self
            for target, of in result.targets.items()
            for name in of.measures()
        ]  # fmt: skip
        names = ("protocol", "set", "target", "measure", "value", "low", "high")
        return as_frame(columns_of(names, rows))


def table(results: Sequence[Result]) -> TextTable:
    """A line for each measure but those at one magnitude, below its protocol, set and target."""
    shown = TextTable(title="Percent of the test set, 95 % intervals", box=SIMPLE_HEAD)
    shown.add_column("measure")
    for column in ("%", "interval", "chance"):
        shown.add_column(column, justify="right")
    confused = any(result.of_classifier for result in results)
    shown.add_column("taken for" if confused else "")
    for result in results:
        for target, of in result.targets.items():
            head = ", ".join((result.protocol, _short(result.set_name), target))
            shown.add_row(Text(visible(head), "bold"))
            for name in of.measures():
                if "@" not in name:
                    chance = of.by_chance.get(name)
                    shown.add_row(
                        in_words(name), f"{of.values[name]:.1f}", of.ends(name),
                        "" if chance is None else f"{chance:.1f}",
                        of.taken_for(name.removeprefix("recall/")),
                    )  # fmt: skip
            chosen = {name: value for name, value in of.chosen.items() if name != "validation"}
            text = [f"{in_words(name)} {value:.3g}" for name, value in chosen.items()]
            if "validation" in of.chosen:
                text.append(f"{of.chosen['validation']:.1f} % on validation")
            if text:
                shown.add_row(f"chosen: {', '.join(text)}")
    return shown
