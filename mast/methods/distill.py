"""Distillation: a student learns a frozen teacher's features, in the space that you choose.

Shapes: B images, C dimensions of the representation, D of the teacher's space.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.encoders.load import ADAPTED, load
from mast.invariance.adapted import Adapted, load_adapted
from mast.methods.base import Method, MethodConfig, output_of
from mast.methods.parts import HostInputs, Images
from mast.models.encoders import Encoder, channels_of
from mast.models.pretrained import DEFAULT


@dataclass
class DistillConfig(MethodConfig):
    """The teacher and its space.

    Attributes:
        teacher: A folder of `mast adapt`, for the features of all stages, or any other encoder of
            images that `mast neighbours` takes, for its representation.
        ignore: Properties or operators that the teacher ignores ("all" for all); needs a folder of
            `mast adapt`.
    """

    teacher: str = DEFAULT
    ignore: tuple[str, ...] = ()


class Distill(Method):
    """A linear layer over the student's representation predicts the direction of the features.

    Teacher and student see the same view, resized to the teacher's size. The teacher is not saved
    with the run, which loads it again, and refuses one with other features.
    """

    config: DistillConfig

    def build(self) -> None:
        teacher = self.config.teacher
        module: nn.Module
        if (Path(teacher) / ADAPTED).is_file():
            module = load_adapted(teacher)
            module.space(self.config.ignore)
            self.side = module.size
        elif self.config.ignore:
            raise UserError(
                f"objective.ignore: expected objective.teacher to be a folder of `mast adapt`, got "
                f"{teacher}; run `mast adapt PHOTOS --encoder {teacher} --out FOLDER`"
            )
        else:
            module, self.side = load(teacher)[:2]
        self._teacher = (module.eval().requires_grad_(False),)  # a tuple: not its parameters
        for part in module.modules():
            if isinstance(part, Encoder):
                part.training = True  # the images are those of training, whose range is known
        channels = channels_of(getattr(module, "encoder", module))
        if self.encoder.channels != channels:
            raise UserError(
                f"objective.teacher: expected an encoder of {self.encoder.channels} channels, got "
                f"one of {channels}"
            )
        self._of_blank = self._taught(self.encoder.blank(1))[0]
        self.projector = nn.Linear(self.encoder.dim, len(self._of_blank))

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "cosine": one minus the mean cosine of all views."""
        cosines = [
            F.cosine_similarity(self.embed(images_BCHW), self._taught(images_BCHW)).mean()
            for images_BCHW in images
        ]
        return output_of({"cosine": 1 - torch.stack(cosines).mean()})

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """What the student predicts of the teacher's features, (B, D)."""
        predicted_BD: Tensor = self.projector(self.encoder(images_BCHW))
        return predicted_BD.float()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._teacher[0]._apply(fn)  # it moves to a device with the method
        return super()._apply(fn, recurse)

    def get_extra_state(self) -> Tensor:
        return self._of_blank

    def set_extra_state(self, state: Tensor) -> None:
        if state.shape != self._of_blank.shape or not torch.allclose(
            state.cpu(), self._of_blank, 0.01
        ):
            raise UserError(
                f"objective.teacher: {self.config.teacher} has other features than when the run "
                "started"
            )

    @torch.no_grad()
    def _taught(self, images_BCHW: Tensor) -> Tensor:
        """The teacher's features, (B, D)."""
        module = self._teacher[0]
        if images_BCHW.shape[-1] != self.side:
            images_BCHW = F.interpolate(
                images_BCHW, (self.side, self.side), mode="bilinear", antialias=True
            ).clamp(0, 1)
        if isinstance(module, Adapted):
            return module(images_BCHW, ignore=self.config.ignore).float()
        taught_BD: Tensor = module(images_BCHW).float()
        return taught_BD
