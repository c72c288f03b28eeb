"""SimSiam: a predictor of the other view's embedding, through which no gradient returns."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from mast.core.collectives import gather
from mast.losses import negative_cosine
from mast.methods.base import PairConfig, PairMethod, output_of, spread
from mast.methods.parts import HostInputs, Images
from mast.models import MLP, MLPConfig


@dataclass
class SimSiamConfig(PairConfig):
    """The networks of SimSiam.

    Attributes:
        bottleneck: Width of the predictor's hidden layer.
    """

    limits: ClassVar = {"bottleneck": "[1, inf)"}
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 2048))
    bottleneck: int = 512


class SimSiam(PairMethod):
    """Chen, He: Exploring Simple Siamese Representation Learning (CVPR 2021)."""

    config: SimSiamConfig
    shape: ClassVar = {"last_norm": "plain"}
    steady = ("predictor.",)

    def build(self) -> None:
        super().build()
        dim = self.config.projector.dim
        self.predictor = MLP(dim, MLPConfig(self.config.bottleneck, dim), layers=2, bias=True)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "cosine"."""
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        first_BD, second_BD = (self.projector(x_BC) for x_BC in both)
        of_first = negative_cosine(self.predictor(second_BD), first_BD.detach())
        of_second = negative_cosine(self.predictor(first_BD), second_BD.detach())
        loss = (of_first + of_second) / 2
        output = output_of({"cosine": loss}, spread=spread(gather(first_BD.detach())))
        return self.prediction.add_to(output, both, inputs)
