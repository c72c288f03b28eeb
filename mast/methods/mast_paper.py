"""Eq. 7 of the paper as printed, its guarded form, and the switches between them.

docs/method.md has all modes: "contrast" and "exempt" are `mast.methods.mast`, "guarded" is Eq. 7
with what keeps its learned masks from collapsing, and "paper" is Eq. 7 as printed, which collapses.

Shapes: B batch (B_global over processes), D embedding dimensions, K operators.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from torch import Tensor

from mast.core.collectives import gather, global_mean, global_sum, processes
from mast.losses import (
    intersection,
    masked_distance,
    masked_uncertainty,
    subspace_mean,
    symmetric_kl,
)
from mast.methods.base import TWO, MethodConfig
from mast.models import Gaussian, GaussianProjectorConfig
from mast.models.masks import BlockKind, MaskKind, MaskNorm, MaskStart

EPS = 1e-6  # in denominators
Source = Literal["none", "block", "representation", "both", "depths", "everywhere"]


@dataclass(frozen=True)
class Mode:
    """The switches in which the modes differ, by default those of exempt; see `PaperConfig`."""

    masked_weight: float = 10.0
    plain_weight: float = 0.0
    kl_weight: float = 0.0
    sparsity_weight: float = 0.0
    composition: Literal["sum", "product"] = "product"
    count: Literal["active", "all"] = "active"
    masks: Literal[BlockKind, MaskKind] = "exempt"
    predict_from: Source = "both"
    compare: Literal["distance", "contrast"] = "distance"
    mask_start: MaskStart = "leave_one_out"
    normalize_masks: MaskNorm = "none"
    mask_gradient: Literal["distance", "relative"] = "distance"
    uncertainty: bool = False
    normalize_uncertainty: bool = True
    standardize: bool = False

    @property
    def has_blocks(self) -> bool:
        """Whether masks are ones but for exempt blocks."""
        return self.masks in ("exempt", "budgeted")

    @property
    def is_exempt(self) -> bool:
        """Whether nothing of Eq. 7 is switched on."""
        own = ("plain_weight", "kl_weight", "sparsity_weight", "composition", "count",
               "uncertainty", "standardize")  # fmt: skip
        return self.has_blocks and all(getattr(self, n) == getattr(Mode, n) for n in own)


MODES: dict[str, Mode] = {
    "exempt": Mode(),
    "contrast": Mode(masked_weight=1.0, predict_from="everywhere", compare="contrast"),
    "paper": Mode(
        masked_weight=25.0, kl_weight=25.0, sparsity_weight=600.0, composition="sum", count="all",
        masks="learned", predict_from="none", mask_start="block", uncertainty=True,
        normalize_uncertainty=False,
    ),
    "guarded": Mode(
        sparsity_weight=-2.0, masks="learned", predict_from="none", normalize_masks="l2",
        mask_gradient="relative",
    ),
}  # fmt: skip


@dataclass
class PaperConfig(MethodConfig):
    """The switches of Eq. 7. None: the mode decides.

    Attributes:
        projector: Sizes and options of the Gaussian projector.
        uncertainty: Divide distances by the predicted covariance.
        masks: "exempt" (ones, but for a fixed block of each property in `exempt`), "budgeted"
            (such blocks, learned), "learned", "handcrafted" (disjoint blocks, fixed) or "none"
            (one term over the whole embedding: Table 6's "uncertainty only").
        predict_from: What heads read to predict how the operators that destroy a predicted
            property differed between the views: its exempt "block", the "representation", "both",
            pooled maps of the encoder's shallower "depths" (those that `adapt` reads), depths and
            representation ("everywhere"), or "none".
        compare: What enforces invariance: the "distance" between two views, with variance and
            covariance terms, or their "contrast" with the views of other images.
        mask_start: Start of learned masks: "block" or "leave_one_out"; see `Masks`.
        mask_common: Share of the dimensions that start in every subspace with "leave_one_out".
        masked_weight: Weight of the contrast, or of the masked distance (25 in lambda = 25 d / K).
        plain_weight: Weight of VICReg's unmasked distance, in addition to the masked one.
        kl_weight: lambda_2, if there is a covariance.
        sparsity_weight: lambda_1 d K: weight of the mean mask entry. A negative one rewards wide
            masks (use with normalize_masks "l2").
        composition: For a sample with several operators, "sum" adds the distances in their
            subspaces (Eq. 4), "product" takes the distance in their intersection, relative to
            its size.
        count: Divisor of the sum: the "active" operators of a sample, or "all" K.
        normalize_masks: "none" or "l2"; see `Masks`.
        mask_gradient: What the masks learn from: the "distance" itself, or differences
            "relative" to each dimension's mean over the global batch. A mask then compares
            operators within a dimension, and gains nothing by leaving dimensions that are hard for
            every operator, or from the uncertainty; the network still learns from the distance
            itself.
        normalize_uncertainty: Divide the uncertainty of a pair in a subspace by its mean over
            the global batch, and the covariance in KL by its mean over batch and dimensions, so
            that neither scale carries gradient.
        standardize: Divide squared differences by each dimension's variance over the global
            batch, which makes a distance `2 (1 - correlation of the views)`: the embedding
            cannot lower it by shrinking, against the variance term.
    """

    takes = TWO
    mode: str = "exempt"
    projector: GaussianProjectorConfig = field(default_factory=GaussianProjectorConfig)
    uncertainty: bool | None = None
    masks: Literal[BlockKind, MaskKind] | None = None
    predict_from: Source | None = None
    compare: Literal["distance", "contrast"] | None = None
    mask_start: MaskStart | None = None
    mask_common: float = 0.75
    masked_weight: float | None = None
    plain_weight: float | None = None
    kl_weight: float | None = None
    sparsity_weight: float | None = None
    composition: Literal["sum", "product"] | None = None
    count: Literal["active", "all"] | None = None
    normalize_masks: MaskNorm | None = None
    mask_gradient: Literal["distance", "relative"] | None = None
    normalize_uncertainty: bool | None = None
    standardize: bool | None = None

    def resolved(self) -> Mode:
        """The mode's switches, with the fields that are not None in their place."""
        own = {field.name: getattr(self, field.name) for field in fields(Mode)}
        return replace(
            MODES[self.mode], **{name: value for name, value in own.items() if value is not None}
        )

    def without_switches(self) -> "PaperConfig":
        undecided: dict[str, Any] = dict.fromkeys((field.name for field in fields(Mode)), None)
        return replace(self, **undecided)


class Equation7:
    """The masked distance, KL and sparsity of Eq. 7; variance and covariance are in `Mast`.

    Args:
        mode: Its switches.
    """

    def __init__(self, mode: Mode) -> None:
        self.mode = mode

    def __call__(
        self,
        first: Gaussian,
        second: Gaussian,
        global_BD: tuple[Tensor, Tensor],
        mask_DK: Tensor,
        active_BK: Tensor,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weighted terms of two Gaussian embeddings, and statistics.

        Args:
            first: Mean and covariance of the first view, (B, D) each; the covariance may be None.
            second: Likewise, of the second view.
            global_BD: The means of both views over all processes.
            mask_DK: The masks.
            active_BK: Which subspaces each pair trains, those of the operators that were applied
                to either view; boolean, (B, K).
        """
        mode = self.mode
        squared_BD = (first.mean_BD - second.mean_BD).square()
        if mode.standardize:
            variance_D = (global_BD[0].var(dim=0) + global_BD[1].var(dim=0)) / 2
            squared_BD = squared_BD / (variance_D + 1e-4)
        terms, statistics = {}, {}
        covariance_BD = None
        if first.covariance_BD is not None and second.covariance_BD is not None:
            covariance_BD = (first.covariance_BD + second.covariance_BD) / 2
            trace_B = covariance_BD.detach().mean(dim=1)
            statistics["uncertainty"] = trace_B.mean()
            statistics["uncertainty_spread"] = gather(trace_B).std()
            scale = global_mean(covariance_BD) if mode.normalize_uncertainty else 1.0
            terms["kl"] = mode.kl_weight * symmetric_kl(
                squared_BD, first.covariance_BD / scale, second.covariance_BD / scale
            )
        masked = self._masked(squared_BD, covariance_BD, mask_DK, active_BK)
        terms["masked"] = mode.masked_weight * masked
        terms["plain"] = mode.plain_weight * squared_BD.mean()
        terms["sparsity"] = mode.sparsity_weight * mask_DK.mean()
        return terms, statistics

    def _masked(
        self, squared_BD: Tensor, covariance_BD: Tensor | None, mask_DK: Tensor, active_BK: Tensor
    ) -> Tensor:
        """The masked distance, whose gradient reaches the masks as `mask_gradient` says."""
        if self.mode.mask_gradient == "distance" or self.mode.masks != "learned":
            return self._distance(squared_BD, covariance_BD, mask_DK, active_BK)
        loss = self._distance(squared_BD, covariance_BD, mask_DK.detach(), active_BK)
        mean_D = global_sum(squared_BD.detach().mean(dim=0)) / processes()
        relative_BD = squared_BD.detach() / (mean_D + EPS)
        learned = self._distance(relative_BD, None, mask_DK, active_BK)
        return loss + learned - learned.detach()

    def _distance(
        self, squared_BD: Tensor, covariance_BD: Tensor | None, mask_DK: Tensor, active_BK: Tensor
    ) -> Tensor:
        """The masked distance of the batch, a scalar, over the uncertainty unless that is None."""
        mode = self.mode
        if mode.masks == "none":
            # One subspace, the whole embedding, for every pair.
            mask_DK, active_BK = mask_DK[:, :1], active_BK.new_ones(len(active_BK), 1)
        if mode.composition == "product":
            # One subspace a pair, the intersection of those of its operators.
            weight_BD = intersection(mask_DK, active_BK)
            active_BK = active_BK.any(dim=1, keepdim=True)
            distance_BK = (weight_BD * squared_BD).sum(dim=1, keepdim=True)
        else:
            distance_BK = masked_distance(squared_BD, mask_DK)
        if covariance_BD is not None:
            if mode.composition == "product":
                uncertainty_BK = (weight_BD * covariance_BD).sum(dim=1, keepdim=True)
            else:
                uncertainty_BK = masked_uncertainty(covariance_BD, mask_DK)
            if mode.normalize_uncertainty:
                active_share = global_mean(active_BK.to(uncertainty_BK.dtype))
                total = global_mean(uncertainty_BK * active_BK)
                uncertainty_BK = uncertainty_BK * (active_share + EPS) / (total + EPS)
            distance_BK = distance_BK / (uncertainty_BK + EPS)
        return subspace_mean(distance_BK, active_BK, mode.count)

    def warnings(self, metrics: Mapping[str, float], operators: int) -> Iterator[str]:
        """The traps of Eq. 7 that the logged metrics show."""
        remedy = "use objective.mode guarded"
        learned = self.mode.masks == "learned"
        if learned and metrics.get("stat/mask_mean", 1.0) < 0.02:
            yield (
                f"masks died: their mean is {metrics['stat/mask_mean']:.4f}. The masked distance "
                f"and the sparsity term both fall as the masks shrink; {remedy} or "
                "objective.normalize_masks l2."
            )
        free = self.mode.uncertainty and not self.mode.normalize_uncertainty
        if free and metrics.get("stat/uncertainty", 1.0) > 20.0:
            yield (
                f"uncertainty exploded: the mean predicted variance is "
                f"{metrics['stat/uncertainty']:.0f}. Every distance is divided by it and nothing "
                f"holds it down; {remedy} or objective.normalize_uncertainty."
            )
        share = metrics.get("stat/mask_active_share", 1.0)
        if learned and share < 0.25 / operators:
            yield (
                f"masks concentrate: a mask uses {share:.1%} of the dimensions, so most of the "
                "embedding need not be invariant to anything. Give the masks a smaller rate "
                "(optimizer.gate_lr) or a larger objective.plain_weight."
            )
        # Wide masks overlap by design (leave_one_out); narrow ones that do have moved together.
        if learned and share < 0.5 and metrics.get("stat/mask_cosine", 0.0) > 0.9:
            yield (
                f"masks hide: their mean pairwise cosine is {metrics['stat/mask_cosine']:.2f}, so "
                "the operators share one subspace instead of each having its own. Give the "
                f"masks a smaller rate (optimizer.gate_lr), or {remedy}."
            )
