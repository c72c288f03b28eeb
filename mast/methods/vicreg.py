"""VICReg: variance, invariance and covariance of the embeddings of two views."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mast.core.collectives import gather, global_sum, processes, rank
from mast.losses import covariance, invariance, variance
from mast.methods.base import (
    compile_objective,
    output_of,
)
from mast.methods.pair import PairConfig, PairMethod
from mast.models import MLP, Encoder


@dataclass
class VICRegConfig(PairConfig):
    """Weights of VICReg's three terms.

    Attributes:
        invariance_weight: Weight of the distance between views.
        variance_weight: Weight of the variance hinge (the mean of both views').
        covariance_weight: Weight of the covariance term (the sum of both views').
    """

    invariance_weight: float = 25.0
    variance_weight: float = 25.0
    covariance_weight: float = 1.0


class VICReg(PairMethod):
    """Bardes, Ponce, LeCun: Variance-Invariance-Covariance Regularization (ICLR 2022)."""

    config: VICRegConfig

    def __init__(
        self, config: VICRegConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.projector = MLP(encoder.dim, config.projector)

    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """The terms are those of `objective`."""
        first_BD, second_BD = (self.projector(x_BC) for x_BC in representations)
        return self.objective(first_BD, second_BD)

    def objective(self, first_BD: Tensor, second_BD: Tensor) -> dict[str, Tensor]:
        """The loss of the embeddings of two views; "invariance", "variance" and "covariance"."""
        first_BD, second_BD = gather(first_BD), gather(second_BD)
        config = self.config
        distance = invariance(first_BD, second_BD)
        terms = {
            "invariance": config.invariance_weight * distance,
            "variance": config.variance_weight * (variance(first_BD) + variance(second_BD)) / 2,
            "covariance": config.covariance_weight * shared_covariance(first_BD, second_BD),
        }
        return output_of(
            terms, unmasked_distance=distance, embedding_std=first_BD.std(dim=0).mean()
        )

    def compile_parts(self) -> None:
        """The encoder, the projector and the objective."""
        super().compile_parts()
        compile_objective(self)


def shared_covariance(*views: Tensor) -> Tensor:
    """The covariance term of all views, summed; each process computes its part of the products.

    Args:
        views: Embeddings of the global batch, the same in every process.
    """
    parts = [covariance(embedding_BD, rank(), processes()) for embedding_BD in views]
    return global_sum(sum(parts[1:], parts[0]))
