"""CLSA: MoCo v2, and from a strong view of an image what a weak one gives of all keys.

Shapes: B images of this process, G of all processes, N keys of the queue, M = G + N keys in all,
D dimensions of the embedding.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.arguments import checked
from mast.core.collectives import gather, rank
from mast.losses import soft_cross_entropy
from mast.losses.precision import product, tempered
from mast.methods.base import Method, MethodConfig, output_of, spread
from mast.methods.parts import HostInputs, Images, Queue, Teacher
from mast.models import MLP, MLPConfig


@dataclass
class CLSAConfig(MethodConfig):
    """The two terms of CLSA. The momentum stays as it is."""

    needs_whole_batch = "its queue would take in each part of the batch before the next"

    takes = (3, 3)
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    temperature: float = 0.2
    momentum: float = 0.999
    queue: int = 65536


class CLSA(Method):
    """Wang, Qi: Contrastive Learning with Stronger Augmentations (2021).

    The first view is the weak query, the second its key, the third the strong query. In the
    official code the keys of the other images of the batch are negatives beside the queue, and the
    distribution is over all of them; in the paper it is over one key and the queue. Here it is as
    in the code. BatchNorm is synchronised as in MoCo v2.
    """

    config: CLSAConfig
    unit_length = True

    def build(self) -> None:
        config = self.config
        self.projector = MLP(
            self.encoder.dim, config.projector, layers=2, inner_norm=False, bias=True
        )
        self.teacher = Teacher(self.encoder, self.projector, config.momentum, rises=False)
        self.queue = Queue(config.queue, config.projector.dim, self.seed)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """Two terms of one weight, "contrast" and "strong"."""
        query, key, strong = images
        temperature = self.config.temperature
        newest_GD = gather(F.normalize(self.teacher(key), dim=1))
        key_MD = torch.cat([newest_GD, self.queue.key_ND])
        weak_BM, strong_BM = (
            product(self.embed(view_BCHW), key_MD.T) for view_BCHW in (query, strong)
        )
        own_B = torch.arange(len(key), device=key.device) + rank() * len(key)
        terms = {
            "contrast": F.cross_entropy(weak_BM / temperature, own_B),
            "strong": distributional_divergence(weak_BM, strong_BM, temperature),
        }
        self.queue.push(newest_GD)
        return output_of(terms, spread=spread(newest_GD))


@checked
def distributional_divergence(weak_BN: Tensor, strong_BN: Tensor, temperature: float) -> Tensor:
    """How little a strong view is among its keys where a weak view of the same image is.

    Args:
        weak_BN: Similarities of the weak view of each sample to all its keys, the positive one
            among them, shape (B, N). They are a target: no gradient reaches them.
        strong_BN: Those of its strong view to the same keys.
        temperature: By which both are divided.

    Returns:
        Scalar, the mean cross-entropy `-sum_n p_n log q_n` of the softmaxes p of the weak view's
        and q of the strong view's similarities.

    Reference:
        CLSA (Wang, Qi, 2021), "distributional divergence minimization".
    """
    target_BN = tempered(weak_BN.detach(), temperature).softmax(dim=1)
    return soft_cross_entropy(strong_BN, target_BN, temperature)
