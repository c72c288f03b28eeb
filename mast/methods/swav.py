"""SwAV: from one view the prototypes to which another one is assigned.

Shapes: B images of this process, G of all processes, C dimensions of the representation, D of the
embedding, P prototypes, V views.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.collectives import gather, rank
from mast.losses import cross_view_entropy, sinkhorn
from mast.methods.base import TWO_OR_MORE, Method, MethodConfig, output_of, spread
from mast.methods.parts import HostInputs, Images, Prototypes, encode_by_size
from mast.models import MLP, MLPConfig

ASSIGNED = 2  # views, the first, are assigned; all others predict that
EPSILON, ITERATIONS = 0.05, 3  # the weight of the assignments' entropy, and of Sinkhorn and Knopp


@dataclass
class SwAVConfig(MethodConfig):
    """The assignments of SwAV.

    Attributes:
        prototypes: P.
        frozen: Share of the run at its start in which the prototypes stay as they are.
    """

    needs_whole_batch = "its batch is assigned to the prototypes as a whole"

    takes = TWO_OR_MORE
    limits: ClassVar = {"frozen": "[0, 1]", "prototypes": "[2, inf)"}
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    prototypes: int = 3000
    temperature: float = 0.1
    frozen: float = 0.0025


class SwAV(Method):
    """Caron et al.: Unsupervised Learning by Contrasting Cluster Assignments (NeurIPS 2020).

    The first two views are assigned, each is predicted from all other views. As in the official
    code, views of one size are encoded together, and all views projected together. Its queue of
    earlier images, for batches below 256, is left out.
    """

    config: SwAVConfig
    unit_length = True

    def build(self) -> None:
        config = self.config
        self.projector = MLP(self.encoder.dim, config.projector, layers=2, bias=True)
        self.prototypes = Prototypes(config.projector.dim, config.prototypes, config.frozen)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "assignment"."""
        encoded = encode_by_size(self.encoder, images)
        embeddings = F.normalize(self.projector(encoded), dim=1).chunk(len(images))
        scores = [self.prototypes(embedding_BD) for embedding_BD in embeddings]
        targets = [self._assignment(each.detach()) for each in embeddings[:ASSIGNED]]
        loss = cross_view_entropy(scores, targets, self.config.temperature)
        statistics = {"spread": spread(gather(embeddings[0].detach()))}
        return output_of({"assignment": loss}, **statistics)

    @torch.no_grad()
    def _assignment(self, embedding_BD: Tensor) -> Tensor:
        """Of this process's images to the prototypes, made for those of all processes together."""
        count = len(embedding_BD)
        share_GP = sinkhorn(self.prototypes(gather(embedding_BD)), EPSILON, ITERATIONS)
        return share_GP[rank() * count : (rank() + 1) * count]
