"""MoCo: the other view of an image among the embeddings of earlier ones, by a teacher.

Version 2 has a queue of them, version 3 takes the other images of the batch and has a predictor.

Shapes: B images of this process, D dimensions of the embedding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.collectives import gather, rank
from mast.core.errors import UserError
from mast.losses import contrast, hardened_contrast
from mast.losses.precision import product
from mast.methods.base import check_above_zero, output_of, spread
from mast.methods.taught import TaughtConfig, TaughtMethod
from mast.models import MLP, Encoder, MLPConfig, Queue


@dataclass
class MoCoConfig(TaughtConfig):
    """The contrast of MoCo v2. The momentum stays as it is.

    Attributes:
        temperature: By which cosines are divided.
        queue: Embeddings of earlier images that are negatives.
        hardness: By how much IFM (Robinson et al., NeurIPS 2021) moves similarities in a second
            loss of the same weight; 0 is MoCo v2 itself.
    """

    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    temperature: float = 0.2
    momentum: float = 0.999
    queue: int = 65536
    hardness: float = 0.0

    def check(self) -> None:
        """See `MethodConfig.check`."""
        super().check()
        check_above_zero(self, "temperature")
        if self.queue < 1:
            raise UserError(f"objective.queue must be 1 or more, got {self.queue}")
        if not 0 <= self.hardness < math.inf:
            raise UserError(f"objective.hardness must be 0 or more, got {self.hardness}")


class MoCo(TaughtMethod):
    """Chen, Fan, Girshick, He: Improved Baselines with Momentum Contrastive Learning (2020).

    Only the first view is encoded with a gradient, as in the official code. BatchNorm is
    synchronised between processes, where that code shuffles the images of each.

    Args:
        config: The contrast.
        encoder: The encoder to train.
        operators: Names of the augmentations.
        seed: Of what is in the queue at the start.
    """

    config: MoCoConfig
    encoded = 1
    needs_whole_batch = "its queue would take in each part of the batch before the next"

    def __init__(
        self, config: MoCoConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        projector = MLP(encoder.dim, config.projector, layers=2, inner_norm=False, bias=True)
        super().__init__(config, encoder, projector, operators, seed)
        self.queue = Queue(config.queue, config.projector.dim, seed)

    def momentum(self, progress: float) -> float:
        """Constant."""
        return self.config.momentum

    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """See `PairMethod.compare`; one term, "contrast"."""
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


@dataclass
class MoCoV3Config(TaughtConfig):
    """The contrast of MoCo v3; the predictor has the projector's sizes. The momentum rises.

    Attributes:
        projector_layers: Linear layers of the projector: 2 over a ResNet, 3 over a ViT.
        temperature: By which cosines are divided.
    """

    projector: MLPConfig = field(default_factory=lambda: MLPConfig(4096, 256))
    projector_layers: int = 2
    temperature: float = 1.0

    def check(self) -> None:
        """See `MethodConfig.check`."""
        super().check()
        check_above_zero(self, "temperature")


class MoCoV3(TaughtMethod):
    """Chen, Xie, He: An Empirical Study of Training Self-Supervised Vision Transformers (2021).

    Args:
        config: The contrast.
        encoder: The encoder to train.
        operators: Names of the augmentations.
        seed: Unused, all randomness of this method is in the initialisation of its layers.
    """

    config: MoCoV3Config
    needs_whole_batch = "its negatives are the other images of the batch"

    def __init__(
        self, config: MoCoV3Config, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        layers, sizes = config.projector_layers, config.projector
        projector = MLP(encoder.dim, sizes, layers=layers, last_norm="plain")
        super().__init__(config, encoder, projector, operators, seed)
        self.predictor = MLP(sizes.dim, sizes, layers=2, last_norm="plain")

    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """See `PairMethod.compare`; one term, "contrast", the sum of both directions."""
        first_BD, second_BD = (self.predictor(self.projector(x_BC)) for x_BC in representations)
        target_ND, other_ND = (gather(self.teacher(images_BCHW)) for images_BCHW in images)
        loss = self._contrast(first_BD, other_ND) + self._contrast(second_BD, target_ND)
        return output_of({"contrast": loss}, spread=spread(target_ND))

    def _contrast(self, query_BD: Tensor, key_ND: Tensor) -> Tensor:
        """One direction; the keys are those of all processes, in the order of their ranks."""
        query_BD, key_ND = F.normalize(query_BD, dim=1), F.normalize(key_ND, dim=1)
        cosine_BN, count = product(query_BD, key_ND.T), len(query_BD)
        own_B = torch.arange(count, device=query_BD.device) + rank() * count
        positive_B = cosine_BN.gather(1, own_B[:, None]).squeeze(1)
        negative_BN = cosine_BN.scatter(1, own_B[:, None], -torch.inf)
        temperature = self.config.temperature
        return 2 * temperature * contrast(positive_B, negative_BN, temperature)
