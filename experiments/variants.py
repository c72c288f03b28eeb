"""The rows of the study `does_it_help`: what is trained, and how its terms are weighed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mast.augment import ScheduleConfig

LR = 5e-3  # at a batch of 256
WEIGHTS = (5.0, 10.0, 25.0)

UNSTAGED = ScheduleConfig(staged=False)
# All operators on half of the pairs, all but one on the other half.
ALL_BUT_ONE = ScheduleConfig(staged=False, leave_out=0.5)
# All operators on half of the pairs, one to four of the five on the other half.
SOME = ScheduleConfig(staged=False, leave_out=0.5, leave_out_count="any")

Fields = dict[str, Any]


def invariance(weight: float) -> Fields:
    """The weight of invariance of an objective without masks."""
    return {"invariance_weight": weight}


def masked(share: float = 1.0, width: float = 0.0) -> Callable[[float], Fields]:
    """The weights of an objective with masks.

    Args:
        share: Of the weight of invariance that the masked distance gets; the plain distance gets
            the rest.
        width: Reward of the mean mask entry, as a share of the weight of invariance.
    """
    return lambda weight: {
        "masked_weight": weight * share,
        "plain_weight": weight * (1 - share),
        "sparsity_weight": -weight * width,
    }


def printed(weight: float) -> Fields:
    """The weights as the recipe has them."""
    return {}


@dataclass(frozen=True)
class Variant:
    """One row of the table.

    Attributes:
        recipe: The recipe it starts from.
        weigh: Fields of the objective for a weight of invariance.
        objective: Fields of the objective that differ from the recipe's.
        schedule: How operators compose; in the paper's two stages if not given.
        gate_lr: Peak rate of the masks; 0 fixes them at their start.
        weights: Weights of invariance to sweep.
        trained: Whether it is trained at all.
        views: Preset of its views.
        images: To pretrain on, of CIFAR-10; as many as the study has if None. With all of them
            none is left to validate on, so that only the test sets are scored.
    """

    recipe: str
    weigh: Callable[[float], Fields]
    objective: Mapping[str, Any] = field(default_factory=dict)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    gate_lr: float = 1e-3
    weights: tuple[float, ...] = WEIGHTS
    trained: bool = True
    views: str = "mast5"
    images: int | None = None


# All variants use VICReg's average pooling, so that they differ in the objective alone. Every
# switch of a mode is given here or by the weight: what a variant is does not move with the default.
PROJECTOR = {"hidden": 1024, "dim": 512, "pool": "average"}
LEAVE_ONE_OUT: Fields = {
    "mode": "guarded",
    "masks": "learned",
    "predict_from": "none",
    "projector": PROJECTOR,
    "uncertainty": False,
    "normalize_uncertainty": True,
    "kl_weight": 0.0,
    "composition": "product",
    "count": "active",
    "mask_start": "leave_one_out",
    "mask_common": 0.75,
    "normalize_masks": "l2",
    "mask_gradient": "relative",
    "standardize": False,
}
STANDARDIZED = LEAVE_ONE_OUT | {"standardize": True, "mask_gradient": "distance"}
HALF = STANDARDIZED | {"mask_common": 0.5}
SIGMA: Fields = {"uncertainty": True}
EXEMPT: Fields = {
    "mode": "exempt",
    "projector": PROJECTOR,
    "uncertainty": False,
    "masks": "exempt",
    "exempt": ("color",),
    "exempt_share": 0.03,
    "predict_from": "block",
    "prediction": {"weight": 1.0},
    "kl_weight": 0.0,
    "composition": "product",
    "count": "active",
    "normalize_masks": "none",
    "mask_gradient": "distance",
    "standardize": False,
}
ONE: Fields = {"prediction": {"weight": 1.0}}  # of the prediction of each operator
LESS: Fields = {"prediction": {"weight": 0.5}}
PROPERTIES = ("color", "position", "orientation", "focus")  # five operators destroy them
TEN = (10.0,)
V, M = "vicreg5_small", "mast_c5_distance_small"
WIDE = masked(width=0.2)

VARIANTS: dict[str, Variant] = {
    "untrained": Variant(V, printed, weights=(0.0,), trained=False),
    "vicreg5": Variant(V, invariance, schedule=UNSTAGED),
    "vicreg5_staged": Variant(V, invariance),
    "vicreg5_all_but_one": Variant(V, invariance, schedule=ALL_BUT_ONE),
    "vicreg5_some": Variant(V, invariance, schedule=SOME),
    # As printed: the masks move with the rate of everything else.
    "mast5_literal": Variant(
        M, printed, {"mode": "paper", "uncertainty": True}, gate_lr=LR, weights=(25.0,)
    ),
    # Half of the dimensions start in every subspace, the others in all but one; standardized
    # distance in the intersection of the active subspaces. The masks barely move.
    "half": Variant(M, masked(), HALF),
    "half_plain": Variant(M, masked(0.5), HALF),
    # Wide masks are rewarded, so that they cannot concentrate and may move faster.
    "half_wide": Variant(M, WIDE, HALF, gate_lr=LR),
    # Three quarters of the dimensions start in every subspace.
    "wide": Variant(M, WIDE, STANDARDIZED, gate_lr=LR),
    "wide_sigma": Variant(M, WIDE, STANDARDIZED | SIGMA, gate_lr=LR),
    # Every operator from the start, as in unstaged VICReg.
    "wide_unstaged": Variant(M, WIDE, STANDARDIZED, UNSTAGED, gate_lr=LR),
    # All but one operator, the distance as it is: masks that stay where they start, masks that
    # compare operators within a dimension, those beside a plain distance, and the uncertainty
    # with either.
    "fixed": Variant(M, masked(), LEAVE_ONE_OUT, ALL_BUT_ONE, gate_lr=0.0),
    "fixed_sigma": Variant(M, masked(), LEAVE_ONE_OUT | SIGMA, ALL_BUT_ONE, gate_lr=0.0),
    "learned": Variant(M, WIDE, LEAVE_ONE_OUT, ALL_BUT_ONE),
    "learned_slow": Variant(M, WIDE, LEAVE_ONE_OUT, ALL_BUT_ONE, gate_lr=3e-4),
    "learned_some": Variant(M, WIDE, LEAVE_ONE_OUT, SOME, gate_lr=3e-4),
    "learned_slow_sigma": Variant(M, WIDE, LEAVE_ONE_OUT | SIGMA, ALL_BUT_ONE, gate_lr=3e-4),
    "learned_plain": Variant(M, masked(0.6, width=0.2), LEAVE_ONE_OUT, ALL_BUT_ONE),
    "learned_sigma": Variant(M, WIDE, LEAVE_ONE_OUT | SIGMA, ALL_BUT_ONE),
    # Exempt blocks whose dimensions tell what the operators did, and what is left of that without
    # the block (VICReg that has to tell, from its representation) or without the telling.
    "augself": Variant(V, invariance, {"predicted": ("color",), **ONE}, UNSTAGED),
    "augself_half": Variant(
        V, invariance, {"predicted": ("color",), **LESS}, UNSTAGED, weights=TEN
    ),
    "augself_all": Variant(V, invariance, {"predicted": PROPERTIES, **ONE}, UNSTAGED, weights=TEN),
    "exempt": Variant(M, masked(), EXEMPT, UNSTAGED),
    "exempt_both": Variant(M, masked(), EXEMPT | {"predict_from": "both"}, UNSTAGED),
    "exempt_both_half": Variant(
        M, masked(), EXEMPT | LESS | {"predict_from": "both"}, UNSTAGED, weights=TEN
    ),
    "exempt_representation": Variant(
        M, masked(), EXEMPT | {"predict_from": "representation"}, UNSTAGED, weights=TEN
    ),
    "exempt_silent": Variant(M, masked(), EXEMPT | {"predict_from": "none"}, UNSTAGED, weights=TEN),
    "exempt_all": Variant(M, masked(), EXEMPT | {"exempt": PROPERTIES}, UNSTAGED, weights=TEN),
    "exempt_wide": Variant(M, masked(), EXEMPT | {"exempt_share": 0.1}, UNSTAGED, weights=TEN),
    "exempt_half": Variant(M, masked(), EXEMPT | LESS, UNSTAGED, weights=TEN),
    "budgeted": Variant(M, masked(), EXEMPT | {"masks": "budgeted"}, UNSTAGED, 1e-2, TEN),
}
# Of the above, at the weights that validation chose, where something else differs.
CHOSEN = ("vicreg5", "augself_half", "exempt_half", "exempt_both_half")
REGIMES: dict[str, Fields] = {
    "strong": {"views": "mast5_strong"},  # colors are destroyed
    "fifteen": {"views": "mast15"},
    "long": {"images": 50_000},  # for as many epochs, hence five times the steps
}
VARIANTS |= {
    f"{regime}_{name}": replace(VARIANTS[name], weights=TEN, **differs)
    for regime, differs in REGIMES.items()
    for name in CHOSEN
}
# What is beaten there by most may choose its weight anew.
VARIANTS["strong_vicreg5"] = replace(VARIANTS["strong_vicreg5"], weights=WEIGHTS)
