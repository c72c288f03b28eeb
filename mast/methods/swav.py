"""SwAV: from one view the prototypes to which another one is assigned.

Shapes: B images of this process, G of all processes, C dimensions of the representation, D of the
embedding, P prototypes, V views.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.core.collectives import gather, rank
from mast.losses import sinkhorn, told_by_others
from mast.methods.base import (
    ABOVE_ZERO,
    SHARE,
    TWO_OR_MORE,
    Given,
    Images,
    at_least,
    bounded,
    limited,
    output_of,
    spread,
)
from mast.methods.projected import ProjectedConfig, ProjectedMethod, together
from mast.models import MLP, Encoder, MLPConfig, Prototypes, Queue

ASSIGNED = 2  # views, the first, are assigned; all others predict that


@dataclass
class SwAVConfig(ProjectedConfig):
    """The assignments of SwAV.

    Attributes:
        prototypes: P.
        temperature: By which cosines are divided where an assignment is predicted.
        epsilon: Weight of the assignments' entropy.
        iterations: Of Sinkhorn and Knopp's algorithm.
        frozen: Share of the run at its start in which the prototypes stay as they are.
        queue: Embeddings of earlier images that are assigned together with a batch; 0 for none.
        queue_from: Share of the run from which they are.
    """

    takes = TWO_OR_MORE
    limits = limited(
        temperature=ABOVE_ZERO, epsilon=ABOVE_ZERO, frozen=SHARE, queue_from=SHARE,
        prototypes=at_least(2), iterations=bounded(1), queue=at_least(0),
    )  # fmt: skip
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    prototypes: int = 3000
    temperature: float = 0.1
    epsilon: float = 0.05
    iterations: int = 3
    frozen: float = 0.0025
    queue: int = 0
    queue_from: float = 0.15


class SwAV(ProjectedMethod):
    """Caron et al.: Unsupervised Learning by Contrasting Cluster Assignments (NeurIPS 2020).

    The first two views are assigned, each is predicted from all other views. As in the official
    code, views of one size are encoded together, and all views projected together.
    """

    config: SwAVConfig
    needs_whole_batch = "its batch is assigned to the prototypes as a whole"

    def __init__(
        self, config: SwAVConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.projector = MLP(encoder.dim, config.projector, layers=2, bias=True)
        self.prototypes = Prototypes(config.projector.dim, config.prototypes)
        self.queues = nn.ModuleList(
            Queue(config.queue, config.projector.dim, seed + view)
            for view in range(ASSIGNED if config.queue else 0)
        )

    def frozen(self, progress: float) -> Iterable[nn.Parameter]:
        """The prototypes, at first."""
        return self.prototypes.parameters() if progress < self.config.frozen else ()

    def phase(self, progress: float) -> bool:
        """Whether the queue is assigned."""
        return bool(self.queues) and progress >= self.config.queue_from

    def step(self, images: Images, given: Given, phase: Any) -> dict[str, Tensor]:
        """One term, "assignment"."""
        encoded = together(self.encoder, images)
        embeddings = F.normalize(self.projector(encoded), dim=1).chunk(len(images))
        scores = [self.prototypes(embedding_BD) for embedding_BD in embeddings]
        targets = [
            self._assignment(view, embedding_BD.detach(), phase)
            for view, embedding_BD in enumerate(embeddings[:ASSIGNED])
        ]
        loss = told_by_others(scores, targets, self.config.temperature)
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

    def after_step(self, progress: float) -> None:
        """Prototypes keep unit length."""
        self.prototypes.project()
