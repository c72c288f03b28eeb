"""DINO: from every view what a teacher gives of another one, a distribution over prototypes.

Shapes: B images of this process, N of all their views, D dimensions of the embedding, P prototypes.
"""

from dataclasses import dataclass, field
from typing import ClassVar, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.augment import Views
from mast.core.collectives import gather
from mast.losses import cross_view_entropy
from mast.methods.base import TWO_OR_MORE, Method, MethodConfig, output_of, spread
from mast.methods.parts import HostInputs, Images, Prototypes, Teacher, encode_by_size
from mast.models import MLP, Encoder, MLPConfig

OF_TEACHER = 2  # views, the first
FIRST_TEMPERATURE = 0.04  # of the teacher
CENTER_MOMENTUM = 0.9  # how much of the teacher's centre stays at a step


@dataclass
class DINOConfig(MethodConfig):
    """The networks and temperatures of DINO. The momentum rises.

    Attributes:
        prototypes: P.
        teacher_temperature: By which the teacher's cosines are divided, after its warm-up.
        warmup: Share of the run in which it rises to that, linearly from 0.04.
        frozen: Share of the run at its start in which the prototypes stay as they are.
    """

    needs_whole_batch = "its centre would move with each part of the batch"

    takes = TWO_OR_MORE
    limits: ClassVar = {
        "teacher_temperature": "(0, inf)",
        "prototypes": "[2, inf)",
        "warmup": "[0, 1]",
        "frozen": "[0, 1]",
    }
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 256))
    prototypes: int = 65536
    temperature: float = 0.1
    teacher_temperature: float = 0.07
    warmup: float = 0.1
    momentum: float = 0.996
    frozen: float = 0.01


class DINO(Method):
    """Caron et al.: Emerging Properties in Self-Supervised Vision Transformers (ICCV 2021).

    The teacher sees the first two views, the student all of them; as in the official code, views of
    one size are encoded together. Prototypes are brought back to unit length after a step, where
    the official code parametrises them so (`norm_last_layer=True`). The teacher is measured and
    saved, as that code evaluates it.
    """

    config: DINOConfig
    center_P: Tensor

    def build(self) -> None:
        config = self.config
        self.projector = MLP(
            self.encoder.dim, config.projector, inner_norm=False, bias=True, activation="gelu"
        )
        self.prototypes = Prototypes(config.projector.dim, config.prototypes, config.frozen)
        head = nn.Sequential(self.projector, self.prototypes)
        self.teacher = Teacher(self.encoder, head, config.momentum)
        self.register_buffer("center_P", torch.zeros(config.prototypes))

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """The teacher's temperature."""
        return {"temperature": torch.tensor(self.temperature(progress), dtype=torch.float64)}

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "distillation"."""
        seen_NP = encode_by_size(self.teacher, images[:OF_TEACHER])
        target_NP = ((seen_NP - self.center_P) / inputs["temperature"]).softmax(dim=1)
        embedding_ND = self.projector(encode_by_size(self.encoder, images))
        scores = self.prototypes(embedding_ND).chunk(len(images))
        self.center_P.lerp_(gather(seen_NP).mean(dim=0), 1 - CENTER_MOMENTUM)
        targets = target_NP.chunk(OF_TEACHER)
        return output_of(
            {"distillation": cross_view_entropy(scores, targets, self.config.temperature)},
            spread=spread(gather(embedding_ND[: len(images[0])].detach())),
            target_entropy=torch.special.entr(target_NP).sum(dim=1).mean(),
        )

    def temperature(self, progress: float) -> float:
        """The teacher's temperature, which rises linearly at the start of a run."""
        last, warmup = self.config.teacher_temperature, self.config.warmup
        risen = min(progress / warmup, 1.0) if warmup else 1.0
        return FIRST_TEMPERATURE + risen * (last - FIRST_TEMPERATURE)

    @property
    def final_encoder(self) -> Encoder:
        """The teacher's encoder."""
        return self.teacher.encoder

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """The output of the teacher's projector, of unit length."""
        projector, _ = cast(nn.Sequential, self.teacher.projector)
        return F.normalize(projector(self.teacher.encoder(images_BCHW)), dim=1)
