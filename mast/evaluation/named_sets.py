"""The labelled sets of an evaluation, from the names that a user gives."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from mast.core.arguments import check_fields
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.reading import Reading
from mast.data import CanvasSet, DataConfig, open_canvas, set_name
from mast.data.folder import doubt_of_classes
from mast.data.groups import groups_of
from mast.data.pieces import split_cut
from mast.data.registry import describe
from mast.data.source import PARTS, WHOLE, Metric, SetDescription, part_of
from mast.evaluation.labelled_sets import (
    TESTED,
    EvaluationData,
    hold_out,
    image_identity,
    labelled_images,
)

DEFAULT = "factors"  # the set where none is named
_log = logging.getLogger("mast")


@dataclass(frozen=True)
class NamedSets:
    """The sets of an evaluation, by name.

    Args:
        data: The labeled set, such as a folder with subfolders `train`, `test` and optionally `val`
            (tested if there is no test), `factors` (the default), `torchvision:NAME` or
            `hf:owner/name`; or a folder with one subfolder per class, where a fifth of each class
            is held out for testing. Images without a label are left out.
        train: Training images, in place of those of `data`.
        val: Validation images, in place of those of `data`.
        test: Test images, in place of those of `data`.
        root: Folder of torchvision and Hugging Face sets; by default the folder `downloads` next
            to the cached canvases.
        download: Allow downloading such a set, and the weights of an encoder's name.
    """

    data: str | Path | None = None
    train: str | Path | None = None
    val: str | Path | None = None
    test: str | Path | None = None
    root: str | Path | None = None
    download: bool = False

    def __post_init__(self) -> None:
        for part in ("data", "train", "val", "test"):
            if not isinstance(photos := getattr(self, part), str | Path | None):  # as of commands
                object.__setattr__(self, part, set_name(photos, part))
        check_fields(self)

    @property
    def overrides(self) -> dict[str, str]:
        """The parts that are named one by one."""
        named = {part: getattr(self, part) for part in PARTS}
        return {part: str(spec) for part, spec in named.items() if spec is not None}

    def description(self) -> SetDescription:
        """The parts of `data`, replaced by those that are named."""
        overrides = self.overrides
        if self.data is None and overrides:
            return SetDescription(overrides)
        described = describe(str(self.data or DEFAULT), self.root, self.download)
        if overrides:  # a set without parts gives none
            parts = {part: spec for part, spec in described.parts.items() if part != WHOLE}
            described = replace(described, parts={**parts, **overrides})
        return described

    @entry()
    def open(
        self, kind: type = EvaluationData, size: int = 224, seed: int = 0,
        model: nn.Module | None = None,
    ) -> Any:  # fmt: skip
        """The sets that a protocol needs (`Evaluator.needs`), read for a model."""
        if kind is not EvaluationData:
            return kind.open(self, size)  # type: ignore[attr-defined]
        described = self.tested()
        sets = self._read(described.parts, ("test", "train"), size, model)
        if WHOLE in sets:
            return _divided(sets[WHOLE], size, seed, described.metric)
        return EvaluationData(sets["train"], sets.get("val"), sets["test"], size, described.metric)

    @entry()
    def learning(self, size: int, model: nn.Module | None = None) -> EvaluationData:
        """What may be learned from: train and val, or all of a folder without parts."""
        described = self.description()
        pool = {part: of for part, of in described.parts.items() if part != "test"}
        sets = self._read(pool, ("train",), size, model)
        train = next(iter(sets.values()))
        none = train.part([])
        return EvaluationData(
            train, sets.get("val"), none, size, described.metric, whole=WHOLE in sets
        )

    @entry()
    def testing(self, size: int, model: nn.Module | None = None) -> tuple[CanvasSet, str]:
        """Images to test a finished classifier on, and the metric that the field reports on them.

        These are the images of test, or of val where there is no test; or all of a folder without
        parts.
        """
        described = self.tested()
        tested = {part: of for part, of in described.parts.items() if part in ("test", WHOLE)}
        (images,) = self._read(tested, ("test",), size, model).values()
        return images, described.metric

    def tested(self, *needed: str) -> SetDescription:
        """The parts, with val as test where there is none."""
        described = self.description()
        if self.val is None and "test" not in described.parts:
            described = described.with_test()
            if tested := described.parts.get("test"):
                _log.warning("%s has no test part: %s is tested, and settings are not chosen on "
                             "it.", self.data or "the set", tested)  # fmt: skip
        self._require(described.parts, needed)
        return described

    def _require(self, parts: Collection[str], needed: Sequence[str]) -> None:
        if missing := [part for part in needed if part not in parts]:
            given = f"{self.data} has none" if self.data else f"only {', '.join(self.overrides)}"
            raise UserError(f"{' and '.join(missing)}: expected labeled images, got {given}")

    def _read(
        self, parts: Mapping[str, str], needed: Sequence[str], size: int, model: nn.Module | None
    ) -> dict[str, CanvasSet]:
        """The parts of a set, all with the mapping of values found for the training part."""
        if WHOLE in parts:
            return {WHOLE: self._whole(parts[WHOLE], size, model)}
        self._require(parts, needed)
        sets: dict[str, CanvasSet] = {}
        reading: Reading | None = None
        for part in filter(parts.__contains__, PARTS):
            sets[part] = self._canvases(parts[part], size, model, reading)
            if part == "train" and sets[part].reading.layout.deep:
                reading = sets[part].reading
        for (one, of), (other, of_other) in itertools.combinations(sets.items(), 2):
            if shared := {*(of.groups or ())} & {*(of_other.groups or ())}:
                raise UserError(
                    f"groups: expected each group in one part, got {len(shared)} in both {one} "
                    f"and {other}, the first of them {min(shared)}"
                )
        return sets

    def _canvases(
        self, spec: str, size: int, model: nn.Module | None, reading: Reading | None = None
    ) -> CanvasSet:
        config = DataConfig(spec, root=self.root, download=self.download, max_broken=1.0)
        return labelled_images(open_canvas(config, size, 1, model, reading))

    def _whole(self, spec: str, size: int, model: nn.Module | None) -> CanvasSet:
        """A folder without parts, if its subfolders are classes."""
        whole, folder = self._canvases(spec, size, model), os.path.isdir(split_cut(spec)[0])
        if not whole.targets:
            raise UserError(
                "data: expected one subfolder per class, list:FILE.csv with a column label, or "
                f"shards with labels; {whole.name} has no labels"
            )
        names = next(iter(whole.classes.values()))
        parts = [name for name in names if (part_of(name) or ("", "other"))[1] == ""]
        if folder and parts:
            raise UserError(
                f"data: expected only classes or only parts in {whole.name}, got the subfolders "
                f"{', '.join(parts)} among {len(names)}: rename them if they are classes, or "
                "give one part"
            )
        if folder and (reason := doubt_of_classes(whole.identifiers)):
            raise UserError(
                f"data: expected a folder with one subfolder per class, got {whole.name}: "
                f"its classes are unclear, as {reason}"
            )
        return whole


def _divided(whole: CanvasSet, size: int, seed: int, metric: Metric) -> EvaluationData:
    """Train and test, split from a folder without parts."""
    label_N = next(iter(whole.targets.values()))
    groups_N = groups_of(whole.units)
    learned_F, tested_M = hold_out(label_N, seed, TESTED, groups_N)
    if not len(tested_M):
        several = "two images" if groups_N is None else "images of two files or groups"
        raise UserError(
            f"data: expected {several} of at least one class, one of them to be tested, got "
            f"{whole.name}"
        )
    learned = whole.part(learned_F, f"{whole.name}@train")
    tested = whole.part(tested_M, f"{whole.name}@test")
    split = {"by": "class", "share": TESTED, "seed": seed, "of": image_identity(whole)}
    return EvaluationData(learned, None, tested, size, metric, split)
