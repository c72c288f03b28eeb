"""The configuration of MAST: its modes, and every switch around them."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from mast.core.errors import UserError
from mast.methods.base import ABOVE_ZERO, PART, SHARE, TWO, MethodConfig, limited
from mast.methods.prediction import PredictionConfig, check_properties
from mast.models import GaussianProjectorConfig, check_sizes
from mast.models.masks import BlockKind, MaskKind, MaskNorm, MaskStart

Source = Literal["none", "block", "representation", "both"]


@dataclass(frozen=True)
class Mode:
    """The switches in which the modes differ, by default those of exempt; see `MastConfig`.

    A field of `MastConfig` that is None takes its value from the mode.
    """

    masked_weight: float = 10.0
    plain_weight: float = 0.0
    kl_weight: float = 0.0
    sparsity_weight: float = 0.0
    composition: Literal["sum", "product"] = "product"
    count: Literal["active", "all"] = "active"
    masks: Literal[BlockKind, MaskKind] = "exempt"
    predict_from: Source = "both"
    mask_start: MaskStart = "leave_one_out"
    normalize_masks: MaskNorm = "none"
    mask_gradient: Literal["distance", "relative"] = "distance"
    uncertainty: bool = False
    normalize_uncertainty: bool = True
    standardize: bool = False


# docs/method.md has all three. "exempt": fixed blocks that must tell what the operators did, and by
# which the invariance is chosen when images are compared. "guarded": Eq. 7 with what keeps its
# learned masks from collapsing. "paper": Eq. 7 as printed, which collapses.
MODES: dict[str, Mode] = {
    "exempt": Mode(),
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
class MastConfig(MethodConfig):
    """MAST's objective: exempt blocks, or Eq. 7, and every switch. None: as the mode says.

    Attributes:
        mode: "exempt", "guarded", or "paper" for Eq. 7 as printed.
        projector: Sizes and options of the Gaussian projector.
        uncertainty: Divide distances by the predicted covariance and add the KL term.
        masks: "exempt" (ones, but for a fixed block of each property in `exempt`), "budgeted"
            (such blocks, learned), "learned", "handcrafted" (disjoint blocks, fixed) or "none"
            (one term over the whole embedding: Table 6's "uncertainty only").
        exempt: Properties of an image ("color", "position", ...: `mast show operators`) that keep
            dimensions of their own. In these the views need not agree where an operator acted
            that destroys the property.
        exempt_share: Share of the dimensions that each of them gets.
        exempt_temperature: Of the sigmoid that "budgeted" masks are; the lower, the sharper.
        predict_from: What has to tell how the operators that destroy an exempt property differed
            between the views: its exempt "block", the encoder's "representation", "both" or "none".
        prediction: Weight and width of the heads that tell it.
        mask_start: Start of learned masks: "block" or "leave_one_out"; see `Masks`.
        mask_common: Share of the dimensions that "leave_one_out" starts in every subspace.
        masked_weight: The 25 in lambda = 25 d / K.
        plain_weight: Weight of an unmasked distance, VICReg's, beside the masked one.
        kl_weight: lambda_2.
        sparsity_weight: lambda_1 d K: weight of the mean mask entry. Negative beside
            normalize_masks "l2", it rewards wide masks.
        variance_weight: alpha.
        covariance_weight: beta.
        composition: Where a sample has several operators: "sum" adds the distances of their
            subspaces (Eq. 4), "product" takes the distance in their intersection, relative to
            its size.
        count: Divisor of the sum: the "active" operators of a sample, or "all" K.
        normalize_masks: "none" or "l2"; see `Masks`.
        mask_gradient: What the masks learn from: the "distance" itself, or differences
            "relative" to each dimension's mean over the global batch. A mask then compares
            operators within a dimension, and gains nothing by leaving the dimensions that are
            hard for every operator, nor by what the uncertainty says; the network learns from
            the distance as before.
        normalize_uncertainty: Divide the uncertainty of a pair in a subspace by its mean over
            the global batch, and the covariance in KL by its mean over batch and dimensions, so
            that neither scale carries gradient.
        standardize: Divide squared differences by each dimension's variance over the global
            batch, which makes a distance `2 (1 - correlation of the views)`: the embedding
            cannot lower it by shrinking, against the variance term.
    """

    takes = TWO
    limits = limited(mask_common=SHARE, exempt_share=PART, exempt_temperature=ABOVE_ZERO)
    mode: Literal["exempt", "guarded", "paper"] = "exempt"
    projector: GaussianProjectorConfig = field(default_factory=GaussianProjectorConfig)
    uncertainty: bool | None = None
    masks: Literal[BlockKind, MaskKind] | None = None
    exempt: tuple[str, ...] = ("color",)
    exempt_share: float = 0.03
    exempt_temperature: float = 0.25
    predict_from: Source | None = None
    prediction: PredictionConfig = field(default_factory=PredictionConfig)
    mask_start: MaskStart | None = None
    mask_common: float = 0.75
    masked_weight: float | None = None
    plain_weight: float | None = None
    kl_weight: float | None = None
    sparsity_weight: float | None = None
    variance_weight: float = 25.0
    covariance_weight: float = 1.0
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

    def check(self) -> None:
        super().check()
        check_sizes(self.projector)
        self.prediction.check()
        check_properties(self.exempt)
        mode = self.resolved()
        blocks = mode.masks in ("exempt", "budgeted")
        if mode.predict_from in ("block", "both") and not blocks:
            raise UserError(
                f"objective.predict_from {mode.predict_from} needs objective.masks exempt or "
                f"budgeted, got {mode.masks}, which has no block to predict from"
            )

    def without_switches(self) -> "MastConfig":
        undecided: dict[str, Any] = dict.fromkeys((field.name for field in fields(Mode)), None)
        return replace(self, **undecided)
