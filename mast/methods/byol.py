"""BYOL: a predictor of what a teacher, the student's moving average, gives of the other view."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from mast.core.collectives import gather
from mast.losses import negative_cosine
from mast.methods.base import PairConfig, PairMethod, output_of, spread
from mast.methods.parts import HostInputs, Images, Teacher
from mast.models import MLP, MLPConfig


@dataclass
class BYOLConfig(PairConfig):
    """The networks of BYOL; the predictor has the projector's sizes. The momentum rises."""

    projector: MLPConfig = field(default_factory=lambda: MLPConfig(4096, 256))
    momentum: float = 0.99


class BYOL(PairMethod):
    """Grill et al.: Bootstrap Your Own Latent (NeurIPS 2020)."""

    config: BYOLConfig
    shape: ClassVar = {"layers": 2}

    def build(self) -> None:
        super().build()
        config = self.config
        self.teacher = Teacher(self.encoder, self.projector, config.momentum)
        self.predictor = MLP(config.projector.dim, config.projector, layers=2)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "distance", of unit vectors (Eq. 2 and 3)."""
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        first_BD, second_BD = (self.predictor(self.projector(x_BC)) for x_BC in both)
        target_BD, other_BD = (self.teacher(images_BCHW) for images_BCHW in images)
        cosines = negative_cosine(first_BD, other_BD) + negative_cosine(second_BD, target_BD)
        output = output_of({"distance": 4 + 2 * cosines}, spread=spread(gather(target_BD)))
        return self.prediction.add_to(output, both, inputs)
