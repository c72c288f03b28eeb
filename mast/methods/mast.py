"""MAST: views are alike in all dimensions but a block; heads predict what the operators did.

These are the product's objectives; Eq. 7 of the paper, learned masks and the predicted uncertainty
are in `mast.methods.mast_paper`.

Shapes: B batch (B_global over processes), D embedding dimensions, K operators, P of them predicted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from mast.augment import Views
from mast.core.collectives import gather
from mast.core.errors import UserError
from mast.losses import intersection, masked_nt_xent, variance
from mast.methods.base import NEGATIVES, PART, SHARE, Method, limited, output_of, spread
from mast.methods.mast_paper import EPS, Equation7, PaperConfig, Source
from mast.methods.parts import (
    HostInputs,
    Images,
    OperatorPrediction,
    PredictionConfig,
    check_properties,
    destroyers,
    shared_covariance,
)
from mast.models import (
    Encoder,
    Encoding,
    ExemptBlocks,
    Gaussian,
    GaussianProjector,
    GeM,
    Masks,
    ShallowDepths,
)

SOURCES: dict[Source, tuple[str, ...]] = {
    "none": (),
    "block": ("block",),
    "representation": ("representation",),
    "both": ("block", "representation"),
    "depths": ("depths",),
    "everywhere": ("depths", "representation"),
}


@dataclass
class MastConfig(PaperConfig):
    """MAST's objective: with exempt blocks, or Eq. 7 with its switches. None: the mode decides.

    Attributes:
        mode: "contrast" (the recipes'), "exempt", "guarded", or "paper" for Eq. 7 as printed.
        exempt: Image properties ("color", "position", ...: `mast show operators`) that get their
            own block of dimensions. Views need not agree in a block if an operator that destroys
            its property acted.
        exempt_share: Share of the dimensions in each block.
        predicted: Properties whose operators the heads predict; the block predicts only exempt
            ones. By default those of `exempt`.
        prediction: Weight and width of the heads that predict what the operators did.
        variance_weight: alpha; unused, like beta, with compare "contrast".
        covariance_weight: beta.
        temperature: Temperature of the contrastive loss.
    """

    limits = limited(mask_common=SHARE, exempt_share=PART)
    mode: Literal["exempt", "contrast", "guarded", "paper"] = "exempt"
    exempt: tuple[str, ...] = ("color",)
    exempt_share: float = 0.03
    predicted: tuple[str, ...] | None = None
    prediction: PredictionConfig = field(default_factory=PredictionConfig)
    variance_weight: float = 25.0
    covariance_weight: float = 1.0
    temperature: float = 0.1

    @property
    def needs_whole_batch(self) -> str | None:
        return NEGATIVES if self.resolved().compare == "contrast" else None

    def check(self) -> None:
        super().check()
        check_properties(self.exempt)
        check_properties(self.predicted or ())
        mode = self.resolved()
        if "block" in SOURCES[mode.predict_from] and not mode.has_blocks:
            raise UserError(
                f"objective.predict_from {mode.predict_from} needs objective.masks exempt or "
                f"budgeted, got {mode.masks}, which has no block to predict from"
            )
        told = self.exempt if self.predicted is None else self.predicted
        if mode.predict_from == "block" and not {*told} & {*self.exempt}:
            raise UserError("objective.predict_from block needs an exempt, predicted property")
        if mode.compare == "contrast" and not mode.is_exempt:
            raise UserError(
                "objective.compare contrast is for exempt blocks: leave out what Eq. 7 has "
                "(composition, count, uncertainty, plain, KL, sparsity, standardize, other masks)"
            )


class Mast(Method):
    """Huang, Goh, Gu, Susskind: Masked Augmentation Subspace Training (ICLR 2023)."""

    config: MastConfig
    projector: GaussianProjector
    masks: Masks | ExemptBlocks
    column_P: Tensor  # of the masks
    gates = ("masks.logits_DK", "masks.logits_DG", "pools.mean.power", "pools.covariance.power")

    def __init__(
        self, config: MastConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.mode = mode = config.resolved()
        self.equation_7 = None if mode.is_exempt else Equation7(mode)
        pooled = config.projector.pool == "average"
        features, dim = encoder.dim if pooled else encoder.map_dim, config.projector.dim
        self.projector = GaussianProjector(
            features, config.projector, mode.uncertainty, mode.compare == "contrast"
        )
        if mode.has_blocks:
            groups, learned = _groups(operators, config.exempt), mode.masks == "budgeted"
            self.masks = ExemptBlocks(dim, groups, config.exempt_share, learned, seed)
        else:
            start, scale, common = mode.mask_start, mode.normalize_masks, config.mask_common
            count, kind = len(operators), cast(Any, mode.masks)
            self.masks = Masks(dim, count, kind, start, scale, common, seed)
        properties = config.exempt if config.predicted is None else config.predicted
        predicted = destroyers(operators, properties)
        sources = SOURCES[mode.predict_from] if config.prediction.weight and predicted else ()
        in_blocks = [name for name in predicted if name in destroyers(operators, config.exempt)]
        column_P = torch.tensor([operators.index(name) for name in in_blocks], dtype=torch.int64)
        self.register_buffer("column_P", column_P, persistent=False)
        of_source = {"block": (dim, in_blocks), "representation": (encoder.dim, [*predicted])}
        self.shallow = None
        if "depths" in sources:
            self.shallow = ShallowDepths(encoder)
            of_source["depths"] = (self.shallow.dim, [*predicted])
        self.predictions = nn.ModuleDict(
            {
                source: OperatorPrediction(config.prediction, *of_source[source], source)
                for source in sources
                if of_source[source][1]
            }
        )
        if not pooled and "representation" not in self.predictions:
            encoder.freeze_behind_features()

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """Which subspaces are trained, and the targets; the last source predicts the most."""
        inputs = {"active_BK": views.active_BK}
        for prediction in list(self.predictions.values())[-1:]:
            inputs |= cast(OperatorPrediction, prediction).host_inputs(views, progress)
        return inputs

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """The terms are those of `objective`, and the predictions."""
        encodings: Sequence[Encoding]
        if self.shallow is None:
            encodings, depths = [self.encoder.encode(images_BCHW) for images_BCHW in images], ()
        else:
            encodings, depths = zip(*map(self.shallow.encode, images), strict=True)
        first, second = (self.projector(encoding) for encoding in encodings)
        mask_DK = self.masks()
        output = self.objective(first, second, inputs["active_BK"], mask_DK)
        for source, module in self.predictions.items():
            prediction = cast(OperatorPrediction, module)
            if source == "block":
                part_DP, pair = 1 - mask_DK[:, self.column_P], [first.mean_BD, second.mean_BD]
                output = prediction.add_to(output, pair, inputs, part_DP)
            elif source == "depths":
                output = prediction.add_to(output, depths, inputs)
            else:
                pair = [encoding.representation_BC for encoding in encodings]
                output = prediction.add_to(output, pair, inputs)
        return output

    def objective(
        self, first: Gaussian, second: Gaussian, active_BK: Tensor, mask_DK: Tensor
    ) -> dict[str, Tensor]:
        """The loss of two embeddings, without the predictions.

        Args:
            first: Mean and covariance of the first view, (B, D) each; the covariance may be None.
            second: Likewise, of the second view.
            active_BK: Which operators were applied to either view; boolean, (B, K).
            mask_DK: 1 where a dimension must be invariant to an operator, 0 where it is exempt.

        Returns:
            As `Method.step`.
        """
        first_BD, second_BD = gather(first.mean_BD), gather(second.mean_BD)  # B_global
        squared_BD = (first.mean_BD - second.mean_BD).square()
        statistics: dict[str, Tensor] = {}
        if self.mode.compare == "contrast":
            # SimCLR's contrast in the dimensions in which all applied operators want invariance.
            weight_BD = gather(intersection(mask_DK, active_BK))
            temperature = self.config.temperature
            loss = masked_nt_xent(first_BD, second_BD, weight_BD, temperature)
            terms = {"contrast": self.mode.masked_weight * loss}
            return output_of(terms, spread=spread(first_BD))
        if self.equation_7 is None:
            # VICReg's distance there.
            weight_BD = intersection(mask_DK, active_BK)
            distance_B = (weight_BD * squared_BD).sum(dim=1) * active_BK.any(dim=1)
            terms = {"masked": self.mode.masked_weight * distance_B.mean()}
        else:
            both_BD = (first_BD, second_BD)
            terms, statistics = self.equation_7(first, second, both_BD, mask_DK, active_BK)
        config = self.config
        terms |= {
            "variance": config.variance_weight * (variance(first_BD) + variance(second_BD)) / 2,
            "covariance": config.covariance_weight * shared_covariance(first_BD, second_BD),
        }
        if isinstance(self.masks, ExemptBlocks) and self.masks.count:
            part_D = 1 - mask_DK.detach().amin(dim=1)
            deviation_D = first_BD.detach().std(dim=0)
            statistics["block_std"] = (part_D * deviation_D).sum() / (part_D.sum() + EPS)
        statistics["unmasked_distance"] = squared_BD.mean()
        statistics["embedding_std"] = first_BD.std(dim=0).mean()
        return output_of(terms, **statistics)

    def after_step(self, progress: float) -> None:
        """Keep GeM powers in [1, 10]."""
        for pool in self.projector.pools.values():
            cast(GeM, pool).project()

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """The mean of the Gaussian."""
        mean_BD: Tensor = self.projector(self.encoder.encode(images_BCHW)).mean_BD
        return mean_BD

    def uncertainty(self, images_BCHW: Tensor) -> Tensor | None:
        """The trace of the Gaussian's covariance."""
        if not self.mode.uncertainty:
            return None
        covariance_BD: Tensor = self.projector(self.encoder.encode(images_BCHW)).covariance_BD
        return covariance_BD.sum(dim=1)

    def statistics(self) -> dict[str, float]:
        """Mean, zero share, pairwise cosine and active share of the masks; GeM powers."""
        powers = self.projector.powers()
        return {
            **{f"stat/mask_{name}": value for name, value in self.masks.statistics().items()},
            **{f"stat/gem_{name}": power for name, power in powers.items()},
        }

    def warnings(self, metrics: Mapping[str, float]) -> Iterator[str]:
        """Blocks that hold nothing, and the traps of Eq. 7 (docs/method.md)."""
        if self.equation_7 is not None:
            yield from self.equation_7.warnings(metrics, len(self.operators))
        if isinstance(self.masks, ExemptBlocks) and not self.masks.count:
            yield (
                f"nothing is exempt: no operator of the views destroys objective.exempt "
                f"({', '.join(self.config.exempt)}). The objective is "
                f"{'SimCLR' if self.mode.compare == 'contrast' else 'VICReg'}'s."
            )
        if self.config.predicted and not SOURCES[self.mode.predict_from]:
            yield "nothing is predicted: objective.predict_from is none in this mode"
        if metrics.get("stat/block_std", 1.0) < 0.3:
            yield (
                f"a block without variance: the exempt dimensions have a standard deviation of "
                f"{metrics['stat/block_std']:.2f} (the variance term wants 1), so nothing can be "
                "predicted from them. Raise objective.variance_weight."
            )
        yield from super().warnings(metrics)


def _groups(operators: tuple[str, ...], properties: tuple[str, ...]) -> list[int | None]:
    """Of each operator, which of the exempt properties that are destroyed at all it destroys."""
    members = [destroyers(operators, (destroyed,)) for destroyed in properties]
    group_of = {name: group for group, names in enumerate(filter(None, members)) for name in names}
    return [group_of.get(name) for name in operators]
