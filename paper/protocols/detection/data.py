"""The sets of the protocols that find objects."""

from __future__ import annotations

from dataclasses import dataclass

from mast.data import open_source
from mast.evaluation.labelled_sets import identity
from mast.evaluation.named_sets import NamedSets
from paper.annotated import Annotated, joined, with_objects


@dataclass(frozen=True)
class ObjectData:
    """Two sets with annotated objects; they need no canvases."""

    train: Annotated
    test: Annotated  # scored once
    size: int  # side of the views, in pixels, for which the encoder was made
    metric: str = "ap"
    split: None = None

    @classmethod
    def open(cls, sets: NamedSets, size: int) -> ObjectData:
        """The sets by name; nothing is tuned, so a validation set is learned from as well."""
        sources = {
            part: with_objects(open_source(spec, sets.root, sets.download))
            for part, spec in sets.tested("test", "train").parts.items()
        }
        pool = [sources[part] for part in ("train", "val") if part in sources]
        name = "+".join(source.name for source in pool)
        return cls(joined(name, pool) if len(pool) > 1 else pool[0], sources["test"], size)

    @property
    def named(self) -> dict[str, Annotated]:
        return {"train": self.train, "test": self.test}

    @property
    def files(self) -> dict[str, int]:
        return {}

    @property
    def images(self) -> str:
        """Hash of the test images' names and annotations."""
        names = [self.test.identifier(index) for index in range(len(self.test))]
        return identity(names, self.test.multilabels)

    @property
    def fingerprints(self) -> dict[str, str]:
        return {part: annotated.fingerprint() for part, annotated in self.named.items()}
