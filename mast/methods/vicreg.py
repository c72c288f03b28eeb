"""VICReg: variance, invariance and covariance of the embeddings of two views."""

from dataclasses import dataclass

from torch import Tensor

from mast.core.collectives import gather
from mast.losses import invariance, variance
from mast.methods.base import PairConfig, PairMethod, output_of
from mast.methods.parts import HostInputs, Images, shared_covariance


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

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """The terms are those of `objective`."""
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        output = self.objective(*(self.projector(x_BC) for x_BC in both))
        return self.prediction.add_to(output, both, inputs)

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
