"""What a protocol is, and what protocols share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor, nn

from mast.augment import OPERATORS
from mast.core.errors import unknown
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.accuracy import accuracies
from mast.evaluation.intervals import Measured, measured
from mast.evaluation.labelled_sets import EvaluationData, Task
from mast.evaluation.settings import Ranged

Data = TypeVar("Data")


class Learned(NamedTuple):
    """A classifier of the whole pool, and what one like it says of images that it has not seen.

    V images are held out, of C classes.
    """

    encoder: nn.Module  # from images to (B, D): as it was, or fine-tuned
    head: nn.Linear  # from there to scores (B, C)
    scores_VC: Tensor  # of held-out images, by a classifier that did not learn from them
    labels_V: Tensor  # their classes
    chosen: dict[str, float]  # hyper-parameters that were chosen by them


@dataclass(frozen=True, kw_only=True)
class Evaluator(Ranged, ABC, Generic[Data]):
    """A protocol; a frozen dataclass whose fields are its settings.

    Attributes:
        needs: The kind of data that `run` takes.

    Args:
        seed: Of everything the protocol draws: images held out, batches, the bootstrap.
        resamples: Test sets that the bootstrap draws.
    """

    needs: ClassVar[type] = EvaluationData
    limits: ClassVar = {"resamples": "(0, inf)"}

    seed: int = 0
    resamples: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(operators := getattr(self, "operators", None), tuple):
            check_operators(operators)

    def settings(self) -> dict[str, Any]:
        """All that the result depends on besides encoder and data, as JSON has it."""
        return asdict(self)

    @abstractmethod
    def run(self, encoder: FrozenEncoder, data: Data) -> Iterator[Measured]:
        """Measure an encoder.

        `encoder.features` shares what others extracted; the test set is to be scored once, after
        all choices.

        Yields:
            What `Measured` lists; and `<target>/chosen/<setting>` for every hyper-parameter that
            was tuned.
        """

    def accuracies(self, task: Task, scores_MC: Tensor, **more: Any) -> Iterator[Measured]:
        """The measures of a task's test scores; see `mast.evaluation.accuracy.accuracies`."""
        more = {"target": task.target, "files_N": task.test_files_M, **more}
        return accuracies(
            scores_NC=scores_MC, labels_N=task.test_labels_M,
            seed=self.seed, resamples=self.resamples, **more,
        )  # fmt: skip

    def measured(self, task: Task, name: str, credit_M: Tensor, **more: Any) -> Iterator[Measured]:
        """A mean over test images of a task; see `mast.evaluation.intervals.measured`."""
        more = {"files_N": task.test_files_M, **more}
        return measured(task.target, name, credit_M, self.seed, self.resamples, **more)


def features_of(encoder: FrozenEncoder, data: EvaluationData) -> tuple[Tensor, Tensor]:
    """Features of the pool and of the test set, pool_ND and test_MD, on the encoder's device."""
    pool_ND = encoder.pool_features(data.pool, data.size)
    return pool_ND.to(encoder.device), encoder.features(data.test, data.size).to(encoder.device)


def check_operators(names: Iterable[str]) -> None:
    """Refuse unknown operators."""
    for name in names:
        if name not in OPERATORS:
            raise unknown("operator", name, OPERATORS)
