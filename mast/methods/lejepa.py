"""LeJEPA: views that agree, and embeddings that are normally distributed along all directions."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from mast.augment import Preset
from mast.core.collectives import gather
from mast.core.errors import UserError
from mast.losses import epps_pulley
from mast.methods.base import TWO_OR_MORE, PairConfig, PairMethod, output_of
from mast.methods.parts import Directions, HostInputs, Images, encode_by_size
from mast.models import MLPConfig


@dataclass
class LeJEPAConfig(PairConfig):
    """The weight of the regularizer.

    Attributes:
        regularizer_weight: Weight of the regularizer; one minus it is that of the distance.
        directions: Random directions along which embeddings are compared with a normal
            distribution, drawn at every step.
    """

    needs_whole_batch = "its embeddings are compared with a normal distribution as a whole"

    takes = TWO_OR_MORE
    limits: ClassVar = {"regularizer_weight": "[0, 1]", "directions": "[1, inf)"}
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 512))
    regularizer_weight: float = 0.05
    directions: int = 1024

    def check_views(self, preset: Preset) -> None:
        """Heads predict how two views differ."""
        if self.predicted and len(preset.views) > 2:
            raise UserError(
                f"objective.predicted: expected none with {len(preset.views)} views; choose a "
                "preset of two, such as mast5"
            )


class LeJEPA(PairMethod):
    """Balestriero and LeCun: LeJEPA (arXiv 2511.08544).

    It takes any number of views; the distance is that to the mean of the large ones. As in the
    official code, views of one size are encoded together, and all views projected together.
    """

    config: LeJEPAConfig
    shape: ClassVar = {"bias": True}

    def build(self) -> None:
        super().build()
        self.drawn = Directions(self.seed, self.config.projector.dim, self.config.directions)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """The terms "invariance" and those of `regularizer`."""
        encoded = encode_by_size(self.encoder, images)
        every_VBD = self.projector(encoded).unflatten(0, (len(images), -1))
        large = sum(view.shape == images[0].shape for view in images)
        distance = (every_VBD - every_VBD[:large].mean(dim=0)).square().mean()
        weight, gathered = self.config.regularizer_weight, [gather(z_BD) for z_BD in every_VBD]
        parts = [self.regularizer(z_BD, inputs["direction_DS"]) for z_BD in gathered]
        terms = {"invariance": (1 - weight) * distance}
        for name in parts[0]:
            terms[name] = weight * torch.stack([part[name] for part in parts]).mean()
        std = gathered[0].std(dim=0).mean()
        output = output_of(terms, unmasked_distance=distance, embedding_std=std)
        return self.prediction.add_to(output, encoded.chunk(len(images)), inputs)

    def regularizer(self, embedding_BD: Tensor, direction_DS: Tensor) -> dict[str, Tensor]:
        """What keeps the embeddings of a view from collapsing."""
        return {"normality": epps_pulley(embedding_BD, direction_DS)}
