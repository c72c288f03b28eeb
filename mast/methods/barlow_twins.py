"""Barlow Twins: dimensions that agree between the views and are uncorrelated with each other."""

from dataclasses import dataclass, field

from torch import Tensor

from mast.core.collectives import gather
from mast.losses import redundancy
from mast.methods.base import PairConfig, PairMethod, output_of, spread
from mast.methods.parts import HostInputs, Images
from mast.models import MLPConfig

REDUNDANCY = 0.0051  # weight of a pair of dimensions relative to a single one
# Of the whole loss: it does to biases, which share the rate of weights as in the first official
# code, what that code does today with a rate of their own.
SCALE = 0.024


@dataclass
class BarlowTwinsConfig(PairConfig):
    """The loss of Barlow Twins."""

    projector: MLPConfig = field(default_factory=lambda: MLPConfig(8192, 8192))


class BarlowTwins(PairMethod):
    """Zbontar, Jing, Misra, LeCun, Deny: Barlow Twins (ICML 2021)."""

    config: BarlowTwinsConfig

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """The terms "invariance" and "redundancy"."""
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        first_BD, second_BD = (gather(self.projector(x_BC)) for x_BC in both)
        diagonal, others = redundancy(first_BD, second_BD)
        terms = {"invariance": SCALE * diagonal, "redundancy": SCALE * REDUNDANCY * others}
        output = output_of(terms, spread=spread(first_BD))
        return self.prediction.add_to(output, both, inputs)
