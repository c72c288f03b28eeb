"""SimCLR: the other view of an image among all other images of the batch."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from mast.core.collectives import gather
from mast.losses import nt_xent
from mast.methods.base import NEGATIVES, PairConfig, PairMethod, output_of, spread
from mast.methods.parts import HostInputs, Images
from mast.models import MLPConfig


@dataclass
class SimCLRConfig(PairConfig):
    """The contrast of SimCLR."""

    needs_whole_batch = NEGATIVES

    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    temperature: float = 0.1


class SimCLR(PairMethod):
    """Chen, Kornblith, Norouzi, Hinton: A Simple Framework for Contrastive Learning (ICML 2020)."""

    config: SimCLRConfig
    shape: ClassVar = {"layers": 2, "last_norm": "affine"}

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "contrast"."""
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        first_BD, second_BD = (gather(self.projector(x_BC)) for x_BC in both)
        loss = nt_xent(first_BD, second_BD, self.config.temperature)
        output = output_of({"contrast": loss}, spread=spread(first_BD))
        return self.prediction.add_to(output, both, inputs)
