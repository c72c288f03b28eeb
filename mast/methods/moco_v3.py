"""MoCo v3: the other view of an image, by a teacher, among the other images of the batch.

Shapes: B images of this process, N of all processes, D dimensions of the embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.collectives import gather, rank
from mast.losses import contrast
from mast.losses.precision import product
from mast.methods.base import ABOVE_ZERO, bounded, limited, output_of, spread
from mast.methods.pair import PairConfig, PairMethod
from mast.methods.taught import TaughtConfig, TaughtMethod
from mast.models import MLP, Encoder, MLPConfig, Teacher
from mast.models.heads import LastNorm


@dataclass
class MoCoV3Config(TaughtConfig, PairConfig):
    """The contrast of MoCo v3; the predictor has the projector's sizes. The momentum rises.

    Attributes:
        projector_layers: Linear layers of the projector: 2 over a ResNet, 3 over a ViT.
        predictor_norm: Whether BatchNorm follows the predictor, as over a ViT.
        temperature: By which cosines are divided.
    """

    limits = limited(temperature=ABOVE_ZERO, projector_layers=bounded(2))
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(4096, 256))
    projector_layers: int = 2
    predictor_norm: bool = False
    temperature: float = 1.0


class MoCoV3(TaughtMethod, PairMethod):
    """Chen, Xie, He: An Empirical Study of Training Self-Supervised Vision Transformers (2021)."""

    config: MoCoV3Config
    needs_whole_batch = "its negatives are the other images of the batch"

    def __init__(
        self, config: MoCoV3Config, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        layers, sizes = config.projector_layers, config.projector
        super().__init__(config, encoder, operators, seed)
        self.projector = MLP(encoder.dim, sizes, layers=layers, last_norm="plain")
        self.teacher = Teacher(encoder, self.projector)
        last_norm: LastNorm = "plain" if config.predictor_norm else "none"
        self.predictor = MLP(sizes.dim, sizes, layers=2, last_norm=last_norm)

    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """One term, "contrast", the sum of both directions."""
        first_BD, second_BD = (self.predictor(self.projector(x_BC)) for x_BC in representations)
        target_ND, other_ND = (gather(self.teacher(images_BCHW)) for images_BCHW in images)
        loss = self._contrast(first_BD, other_ND) + self._contrast(second_BD, target_ND)
        return output_of({"contrast": loss}, spread=spread(target_ND))

    def _contrast(self, query_BD: Tensor, key_ND: Tensor) -> Tensor:
        """One direction; the keys are those of all processes, in the order of their ranks."""
        query_BD, key_ND = F.normalize(query_BD, dim=1), F.normalize(key_ND, dim=1)
        cosine_BN, count = product(query_BD, key_ND.T), len(query_BD)
        own_B = torch.arange(count, device=query_BD.device) + rank() * count
        positive_B = cosine_BN.gather(1, own_B[:, None]).squeeze(1)
        negative_BN = cosine_BN.scatter(1, own_B[:, None], -torch.inf)
        temperature = self.config.temperature
        return 2 * temperature * contrast(positive_B, negative_BN, temperature)
