"""Supervised: the class of an image from each of its views, with the labels of the images.

Shapes: B images, L classes.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.augment import Views
from mast.methods.base import Method, MethodConfig, output_of
from mast.methods.parts import HostInputs, Images


@dataclass
class SupervisedConfig(MethodConfig):
    """The classifier.

    Attributes:
        classes: L, as many as the images have.
    """

    limits: ClassVar = {"classes": "[2, inf)"}
    classes: int = 1000


class Supervised(Method):
    """Cross-entropy of a linear layer over the representation, the mean over all views."""

    config: SupervisedConfig
    labelled = True

    def build(self) -> None:
        self.classifier = nn.Linear(self.encoder.dim, self.config.classes)

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """The labels."""
        assert views.label_B is not None, "a method that is `labelled` gets labels"
        return {"label_B": views.label_B}

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "cross_entropy"."""
        label_B = inputs["label_B"]
        logits = [self.embed(images_BCHW) for images_BCHW in images]
        losses = [F.cross_entropy(logits_BL, label_B) for logits_BL in logits]
        right = (logits[0].argmax(dim=1) == label_B).float().mean()
        return output_of({"cross_entropy": torch.stack(losses).mean()}, training_accuracy=right)

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """Scores of the classes, (B, L)."""
        logits_BL: Tensor = self.classifier(self.encoder(images_BCHW))
        return logits_BL.float()
