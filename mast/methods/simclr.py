"""SimCLR: the other view of an image among all other images of the batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from mast.core.collectives import gather
from mast.losses import nt_xent
from mast.methods.base import ABOVE_ZERO, limited, output_of, spread
from mast.methods.pair import PairConfig, PairMethod
from mast.models import MLP, Encoder, MLPConfig


@dataclass
class SimCLRConfig(PairConfig):
    """The contrast of SimCLR.

    Attributes:
        temperature: By which cosines are divided.
    """

    limits = limited(temperature=ABOVE_ZERO)
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    temperature: float = 0.1


class SimCLR(PairMethod):
    """Chen, Kornblith, Norouzi, Hinton: A Simple Framework for Contrastive Learning (ICML 2020)."""

    config: SimCLRConfig
    needs_whole_batch = "its negatives are the other images of the batch"

    def __init__(
        self, config: SimCLRConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.projector = MLP(encoder.dim, config.projector, layers=2, last_norm="affine")

    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """One term, "contrast"."""
        first_BD, second_BD = (gather(self.projector(x_BC)) for x_BC in representations)
        loss = nt_xent(first_BD, second_BD, self.config.temperature)
        return output_of({"contrast": loss}, spread=spread(first_BD))
