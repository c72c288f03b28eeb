"""A network that follows another: the momentum encoder of BYOL, MoCo and DINO."""

import copy
import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import get_ema_multi_avg_fn

from mast.models.encoders import Encoder


class Teacher(nn.Module):
    """A moving average of an encoder and its projector, without gradients.

    Averaged are parameters; BatchNorm's statistics are its own, and in training mode those of the
    batch, as in the official code of all three methods. All else is as in evaluation: nothing is
    dropped.

    Args:
        encoder: Which it starts as.
        projector: From its representation to embeddings; likewise.
    """

    def __init__(self, encoder: Encoder, projector: nn.Module) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.projector = copy.deepcopy(projector)
        self.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """See `nn.Module.train`; BatchNorm alone is ever in training mode."""
        super().train(False)
        self.encoder.training = mode  # the images are those of training, whose range is known
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.train(mode)
        return self

    @torch.no_grad()
    def start(self, encoder: Encoder, projector: nn.Module) -> None:
        """Become the student, with its BatchNorm's statistics."""
        self.encoder.load_state_dict(encoder.state_dict())
        self.projector.load_state_dict(projector.state_dict())

    @torch.no_grad()
    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Embeddings (B, D)."""
        embedding_BD: Tensor = self.projector(self.encoder(images_BCHW))
        return embedding_BD

    @torch.no_grad()
    def follow(self, encoder: Encoder, projector: nn.Module, momentum: float) -> None:
        """Move towards the student.

        Args:
            encoder: The student's.
            projector: The student's.
            momentum: How much of the teacher stays, in [0, 1].
        """
        student = [*encoder.parameters(), *projector.parameters()]
        own = [*self.encoder.parameters(), *self.projector.parameters()]
        get_ema_multi_avg_fn(momentum)(own, student, None)


def rising(momentum: float, progress: float) -> float:
    """A momentum that rises to one over a run, by a half cosine.

    Args:
        momentum: At the start.
        progress: Share of the run that is done.

    Reference:
        BYOL, section 3.3 ("tau = 1 - (1 - tau_base) (cos(pi k / K) + 1) / 2").
    """
    return 1 - (1 - momentum) * (1 + math.cos(math.pi * progress)) / 2
