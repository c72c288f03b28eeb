"""SwAV: from one view the prototypes to which another one is assigned.

Shapes: B images of this process, G of all processes, C dimensions of the representation, D of the
embedding, P prototypes, V views.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.core.collectives import gather, rank
from mast.losses import cross_view_entropy, sinkhorn
from mast.methods.base import TWO_OR_MORE, Method, MethodConfig, output_of, spread
from mast.methods.parts import HostInputs, Images, Prototypes, Queue, encode_by_size
from mast.models import MLP, MLPConfig

ASSIGNED = 2  # views, the first, are assigned; all others predict that
QUEUE_FROM = 0.15  # share of the run from which the queue is assigned, too


@dataclass
class SwAVConfig(MethodConfig):
    """The assignments of SwAV.

    Attributes:
        prototypes: P.
        epsilon: Weight of the assignments' entropy.
        iterations: Of Sinkhorn and Knopp's algorithm.
        frozen: Share of the run at its start in which the prototypes stay as they are.
        queue: Embeddings of earlier images that are assigned together with a batch after 15 % of
            the run; 0 for none.
    """

    needs_whole_batch = "its batch is assigned to the prototypes as a whole"

    takes = TWO_OR_MORE
    limits: ClassVar = {
        "epsilon": "(0, inf)", "frozen": "[0, 1]", "prototypes": "[2, inf)",
        "iterations": "[1, 1000]", "queue": "[0, inf)",
    }  # fmt: skip
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    prototypes: int = 3000
    temperature: float = 0.1
    epsilon: float = 0.05
    iterations: int = 3
    frozen: float = 0.0025
    queue: int = 0


class SwAV(Method):
    """Caron et al.: Unsupervised Learning by Contrasting Cluster Assignments (NeurIPS 2020).

    The first two views are assigned, each is predicted from all other views. As in the official
    code, views of one size are encoded together, and all views projected together.
    """

    config: SwAVConfig
    unit_length = True

    def build(self) -> None:
        config = self.config
        self.projector = MLP(self.encoder.dim, config.projector, layers=2, bias=True)
        self.prototypes = Prototypes(config.projector.dim, config.prototypes, config.frozen)
        self.queues = nn.ModuleList(
            Queue(config.queue, config.projector.dim, self.seed + view)
            for view in range(ASSIGNED if config.queue else 0)
        )

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "assignment"."""
        encoded = encode_by_size(self.encoder, images)
        embeddings = F.normalize(self.projector(encoded), dim=1).chunk(len(images))
        scores = [self.prototypes(embedding_BD) for embedding_BD in embeddings]
        targets = [
            self._assignment(view, embedding_BD.detach(), progress >= QUEUE_FROM)
            for view, embedding_BD in enumerate(embeddings[:ASSIGNED])
        ]
        loss = cross_view_entropy(scores, targets, self.config.temperature)
        statistics = {"spread": spread(gather(embeddings[0].detach()))}
        return output_of({"assignment": loss}, **statistics)

    @torch.no_grad()
    def _assignment(self, view: int, embedding_BD: Tensor, queued: bool) -> Tensor:
        """Of this process's images to the prototypes, made for those of all processes together."""
        config, count = self.config, len(embedding_BD)
        everyone_GD = gather(embedding_BD)
        assigned_GD = everyone_GD
        if self.queues:
            if queued:
                assigned_GD = torch.cat([everyone_GD, self.queues[view].key_ND])  # type: ignore[list-item]
            self.queues[view].push(everyone_GD)  # type: ignore[operator]
        share_GP = sinkhorn(self.prototypes(assigned_GD), config.epsilon, config.iterations)
        return share_GP[rank() * count : (rank() + 1) * count]
