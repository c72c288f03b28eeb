"""What methods share whose loss is over the output of one projector.

Shapes: B images, D dimensions of the embedding.
"""

from dataclasses import dataclass, field

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.methods.base import DirectionalMethod, MethodConfig
from mast.models import MLPConfig, check_sizes


@dataclass
class ProjectedConfig(MethodConfig):
    """A projector.

    Attributes:
        projector: Its sizes.
    """

    projector: MLPConfig = field(default_factory=MLPConfig)

    def check(self) -> None:
        """See `MethodConfig.check`."""
        super().check()
        check_sizes(self.projector)


class ProjectedMethod(DirectionalMethod):
    """A method with a projector behind the encoder.

    Attributes:
        projector: From a representation to the embedding.
        unit: Whether the embedding is of unit length where it is asked for.
    """

    projector: nn.Module
    unit: bool = True

    def compile_parts(self) -> None:
        """The encoder and the projector."""
        super().compile_parts()
        self.projector.compile()

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """The projector's output."""
        embedding_BD: Tensor = self.projector(self.encoder(images_BCHW))
        return F.normalize(embedding_BD, dim=1) if self.unit else embedding_BD
