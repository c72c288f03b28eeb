"""VI-SimSiam: SimSiam whose predictor gives a distribution of the other view's embedding.

Shapes: B images, D dimensions of the embedding.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.arguments import checked
from mast.core.collectives import gather
from mast.losses.precision import full
from mast.methods.base import PairMethod, output_of, spread
from mast.methods.parts import HostInputs, Images
from mast.methods.simsiam import SimSiamConfig
from mast.models import MLP, MLPConfig


@dataclass
class VISimSiamConfig(SimSiamConfig):
    """The networks of VI-SimSiam, which are SimSiam's but for the predictor's last number."""


class VISimSiam(PairMethod):
    """Nakamura, Okada, Taniguchi: Representation Uncertainty as Variational Inference (2022).

    The predictor gives a direction and its concentration, of a power spherical distribution under
    which the other view's embedding is to be likely. There is no official code; the concentration
    is a softplus here, and the loss is divided by D so that its size does not depend on it.
    """

    config: VISimSiamConfig
    shape: ClassVar = {"last_norm": "plain"}
    steady = ("predictor.",)

    def build(self) -> None:
        super().build()
        dim = self.config.projector.dim
        self.predictor = MLP(dim, MLPConfig(self.config.bottleneck, dim + 1), layers=2, bias=True)

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
        """Negative log-likelihood of one view's embedding, predicted from the other's."""
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


@checked
def power_spherical_log_density(
    direction_BD: Tensor, mean_BD: Tensor, concentration_B: Tensor
) -> Tensor:
    """Log-density of directions under power spherical distributions.

    Args:
        direction_BD: Unit vectors, shape (B, D), D >= 2.
        mean_BD: Mean directions, unit vectors, shape (B, D).
        concentration_B: Positive, shape (B,); at 0 the distribution is uniform.

    Returns:
        Shape (B,), `log C + kappa log(1 + mean . direction)`.

    Reference:
        De Cao and Aziz, The Power Spherical Distribution (2020), Eq. 5 and 6.
    """
    direction_BD, mean_BD, kappa_B = map(full, (direction_BD, mean_BD, concentration_B))
    beta = (direction_BD.shape[1] - 1) / 2
    alpha_B = beta + kappa_B
    log_norm_B = (
        (alpha_B + beta) * math.log(2.0)
        + beta * math.log(math.pi)
        + torch.lgamma(alpha_B)
        - torch.lgamma(alpha_B + beta)
    )
    # Rounding may leave the cosine of opposite vectors below -1.
    cosine_B = (direction_BD * mean_BD).sum(dim=1).clamp(min=-1 + 1e-6)
    return kappa_B * torch.log1p(cosine_B) - log_norm_B
