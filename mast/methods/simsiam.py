"""SimSiam: a predictor of the other view's embedding, through which no gradient returns."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from mast.core.collectives import gather
from mast.losses import negative_cosine
from mast.methods.base import at_least, bounded, limited, output_of, spread
from mast.methods.pair import PairConfig, PairMethod
from mast.models import MLP, Encoder, MLPConfig


@dataclass
class SimSiamConfig(PairConfig):
    """The networks of SimSiam.

    Attributes:
        projector_layers: Linear layers of the projector: 3, or 2 as the paper has them for CIFAR.
        bottleneck: Width of the predictor's hidden layer.
        steady_predictor: Whether the predictor's rate stays at its peak.
    """

    limits = limited(projector_layers=bounded(2), bottleneck=at_least(1))
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 2048))
    projector_layers: int = 3
    bottleneck: int = 512
    steady_predictor: bool = True


class SimSiam(PairMethod):
    """Chen, He: Exploring Simple Siamese Representation Learning (CVPR 2021)."""

    config: SimSiamConfig

    def __init__(
        self, config: SimSiamConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        dim, layers = config.projector.dim, config.projector_layers
        self.projector = MLP(encoder.dim, config.projector, layers=layers, last_norm="plain")
        self.predictor = MLP(dim, MLPConfig(config.bottleneck, dim), layers=2, bias=True)
        self.steady = ("predictor.",) if config.steady_predictor else ()

    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """One term, "cosine"."""
        first_BD, second_BD = (self.projector(x_BC) for x_BC in representations)
        first_told = negative_cosine(self.predictor(second_BD), first_BD.detach())
        second_told = negative_cosine(self.predictor(first_BD), second_BD.detach())
        loss = (first_told + second_told) / 2
        return output_of({"cosine": loss}, spread=spread(gather(first_BD.detach())))
