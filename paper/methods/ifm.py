"""IFM: MoCo v2 with a second contrast, of features that are modified so that it is hardest.

Shapes: B images of this process, N negatives.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mast.core.arguments import checked
from mast.losses import contrast
from mast.losses.precision import full
from mast.methods.base import PairMethod
from mast.methods.moco import MoCoConfig, contrast_with_queue
from mast.methods.parts import HostInputs, Images, Queue, Teacher


@dataclass
class IFMConfig(MoCoConfig):
    """The contrasts of MoCo v2 with implicit feature modification.

    Attributes:
        hardness: By how much similarities move in the second contrast, which weighs as much.
    """

    limits: ClassVar = {"hardness": "[0, inf)"}
    hardness: float = 0.1


class IFM(PairMethod):
    """Robinson et al.: Can Contrastive Learning Avoid Shortcut Solutions? (NeurIPS 2021)."""

    config: IFMConfig
    shape: ClassVar = {"layers": 2, "inner_norm": False, "bias": True}

    def build(self) -> None:
        super().build()
        config = self.config
        self.teacher = Teacher(self.encoder, self.projector, config.momentum, rises=False)
        self.queue = Queue(config.queue, config.projector.dim, self.seed)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "contrast"."""
        return contrast_with_queue(self, images, inputs, self._loss)

    def _loss(self, positive_B: Tensor, negative_BN: Tensor, temperature: float) -> Tensor:
        return hardened_contrast(positive_B, negative_BN, temperature, self.config.hardness, 1.0)


@checked
def hardened_contrast(
    positive_B: Tensor, negative_BN: Tensor, temperature: float, epsilon: float, weight: float
) -> Tensor:
    """`contrast`, and the same where features are modified so that it is hardest.

    Args:
        positive_B: As `contrast`, and `negative_BN` and `temperature`.
        epsilon: By how much the features of positives move away and those of negatives nearer.
        weight: Weight of the second loss relative to the first.

    Returns:
        Scalar, the weighted mean of both.

    Reference:
        Implicit Feature Modification (Robinson et al., NeurIPS 2021), Eq. 3 and 5: the optimum
        moves every similarity by epsilon.
    """
    plain = contrast(positive_B, negative_BN, temperature)
    if not weight:
        return plain
    hard = contrast(full(positive_B) - epsilon, full(negative_BN) + epsilon, temperature)
    return (plain + weight * hard) / (1 + weight)
