"""The linear probe on the parts of a method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.probe import Probe


@final
@dataclass(frozen=True, kw_only=True)
class Ensemble(Probe):
    """The linear probe on what the parts of a method say, side by side.

    The parts of MAST are its K masked embeddings, K × D dimensions. It needs a run that has
    such parts. The settings are those of `linear`.

    Reference:
        MAST, Table 3 ("ensemble").
    """

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        yield from self.probe(encoder.representation("ensemble"), data)
