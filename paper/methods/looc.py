"""LooC: a head that is invariant to all augmentations, and one that preserves each property.

Shapes: B images of this process, H heads, D dimensions of an embedding, N keys of a queue.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.augment import Preset
from mast.core.collectives import gather
from mast.core.errors import UserError
from mast.losses import contrast
from mast.losses.precision import product
from mast.methods.base import Method, MethodConfig, output_of, spread
from mast.methods.parts import HostInputs, Images, Queue, Teacher, changing, check_properties
from mast.models import MLP, MLPConfig


@dataclass
class LooCConfig(MethodConfig):
    """The heads of LooC.

    Attributes:
        preserved: Properties of an image, each preserved by a head of its own; the views have to
            share the operators that change them, in this order (`--views looc`).
        queue: Embeddings of earlier images that are negatives, of each head.
    """

    needs_whole_batch = "its queues would take in each part of the batch before the next"

    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    preserved: tuple[str, ...] = ("color", "orientation")
    temperature: float = 0.2
    momentum: float = 0.999
    queue: int = 65536

    def check(self) -> None:
        super().check()
        check_properties(self.preserved)

    def check_views(self, preset: Preset) -> None:
        shared = [view.shares for view in preset.views[2:]]
        wanted = [changing(preset.operators, (name,)) for name in self.preserved]
        if len(preset.views) < 2 or shared != wanted or () in wanted:
            raise UserError(
                f"LooC that preserves {', '.join(self.preserved)} needs views that share the "
                f"operators which change each of these, {wanted}, and these views share {shared}; "
                "the preset looc is for color and orientation"
            )


class ParallelHeads(nn.Module):
    """`count` projectors of MoCo's kind side by side."""

    def __init__(self, features: int, config: MLPConfig, count: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            MLP(features, config, layers=2, inner_norm=False, bias=True) for _ in range(count)
        )

    def forward(self, representation_BC: Tensor) -> Tensor:
        """Embeddings of unit length, (B, count, D)."""
        embeddings = [head(representation_BC) for head in self.heads]
        return F.normalize(torch.stack(embeddings, dim=1), dim=2)

    def hidden(self, representation_BC: Tensor) -> Tensor:
        """What the hidden layers of all heads say, behind their ReLU, side by side in float32."""
        layers = [head.trunk(representation_BC) for head in self.heads]  # type: ignore[operator]
        return torch.cat(layers, dim=1).float()


class LooC(Method):
    """Xiao, Wang, Efros, Darrell: What Should Not Be Contrastive (ICLR 2021).

    There is no official code; this is MoCo v2 with the heads of the paper's Eq. 2. The first view
    is the query; the second is drawn independently, and each further one shares with the query the
    decisions of the operators that change one property. To the head of that property only this
    view is positive, and the other views of the image are negative.
    """

    config: LooCConfig
    projector: ParallelHeads

    def build(self) -> None:
        config = self.config
        count = 1 + len(config.preserved)
        self.projector = ParallelHeads(self.encoder.dim, config.projector, count)
        self.teacher = Teacher(self.encoder, self.projector, config.momentum, rises=False)
        self.queues = nn.ModuleList(
            Queue(config.queue, config.projector.dim, self.seed + head) for head in range(count)
        )

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """A term a head: "invariant", and "keeps_<property>"."""
        names = ("invariant", *(f"keeps_{name}" for name in self.config.preserved))
        query, *keys = images
        query_BHD = self.projector(self.encoder(query))
        key_VBHD = torch.stack([self.teacher(images_BCHW) for images_BCHW in keys])
        terms = {}
        for head, name in enumerate(names):
            cosine_BV = (query_BHD[:, head] * key_VBHD[:, :, head]).sum(dim=2).T
            queue = self.queues[head]
            assert isinstance(queue, Queue)
            queued_BN = product(query_BHD[:, head], queue.key_ND.clone().T)
            others = (cosine_BV[:, :head], cosine_BV[:, head + 1 :]) if head else ()
            negative = torch.cat([*others, queued_BN], dim=1)
            loss = contrast(cosine_BV[:, head], negative, self.config.temperature)
            terms[name] = loss / len(names)
            newest = gather(key_VBHD[head, :, head])
            queue.push(newest)
            if not head:
                spread_of_keys = spread(newest)
        return output_of(terms, spread=spread_of_keys)

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """All heads side by side, (B, H D)."""
        embedding_BHD: Tensor = self.projector(self.encoder(images_BCHW))
        return embedding_BHD.flatten(1)

    def ensemble(self, images_BCHW: Tensor) -> Tensor:
        """LooC++ of the paper: the first layers of all heads side by side, behind their ReLU."""
        return self.projector.hidden(self.encoder(images_BCHW))
