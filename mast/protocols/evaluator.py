"""What a protocol is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, TypeVar

from mast.measure.bootstrap import MOST_RESAMPLES, Measured
from mast.measure.frozen import FrozenEncoder
from mast.measure.sets import EvaluationData, ObjectData
from mast.measure.settings import Ranged

Data = TypeVar("Data", EvaluationData, ObjectData)


@dataclass(frozen=True, kw_only=True)
class Evaluator(Ranged, ABC, Generic[Data]):
    """A protocol; a frozen dataclass whose fields are its settings.

    Attributes:
        needs: The kind of data that `run` takes.

    Args:
        seed: Of everything the protocol draws: images held out, batches, the bootstrap.
        resamples: Test sets that the bootstrap draws.
    """

    needs: ClassVar[type[EvaluationData] | type[ObjectData]] = EvaluationData
    at_least: ClassVar[Mapping[str, float]] = {"seed": 0, "resamples": 1}
    at_most: ClassVar[Mapping[str, float]] = {"seed": 2**63 - 1, "resamples": MOST_RESAMPLES}

    seed: int = 0
    resamples: int = 1000

    def settings(self) -> dict[str, Any]:
        """All that the result depends on besides encoder and data, as JSON has it."""
        return asdict(self)

    def prepare(self, encoder: FrozenEncoder) -> None:
        """Make sure, before any protocol runs, that the encoder has what this one needs."""

    @abstractmethod
    def run(self, encoder: FrozenEncoder, data: Data) -> Iterator[Measured]:
        """Measure an encoder.

        Args:
            encoder: The frozen encoder; `encoder.features` shares what others extracted.
            data: The labelled sets; the test set is to be scored once, after all choices.

        Yields:
            `<target>/<measure>` with its value; `<target>/each/<measure>` with what every test
            image (or draw) contributed to it, where it is a mean; `<target>/interval/<measure>`
            with the method of its interval; `<target>/chosen/<setting>` for every hyper-parameter
            that was tuned.
        """
