"""BYOL: a predictor of what a teacher, the student's moving average, says of the other view."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from mast.core.collectives import gather
from mast.losses import negative_cosine
from mast.methods.base import output_of, spread
from mast.methods.pair import PairConfig, PairMethod
from mast.methods.taught import TaughtConfig, TaughtMethod
from mast.models import MLP, Encoder, MLPConfig, Teacher


@dataclass
class BYOLConfig(TaughtConfig, PairConfig):
    """The networks of BYOL; the predictor has the projector's sizes. The momentum rises."""

    projector: MLPConfig = field(default_factory=lambda: MLPConfig(4096, 256))


class BYOL(TaughtMethod, PairMethod):
    """Grill et al.: Bootstrap Your Own Latent (NeurIPS 2020)."""

    config: BYOLConfig

    def __init__(
        self, config: BYOLConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.projector = MLP(encoder.dim, config.projector, layers=2)
        self.teacher = Teacher(encoder, self.projector)
        self.predictor = MLP(config.projector.dim, config.projector, layers=2)

    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """One term, "distance", of unit vectors (Eq. 2 and 3)."""
        first_BD, second_BD = (self.predictor(self.projector(x_BC)) for x_BC in representations)
        target_BD, other_BD = (self.teacher(images_BCHW) for images_BCHW in images)
        cosines = negative_cosine(first_BD, other_BD) + negative_cosine(second_BD, target_BD)
        return output_of({"distance": 4 + 2 * cosines}, spread=spread(gather(target_BD)))
