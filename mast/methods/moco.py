"""MoCo v2: the other view of an image, by a teacher, among a queue of earlier ones.

Shapes: B images of this process, N keys of the queue, C dimensions of the representation, D of the
embedding.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.collectives import gather
from mast.losses import contrast
from mast.losses.precision import product
from mast.methods.base import PairConfig, PairMethod, output_of, spread
from mast.methods.parts import HostInputs, Images, Queue, Teacher
from mast.models import MLPConfig


@dataclass
class MoCoConfig(PairConfig):
    """The contrast of MoCo v2. The momentum stays as it is."""

    needs_whole_batch = "its queue would take in each part of the batch before the next"

    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    temperature: float = 0.2
    momentum: float = 0.999
    queue: int = 65536


class MoCo(PairMethod):
    """Chen, Fan, Girshick, He: Improved Baselines with Momentum Contrastive Learning (2020).

    Only the first view is encoded with a gradient, as in the official code. BatchNorm is
    synchronised between processes, where that code shuffles the images of each so that a query and
    its key do not share statistics.
    """

    config: MoCoConfig
    shape: ClassVar = {"layers": 2, "inner_norm": False, "bias": True}

    def build(self) -> None:
        super().build()
        config = self.config
        self.teacher = Teacher(self.encoder, self.projector, config.momentum, rises=False)
        self.queue = Queue(config.queue, config.projector.dim, self.seed)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "contrast"."""
        return contrast_with_queue(self, images, inputs)


def contrast_with_queue(
    method: Any, images: Images, inputs: HostInputs, loss_of: Callable[..., Tensor] = contrast
) -> dict[str, Tensor]:
    """The step of MoCo v2, of a method that holds its parts; `loss_of` is called as `contrast`."""
    queue = method.queue
    encoded = images if method.prediction.heads else images[:1]
    representations = [method.encoder(images_BCHW) for images_BCHW in encoded]
    query_BD = F.normalize(method.projector(representations[0]), dim=1)
    key_BD = F.normalize(method.teacher(images[1]), dim=1)
    positive_B = (query_BD * key_BD).sum(dim=1)
    negative_BN = product(query_BD, queue.key_ND.clone().T)  # a push changes the queue
    loss = loss_of(positive_B, negative_BN, method.config.temperature)
    keys = gather(key_BD)
    queue.push(keys)
    output = output_of({"contrast": loss}, spread=spread(keys))
    if len(representations) == 1:
        return output
    added: dict[str, Tensor] = method.prediction.add_to(output, representations, inputs)
    return added
