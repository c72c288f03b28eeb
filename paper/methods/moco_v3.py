"""MoCo v3: the other view of an image, by a teacher, among the other images of the batch.

Shapes: B images of this process, N of all processes, D dimensions of the embedding.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.collectives import gather, rank
from mast.losses import contrast
from mast.losses.precision import product
from mast.methods.base import NEGATIVES, PairConfig, PairMethod, output_of, spread
from mast.methods.parts import HostInputs, Images, Teacher
from mast.models import MLP, MLPConfig


@dataclass
class MoCoV3Config(PairConfig):
    """The contrast of MoCo v3, with its heads over a ResNet; the momentum rises."""

    needs_whole_batch = NEGATIVES

    projector: MLPConfig = field(default_factory=lambda: MLPConfig(4096, 256))
    temperature: float = 1.0
    momentum: float = 0.99


class MoCoV3(PairMethod):
    """Chen, Xie, He: An Empirical Study of Training Self-Supervised Vision Transformers (2021)."""

    config: MoCoV3Config
    shape: ClassVar = {"layers": 2, "last_norm": "plain"}

    def build(self) -> None:
        sizes = self.config.projector
        super().build()
        self.teacher = Teacher(self.encoder, self.projector, self.config.momentum)
        self.predictor = MLP(sizes.dim, sizes, layers=2)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "contrast", the sum of both directions."""
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        first_BD, second_BD = (self.predictor(self.projector(x_BC)) for x_BC in both)
        target_ND, other_ND = (gather(self.teacher(images_BCHW)) for images_BCHW in images)
        loss = self._contrast(first_BD, other_ND) + self._contrast(second_BD, target_ND)
        output = output_of({"contrast": loss}, spread=spread(target_ND))
        return self.prediction.add_to(output, both, inputs)

    def _contrast(self, query_BD: Tensor, key_ND: Tensor) -> Tensor:
        """One direction; the keys are those of all processes, in the order of their ranks."""
        query_BD, key_ND = F.normalize(query_BD, dim=1), F.normalize(key_ND, dim=1)
        cosine_BN, count = product(query_BD, key_ND.T), len(query_BD)
        own_B = torch.arange(count, device=query_BD.device) + rank() * count
        positive_B = cosine_BN.gather(1, own_B[:, None]).squeeze(1)
        negative_BN = cosine_BN.scatter(1, own_B[:, None], -torch.inf)
        temperature = self.config.temperature
        return 2 * temperature * contrast(positive_B, negative_BN, temperature)
