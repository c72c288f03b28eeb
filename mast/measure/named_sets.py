"""From what a user names to the labelled sets of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mast.core.errors import UserError
from mast.data import (
    DataConfig,
    SetDescription,
    describe,
    joined,
    open_canvas,
    open_source,
    with_objects,
)
from mast.measure.sets import EvaluationData, ObjectData


@dataclass(frozen=True)
class NamedSets:
    """The sets of an evaluation, by name.

    Args:
        data: The labelled set: a folder with `train`, `test` and perhaps `val` below it,
            `factors`, `torchvision:NAME`, `hf:owner/name`, `coco:FOLDER` or
            `voc:VOCdevkit/VOC2007`, of which the usual splits are taken; `factors` if nothing is
            named.
        train: Training images, if not those of `data`.
        val: Validation images, if not those of `data`.
        test: Test images, if not those of `data`.
        root: Folder of torchvision and Hugging Face sets; `downloads` beside the canvases if not
            given.
        download: Whether such a set may be downloaded, and the weights that an encoder's name
            names.
    """

    data: str | Path | None = None
    train: str | Path | None = None
    val: str | Path | None = None
    test: str | Path | None = None
    root: str | Path | None = None
    download: bool = False

    def description(self) -> SetDescription:
        """The parts of `data`, those that are named taking their place.

        Raises:
            UserError: There is no train or no test among them.
        """
        named = {"train": self.train, "val": self.val, "test": self.test}
        overrides = {part: str(spec) for part, spec in named.items() if spec is not None}
        if self.data is None and overrides:
            described = SetDescription({})
        else:
            described = describe("factors" if self.data is None else str(self.data))
        parts = {**described.parts, **overrides}
        missing = sorted({"train", "test"} - parts.keys())
        if missing:
            raise UserError(
                f"{self.data or 'what is named'} has no {' and no '.join(missing)} folder; give "
                f"{' and '.join(missing)} too"
            )
        return replace(described, parts=parts)

    def open(
        self, kind: type[EvaluationData] | type[ObjectData], size: int
    ) -> EvaluationData | ObjectData:
        """The sets of the kind that a protocol needs.

        Args:
            kind: See `Evaluator.needs`.
            size: Side of the views in pixels.

        Raises:
            UserError: There is nothing of that name, or it has no labels of that kind.
        """
        described = self.description()
        return (self._labelled if kind is EvaluationData else self._objects)(described, size)

    def _labelled(self, described: SetDescription, size: int) -> EvaluationData:
        sets = {
            part: open_canvas(DataConfig(spec, root=self.root, download=self.download), size)
            for part, spec in described.parts.items()
        }
        return EvaluationData(sets["train"], sets.get("val"), sets["test"], size, described.metric)

    def _objects(self, described: SetDescription, size: int) -> ObjectData:
        sources = {
            part: with_objects(open_source(spec, self.root, self.download))
            for part, spec in described.parts.items()
        }
        # Nothing is tuned: what is there to choose hyper-parameters by is learned from as well.
        pool = [sources[part] for part in ("train", "val") if part in sources]
        train = joined("+".join(source.name for source in pool), pool) if len(pool) > 1 else pool[0]
        return ObjectData(train, sources["test"], size)
