"""The linear probe on the representation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from mast.measure.bootstrap import Measured
from mast.measure.frozen import FrozenEncoder
from mast.measure.sets import EvaluationData
from mast.protocols.probe import Probe


@final
@dataclass(frozen=True, kw_only=True)
class Linear(Probe):
    """The linear probe on the representation of unchanged images; see `Probe`."""

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`."""
        yield from self.probe(encoder, data)
