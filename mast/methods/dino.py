"""DINO: from every view what a teacher says of another one, as a distribution over prototypes.

Shapes: B images of this process, N of all their views, D dimensions of the embedding, P prototypes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.augment import Views
from mast.core.collectives import gather
from mast.losses import told_by_others
from mast.methods.base import (
    ABOVE_ZERO,
    SHARE,
    TWO_OR_MORE,
    Given,
    Images,
    at_least,
    limited,
    output_of,
    spread,
)
from mast.methods.projected import ProjectedConfig, ProjectedMethod, together
from mast.methods.taught import TaughtConfig, TaughtMethod
from mast.models import MLP, Encoder, MLPConfig, Prototypes, Teacher

TAUGHT = 2  # views, the first, are seen by the teacher


@dataclass
class DINOConfig(TaughtConfig, ProjectedConfig):
    """The networks and temperatures of DINO. The momentum rises.

    Attributes:
        prototypes: P.
        temperature: By which the student's cosines are divided.
        teacher_temperature: By which the teacher's are, after its warm-up.
        first_teacher_temperature: Likewise, at the start; it rises linearly.
        warmup: Share of the run in which it rises.
        center_momentum: How much of the teacher's centre stays at a step.
        frozen: Share of the run at its start in which the prototypes stay as they are.
    """

    takes = TWO_OR_MORE
    limits = limited(
        temperature=ABOVE_ZERO, teacher_temperature=ABOVE_ZERO, prototypes=at_least(2),
        first_teacher_temperature=ABOVE_ZERO, warmup=SHARE, center_momentum=SHARE, frozen=SHARE,
    )  # fmt: skip
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 256))
    prototypes: int = 65536
    temperature: float = 0.1
    teacher_temperature: float = 0.07
    first_teacher_temperature: float = 0.04
    warmup: float = 0.1
    center_momentum: float = 0.9
    momentum: float = 0.996
    frozen: float = 0.01


class DINO(TaughtMethod, ProjectedMethod):
    """Caron et al.: Emerging Properties in Self-Supervised Vision Transformers (ICCV 2021).

    The teacher sees the first two views, the student all of them; as in the official code, views of
    one size are encoded together. Prototypes are brought back to
    unit length after a step, where the official code parametrises them so
    (`norm_last_layer=True`). What is kept is the teacher, which that code evaluates.
    """

    config: DINOConfig
    center_P: Tensor
    needs_whole_batch = "its centre would move with each part of the batch"

    def __init__(
        self, config: DINOConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.projector = MLP(
            encoder.dim, config.projector, inner_norm=False, bias=True, activation="gelu"
        )
        self.prototypes = Prototypes(config.projector.dim, config.prototypes)
        self.teacher = Teacher(encoder, self.taught())
        self.register_buffer("center_P", torch.zeros(config.prototypes))

    def taught(self) -> nn.Sequential:
        """From representations to cosines with the prototypes."""
        return nn.Sequential(self.projector, self.prototypes)

    @property
    def kept(self) -> Encoder:
        """The teacher's encoder."""
        return self.teacher.encoder

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """What the teacher's projector says, of unit length."""
        projector, _ = cast(nn.Sequential, self.teacher.projector)
        return F.normalize(projector(self.kept(images_BCHW)), dim=1)

    def given(self, views: Views, progress: float) -> dict[str, Tensor]:
        """The teacher's temperature."""
        temperature = self.teacher_temperature(progress)
        return {"temperature": torch.tensor(temperature, dtype=torch.float64)}

    def frozen(self, progress: float) -> Iterable[nn.Parameter]:
        """The prototypes, at first."""
        return self.prototypes.parameters() if progress < self.config.frozen else ()

    def step(self, images: Images, given: Given, phase: Any) -> dict[str, Tensor]:
        """One term, "distillation"."""
        config = self.config
        seen_NP = together(self.teacher, images[:TAUGHT])
        target_NP = ((seen_NP - self.center_P) / given["temperature"]).softmax(dim=1)
        embedding_ND = self.projector(together(self.encoder, images))
        scores = self.prototypes(embedding_ND).chunk(len(images))
        self.center_P.lerp_(gather(seen_NP).mean(dim=0), 1 - config.center_momentum)
        return output_of(
            {"distillation": told_by_others(scores, target_NP.chunk(TAUGHT), config.temperature)},
            spread=spread(gather(embedding_ND[: len(images[0])].detach())),
            target_entropy=torch.special.entr(target_NP).sum(dim=1).mean(),
        )

    def teacher_temperature(self, progress: float) -> float:
        """The teacher's temperature, which rises linearly at the start of a run."""
        config = self.config
        risen = min(progress / config.warmup, 1.0) if config.warmup else 1.0
        first = config.first_teacher_temperature
        return first + risen * (config.teacher_temperature - first)

    def after_step(self, progress: float) -> None:
        """Prototypes keep unit length, and the teacher follows."""
        self.prototypes.project()
        super().after_step(progress)
        cast(Prototypes, cast(nn.Sequential, self.teacher.projector)[1]).project()
