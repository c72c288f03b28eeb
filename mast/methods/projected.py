"""What methods share whose loss is over the output of one projector.

Shapes: B images, V views, C dimensions of the representation, D of the embedding.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.methods.base import Images, Method, MethodConfig
from mast.models import MLPConfig, check_sizes


@dataclass
class ProjectedConfig(MethodConfig):
    """A projector.

    Attributes:
        projector: Its sizes.
    """

    projector: MLPConfig = field(default_factory=MLPConfig)

    def check(self) -> None:
        super().check()
        check_sizes(self.projector)


class ProjectedMethod(Method):
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


def together(network: Callable[[Tensor], Tensor], images: Images) -> Tensor:
    """What a network gives for all views, one after the other, (V B, C).

    Views of one size that follow each other are one batch, and share BatchNorm's statistics.

    Reference:
        `MultiCropWrapper` of DINO's code, and SwAV's before it.
    """
    alike = groupby(images, key=lambda images_BCHW: images_BCHW.shape)
    return torch.cat([network(torch.cat(list(group))) for _, group in alike])
