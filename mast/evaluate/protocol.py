"""What a protocol is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from mast.evaluate.bootstrap import Measured
from mast.evaluate.data import EvaluationData
from mast.evaluate.features import FrozenEncoder


@dataclass(frozen=True, kw_only=True)
class Evaluator(ABC):
    """A protocol; a frozen dataclass whose fields are its settings.

    Args:
        seed: Of everything the protocol draws: images held out, batches, the bootstrap.
        resamples: Test sets drawn for the 95 % intervals.
    """

    seed: int = 0
    resamples: int = 1000

    @abstractmethod
    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """Measure an encoder.

        Args:
            encoder: The frozen encoder; `encoder.features` shares what others extracted.
            data: The labelled sets; the test set is to be scored once, after all choices.

        Yields:
            `<target>/<measure>` with its value; `<target>/each/<measure>` with what every test
            image (or draw) contributed to it, where it is a mean; `<target>/chosen/<setting>` for
            every hyper-parameter that was tuned.
        """
