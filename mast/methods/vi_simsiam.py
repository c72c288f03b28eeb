"""VI-SimSiam: SimSiam whose predictor gives a distribution of the other view's embedding.

Shapes: B images, D dimensions of the embedding.
"""

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.collectives import gather
from mast.losses import power_spherical_log_density
from mast.methods.base import output_of, spread
from mast.methods.parts import HostInputs, Images
from mast.methods.simsiam import SimSiam, SimSiamConfig


@dataclass
class VISimSiamConfig(SimSiamConfig):
    """The networks of VI-SimSiam, which are SimSiam's but for the predictor's last number."""


class VISimSiam(SimSiam):
    """Nakamura, Okada, Taniguchi: Representation Uncertainty as Variational Inference (2022).

    The predictor gives a direction and its concentration, of a power spherical distribution under
    which the other view's embedding is to be likely. There is no official code; the concentration
    is a softplus here, and the loss is divided by D so that its size does not depend on it.
    """

    config: VISimSiamConfig
    beside = 1

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "likelihood"."""
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        first_BD, second_BD = (self.projector(x_BC) for x_BC in both)
        of_first, kappa_B = self._surprise(second_BD, first_BD)
        of_second, _ = self._surprise(first_BD, second_BD)
        loss = (of_first + of_second) / (2 * first_BD.shape[1])
        statistics = {"concentration": kappa_B.mean(), "spread": spread(gather(first_BD.detach()))}
        output = output_of({"likelihood": loss}, **statistics)
        return self.prediction.add_to(output, both, inputs)

    def _surprise(self, known_BD: Tensor, other_BD: Tensor) -> tuple[Tensor, Tensor]:
        """How unlikely one view's embedding is to what is predicted from the other's."""
        mean_BD, kappa_B = self._distribution(known_BD)
        target_BD = F.normalize(other_BD.detach(), dim=1)
        return -power_spherical_log_density(target_BD, mean_BD, kappa_B).mean(), kappa_B

    def _distribution(self, embedding_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Mean direction and concentration."""
        predicted = self.predictor(embedding_BD)
        return F.normalize(predicted[:, :-1], dim=1), F.softplus(predicted[:, -1])

    def uncertainty(self, images_BCHW: Tensor) -> Tensor:
        """One over the concentration."""
        _, kappa_B = self._distribution(self.embed(images_BCHW))
        return 1 / kappa_B.clamp(min=1e-6)
