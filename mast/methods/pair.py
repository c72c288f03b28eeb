"""What methods of two views share: encoding them, and heads that tell how they differ.

Shapes: B images, D dimensions of the embedding.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mast.augment import Views
from mast.methods.base import TWO, Given, Images
from mast.methods.prediction import (
    OperatorPrediction,
    PredictionConfig,
    check_properties,
    destroyers,
)
from mast.methods.projected import ProjectedConfig, ProjectedMethod
from mast.models import Encoder


@dataclass
class PairConfig(ProjectedConfig):
    """AugSelf (Lee et al., NeurIPS 2021), which any method of two views takes.

    Attributes:
        told: Properties of an image ("color", "position", ...: `mast show operators`) for which
            the representation has to tell how the operators that destroy them differed between
            the views; none in the method itself.
        prediction: Weight and width of the heads that tell it.
    """

    takes = TWO
    told: tuple[str, ...] = ()
    prediction: PredictionConfig = field(default_factory=PredictionConfig)

    def check(self) -> None:
        super().check()
        self.prediction.check()
        check_properties(self.told)


class PairMethod(ProjectedMethod):
    """A method of two views, over the representations of both.

    Attributes:
        encoded: How many of the two views the student encodes where nothing is told.
    """

    config: PairConfig
    unit = False
    encoded: int = 2

    def __init__(
        self, config: Any, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        told = destroyers(operators, config.told) if config.prediction.weight else ()
        self.prediction = OperatorPrediction(config.prediction, encoder.dim, told) if told else None

    def given(self, views: Views, progress: float) -> dict[str, Tensor]:
        """What the heads are asked for."""
        return {} if self.prediction is None else self.prediction.asked(views)

    def step(self, images: Images, given: Given, phase: Any) -> dict[str, Tensor]:
        """The terms are those of `compare`, and the prediction."""
        first_BCHW, second_BCHW = images
        count = self.encoded if self.prediction is None else len(images)
        representations = [self.encoder(images_BCHW) for images_BCHW in images[:count]]
        output = self.compare(representations, (first_BCHW, second_BCHW))
        if self.prediction is None:
            return output
        first_BC, second_BC = representations
        told = self.prediction(first_BC, second_BC, given)
        return self.prediction.add_to(output, told, "representation")

    @abstractmethod
    def compare(
        self, representations: Sequence[Tensor], images: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """The loss of two views.

        Args:
            representations: Of those views that the student encodes, (B, C) each.
            images: Of both, for a teacher.

        Returns:
            As `Method.step`.
        """

    def readings(self) -> dict[str, Tensor]:
        return {} if self.prediction is None else self.prediction.readings()
