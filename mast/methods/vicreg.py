"""VICReg: variance, invariance and covariance of the embeddings of two views."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from mast.augment import Views
from mast.core.collectives import gather
from mast.losses import covariance, invariance, variance
from mast.methods.base import (
    Method,
    MethodConfig,
    Vital,
    compile_head,
    embedding_vital,
    pair_of_images,
    variance_collapse,
)
from mast.methods.prediction import (
    OperatorPrediction,
    PredictionConfig,
    check_properties,
    destroyers,
    silent_heads,
)
from mast.models import Encoder, MLPProjector, MLPProjectorConfig, check_sizes


@dataclass
class VICRegConfig(MethodConfig):
    """Weights of VICReg's three terms.

    Attributes:
        projector: Sizes of the expander.
        invariance_weight: Weight of the distance between views.
        variance_weight: Weight of the variance hinge (the mean of both views').
        covariance_weight: Weight of the covariance term (the sum of both views').
        told: Properties of an image ("color", "position", ...: `mast show operators`) for which
            the representation has to tell how the operators that destroy them differed between
            the views, as in AugSelf; none in VICReg itself.
        prediction: Weight and width of the heads that tell it.
    """

    projector: MLPProjectorConfig = field(default_factory=MLPProjectorConfig)
    invariance_weight: float = 25.0
    variance_weight: float = 25.0
    covariance_weight: float = 1.0
    told: tuple[str, ...] = ()
    prediction: PredictionConfig = field(default_factory=PredictionConfig)

    def check(self) -> None:
        """See `MethodConfig.check`."""
        check_sizes(self.projector)
        self.prediction.check()
        check_properties(self.told)


class VICReg(Method):
    """Bardes, Ponce, LeCun: Variance-Invariance-Covariance Regularization (ICLR 2022).

    Args:
        config: Weights and sizes.
        encoder: The encoder to train.
        operators: Names of the augmentations.
        seed: Unused, all randomness of this method is in the initialisation of its layers.
    """

    config: VICRegConfig

    def __init__(
        self, config: VICRegConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.projector = MLPProjector(encoder.dim, config.projector)
        told = destroyers(operators, config.told)
        self.prediction = (
            OperatorPrediction(config.prediction, encoder.dim, told)
            if told and config.prediction.weight
            else None
        )

    def forward(self, views: Views, progress: float) -> dict[str, Tensor]:
        """See `Method.forward`; the terms are those of `objective`, and the prediction."""
        encodings = [self.encoder.encode(images) for images in pair_of_images(views, "VICReg")]
        output = self.objective(*(self.projector(encoding) for encoding in encodings))
        if self.prediction is None:
            return output
        told = self.prediction(*(encoding.representation_BC for encoding in encodings), views)
        return self.prediction.add_to(output, told, "representation")

    def objective(self, first_BD: Tensor, second_BD: Tensor) -> dict[str, Tensor]:
        """The loss of the embeddings of two views; "invariance", "variance" and "covariance"."""
        first_BD, second_BD = gather(first_BD), gather(second_BD)
        config = self.config
        distance = invariance(first_BD, second_BD)
        terms = {
            "invariance": config.invariance_weight * distance,
            "variance": config.variance_weight * (variance(first_BD) + variance(second_BD)) / 2,
            "covariance": config.covariance_weight * (covariance(first_BD) + covariance(second_BD)),
        }
        return {
            "loss": sum(terms.values(), first_BD.new_zeros(())),
            **{f"term/{name}": value.detach() for name, value in terms.items()},
            "stat/unmasked_distance": distance.detach(),
            "stat/embedding_std": first_BD.detach().std(dim=0).mean(),
        }

    def compile_parts(self) -> None:
        """The encoder, the projector and the objective."""
        super().compile_parts()
        compile_head(self)

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """The expander's output."""
        embedding_BD: Tensor = self.projector(self.encoder.encode(images_BCHW))
        return embedding_BD

    def readings(self) -> dict[str, Tensor]:
        """See `Method.readings`."""
        return {} if self.prediction is None else self.prediction.readings()

    def warnings(self, metrics: Mapping[str, float]) -> Iterator[str]:
        """Variance collapse, and heads that say nothing."""
        yield from silent_heads(metrics)
        yield from variance_collapse(metrics)

    @classmethod
    def vitals(cls, metrics: Mapping[str, float]) -> Iterator[Vital]:
        """The spread of the embedding."""
        yield from embedding_vital(metrics)
