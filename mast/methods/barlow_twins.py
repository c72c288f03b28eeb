"""Barlow Twins: dimensions that agree between the views and are uncorrelated with each other."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from mast.core.collectives import gather
from mast.losses import redundancy
from mast.methods.base import ABOVE_ZERO, limited, output_of, spread
from mast.methods.pair import PairConfig, PairMethod
from mast.models import MLP, Encoder, MLPConfig


@dataclass
class BarlowTwinsConfig(PairConfig):
    """The loss of Barlow Twins.

    Attributes:
        redundancy_weight: Weight of a pair of dimensions beside that of a single one.
        scale: Of the whole loss; 0.024 with one rate for weights and biases, as the official code
            had it first, does to biases what it does today with a rate of their own.
    """

    limits = limited(redundancy_weight=ABOVE_ZERO, scale=ABOVE_ZERO)
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(8192, 8192))
    redundancy_weight: float = 0.0051
    scale: float = 0.024


class BarlowTwins(PairMethod):
    """Zbontar, Jing, Misra, LeCun, Deny: Barlow Twins (ICML 2021)."""

    config: BarlowTwinsConfig

    def __init__(
        self, config: BarlowTwinsConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.projector = MLP(encoder.dim, config.projector)

    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """The terms "invariance" and "redundancy"."""
        first_BD, second_BD = (gather(self.projector(x_BC)) for x_BC in representations)
        parts, config = redundancy(first_BD, second_BD), self.config
        terms = {
            "invariance": config.scale * parts.invariance,
            "redundancy": config.scale * config.redundancy_weight * parts.redundancy,
        }
        return output_of(terms, spread=spread(first_BD))
