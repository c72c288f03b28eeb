"""MAST-C: contrast views in subspaces; heads on all stages predict operator parameters.

Shapes: B batch (B_global over processes), D embedding dimensions, K operators, P of them predicted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from mast.augment import Views
from mast.core.collectives import gather
from mast.core.errors import UserError, unknown
from mast.losses import intersection, masked_nt_xent, variance
from mast.methods.base import NEGATIVES, TWO, Method, MethodConfig, output_of, spread
from mast.methods.parts import (
    HostInputs,
    Images,
    OperatorPrediction,
    PredictionConfig,
    changing,
    check_properties,
    shared_covariance,
)
from mast.models import MLP, MLPConfig
from mast.models.depths import ShallowDepths
from mast.models.masks import ExemptBlocks

SOURCES = ("block", "depths", "representation")


@dataclass
class MastCConfig(MethodConfig):
    """Contrast in subspaces, and heads that predict operator parameters.

    Attributes:
        compare: What enforces invariance: the "contrast" of two views with the views of other
            images, or their "distance", with VICReg's variance and covariance terms.
        exempt: Image properties ("color", "position", ...: `mast show operators`) that get their
            own block of dimensions. Views need not agree in a block if an operator that changes
            its property acted.
        exempt_share: Share of the dimensions in each block.
        predicted: Properties whose operators the heads predict; of these, heads on the block
            predict only exempt ones.
        predict_from: Input of the heads: pooled maps of the encoder's earlier stages ("depths", as
            in `adapt`), its "representation", the exempt "block" of a property.
        prediction: Weight and width of the heads.
        projector: Sizes of the projector, SimCLR's for a contrast and VICReg's for a distance.
        temperature: Temperature of the contrast.
        invariance_weight: Weight of the distance.
        variance_weight: Weight of the variance term of the distance.
        covariance_weight: Weight of the covariance term of the distance.
    """

    takes = TWO
    limits: ClassVar = {"exempt_share": "(0, 1)"}
    compare: Literal["contrast", "distance"] = "contrast"
    exempt: tuple[str, ...] = ("color",)
    exempt_share: float = 0.1
    predicted: tuple[str, ...] = ("color", "position")
    predict_from: tuple[str, ...] = ("depths", "representation")
    prediction: PredictionConfig = field(default_factory=lambda: PredictionConfig(weight=1.0))
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(hidden=2048, dim=128))
    temperature: float = 0.1
    invariance_weight: float = 10.0
    variance_weight: float = 25.0
    covariance_weight: float = 1.0

    @property
    def needs_whole_batch(self) -> str | None:
        return NEGATIVES if self.compare == "contrast" else None

    def check(self) -> None:
        super().check()
        check_properties(self.exempt)
        check_properties(self.predicted)
        for source in self.predict_from:
            if source not in SOURCES:
                raise unknown("objective.predict_from", source, SOURCES)
        if self.predict_from == ("block",) and not {*self.predicted} & {*self.exempt}:
            raise UserError("objective.predict_from block needs an exempt, predicted property")


class MastC(Method):
    """Ours: SimCLR's contrast in the dimensions that are invariant to all applied operators."""

    config: MastCConfig
    masks: ExemptBlocks
    column_P: Tensor  # of the masks, by operator that is predicted from the block

    def build(self) -> None:
        config, encoder, operators = self.config, self.encoder, self.operators
        dim = config.projector.dim
        if config.compare == "contrast":
            self.projector = MLP(encoder.dim, config.projector, layers=2, last_norm="affine")
        else:
            self.projector = MLP(encoder.dim, config.projector)
        self.masks = ExemptBlocks(dim, _groups(operators, config.exempt), config.exempt_share)
        predicted = changing(operators, config.predicted) if config.prediction.weight else ()
        in_blocks = [name for name in predicted if name in changing(operators, config.exempt)]
        column_P = torch.tensor([operators.index(name) for name in in_blocks], dtype=torch.int64)
        self.register_buffer("column_P", column_P, persistent=False)
        of_source = {"block": (dim, in_blocks), "representation": (encoder.dim, [*predicted])}
        self.shallow = None
        if "depths" in config.predict_from and predicted:
            self.shallow = ShallowDepths(encoder)
            of_source["depths"] = (self.shallow.dim, [*predicted])
        self.predictions = nn.ModuleDict(
            {
                source: OperatorPrediction(config.prediction, *of_source[source], source)
                for source in SOURCES
                if source in config.predict_from and of_source.get(source, (0, []))[1]
            }
        )

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """Which subspaces are trained, and the targets; the last source predicts the most."""
        inputs = {"active_BK": views.active_BK}
        for prediction in list(self.predictions.values())[-1:]:
            inputs |= cast(OperatorPrediction, prediction).host_inputs(views, progress)
        return inputs

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """The terms are those of `objective`, and the predictions."""
        depths: tuple[Tensor, ...] = ()
        if self.shallow is None:
            encodings = tuple(self.encoder.encode(images_BCHW) for images_BCHW in images)
        else:
            encodings, depths = zip(*map(self.shallow.encode, images), strict=True)
        both = [encoding.representation_BC for encoding in encodings]
        first_BD, second_BD = (self.projector(x_BC) for x_BC in both)
        mask_DK = self.masks()
        output = self.objective(first_BD, second_BD, inputs["active_BK"], mask_DK)
        read = {"block": (first_BD, second_BD), "depths": depths, "representation": both}
        for source, module in self.predictions.items():
            part_DP = 1 - mask_DK[:, self.column_P] if source == "block" else None
            prediction = cast(OperatorPrediction, module)
            output = prediction.add_to(output, read[source], inputs, part_DP)
        return output

    def objective(
        self, first_BD: Tensor, second_BD: Tensor, active_BK: Tensor, mask_DK: Tensor
    ) -> dict[str, Tensor]:
        """The loss of two views' embeddings, without predictions.

        Args:
            first_BD: Embeddings of the first view.
            second_BD: Embeddings of the second view.
            active_BK: Operators applied to either view; boolean, (B, K).
            mask_DK: 1 if a dimension must be invariant to an operator, 0 if it is exempt.

        Returns:
            As `Method.step`.
        """
        config = self.config
        weight_BD = intersection(mask_DK, active_BK)
        squared_BD = (first_BD - second_BD).square()
        first_BD, second_BD = gather(first_BD), gather(second_BD)  # B_global
        if config.compare == "contrast":
            weight_BD = gather(weight_BD)
            loss = masked_nt_xent(first_BD, second_BD, weight_BD, config.temperature)
            return output_of({"contrast": loss}, spread=spread(first_BD))
        distance_B = (weight_BD * squared_BD).sum(dim=1) * active_BK.any(dim=1)
        terms = {
            "masked": config.invariance_weight * distance_B.mean(),
            "variance": config.variance_weight * (variance(first_BD) + variance(second_BD)) / 2,
            "covariance": config.covariance_weight * shared_covariance(first_BD, second_BD),
        }
        statistics = {
            "unmasked_distance": squared_BD.mean(),
            "embedding_std": first_BD.std(dim=0).mean(),
        }
        if self.masks.count:
            part_D = 1 - mask_DK.amin(dim=1)
            deviation_D = first_BD.detach().std(dim=0)
            statistics["block_std"] = (part_D * deviation_D).sum() / part_D.sum()
        return output_of(terms, **statistics)

    def warnings(self, metrics: Mapping[str, float]) -> Iterator[str]:
        """Blocks that hold nothing."""
        if not self.masks.count:
            yield (
                f"nothing is exempt: no operator of the views changes objective.exempt "
                f"({', '.join(self.config.exempt)}). The objective is "
                f"{'SimCLR' if self.config.compare == 'contrast' else 'VICReg'}'s."
            )
        if metrics.get("stat/block_std", 1.0) < 0.3:
            yield (
                f"a block without variance: the exempt dimensions have a standard deviation of "
                f"{metrics['stat/block_std']:.2f} (the variance term wants 1), so nothing can be "
                "predicted from them. Raise objective.variance_weight."
            )
        yield from super().warnings(metrics)


def _groups(operators: tuple[str, ...], properties: tuple[str, ...]) -> list[int | None]:
    """Of each operator, which of the exempt properties that are changed at all it changes."""
    members = [changing(operators, (changed,)) for changed in properties]
    group_of = {name: group for group, names in enumerate(filter(None, members)) for name in names}
    return [group_of.get(name) for name in operators]
