"""The contract of a method: views in, loss and its terms out.

All state is parameters or buffers, so that resuming is `load_state_dict`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mast.augment import Views
from mast.core.collectives import processes
from mast.models import Encoder


class Method(nn.Module, ABC):
    """A self-supervised objective over an encoder.

    Data-parallel training wraps the method as a whole, so `forward` is all that a step calls.

    Attributes:
        encoder: What is kept after training.
        gates: Names of the parameters that gate rather than weigh (masks, GeM powers): they
            get an optimizer group of their own.
    """

    encoder: Encoder
    projector: Any
    gates: tuple[str, ...] = ()

    @abstractmethod
    def forward(self, views: Views) -> dict[str, Tensor]:
        """Compute the loss of one batch of view pairs.

        Returns:
            "loss" (to be minimised), "term/<name>" (its weighted addends, which sum to the
            loss) and "stat/<name>" (detached, for the log).
        """

    @abstractmethod
    def objective(self, *embeddings: Any) -> dict[str, Tensor]:
        """The loss of embeddings that are there already; what `forward` returns."""

    def compile_parts(self) -> None:
        """Compile the encoder and, in a single process, the objective with `torch.compile`.

        The objective is many small operators; compiled they become a few passes over the
        embeddings. Collectives in the middle of it, as several processes need, are left alone.
        """
        self.encoder.model.compile()
        if processes() == 1:
            self.objective = torch.compile(self.objective)  # type: ignore[method-assign]

    def after_step(self) -> None:
        """Called after every optimizer step: projections, moving averages."""

    def statistics(self) -> dict[str, float]:
        """Figures of the parameters for the log, taken when it is written."""
        return {}

    def warnings(self, metrics: Mapping[str, float]) -> Iterator[str]:
        """Name the collapses that the logged metrics show, each with its cause and a remedy."""
        yield from ()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Parameters in three groups: "weights", "vectors" (biases, norms) and "gates"."""
        groups: dict[str, list[nn.Parameter]] = {"weights": [], "vectors": [], "gates": []}
        for name, parameter in self.named_parameters():
            if name.endswith(self.gates) and self.gates:
                groups["gates"].append(parameter)
            else:
                groups["vectors" if parameter.ndim < 2 else "weights"].append(parameter)
        return [{"name": name, "params": params} for name, params in groups.items() if params]


def variance_collapse(metrics: Mapping[str, float]) -> Iterator[str]:
    """The warning that all methods with a variance term share."""
    deviation = metrics.get("stat/embedding_std", 1.0)
    if deviation < 0.3:
        yield (
            f"variance collapse: the embedding's mean standard deviation is {deviation:.2f} "
            "(the variance term wants 1). The views are pulled together harder than the "
            "variance term pushes apart; lower the weights of the invariance terms or raise "
            "the variance weight."
        )
