"""MoCo v2: the other view of an image, by a teacher, among a queue of earlier ones.

Shapes: B images of this process, N keys of the queue, D dimensions of the embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.collectives import gather
from mast.losses import hardened_contrast
from mast.losses.precision import product
from mast.methods.base import ABOVE_ZERO, NOT_NEGATIVE, at_least, limited, output_of, spread
from mast.methods.pair import PairConfig, PairMethod
from mast.methods.taught import TaughtConfig, TaughtMethod
from mast.models import MLP, Encoder, MLPConfig, Queue, Teacher


@dataclass
class MoCoConfig(TaughtConfig, PairConfig):
    """The contrast of MoCo v2. The momentum stays as it is.

    Attributes:
        temperature: By which cosines are divided.
        queue: Embeddings of earlier images that are negatives.
        hardness: By how much IFM (Robinson et al., NeurIPS 2021) moves similarities in a second
            loss of the same weight; 0 is MoCo v2 itself.
    """

    limits = limited(temperature=ABOVE_ZERO, queue=at_least(1), hardness=NOT_NEGATIVE)
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    temperature: float = 0.2
    momentum: float = 0.999
    queue: int = 65536
    hardness: float = 0.0


class MoCo(TaughtMethod, PairMethod):
    """Chen, Fan, Girshick, He: Improved Baselines with Momentum Contrastive Learning (2020).

    Only the first view is encoded with a gradient, as in the official code. BatchNorm is
    synchronised between processes, where that code shuffles the images of each so that a query and
    its key do not share statistics.
    """

    config: MoCoConfig
    encoded = 1
    momentum_rises = False
    needs_whole_batch = "its queue would take in each part of the batch before the next"

    def __init__(
        self, config: MoCoConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.projector = MLP(encoder.dim, config.projector, layers=2, inner_norm=False, bias=True)
        self.teacher = Teacher(encoder, self.projector)
        self.queue = Queue(config.queue, config.projector.dim, seed)

    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """One term, "contrast"."""
        query_BD = F.normalize(self.projector(representations[0]), dim=1)
        key_BD = F.normalize(self.teacher(images[1]), dim=1)
        positive_B = (query_BD * key_BD).sum(dim=1)
        negative_BN = product(query_BD, self.queue.key_ND.clone().T)  # a push changes the queue
        config = self.config
        weight = float(config.hardness > 0)
        loss = hardened_contrast(
            positive_B, negative_BN, config.temperature, config.hardness, weight
        )
        keys = gather(key_BD)
        self.queue.push(keys)
        return output_of({"contrast": loss}, spread=spread(keys))
