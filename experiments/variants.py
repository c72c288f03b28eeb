"""The rows of the study `does_it_help`: what is trained, and how its terms are weighed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mast.augment import PRESETS, Preset, ScheduleConfig, View
from mast.augment.presets import MAST5

LR = 5e-3  # at a batch of 256
WEIGHTS = (5.0, 10.0, 25.0)

UNSTAGED = ScheduleConfig(staged=False)
# All operators on half of the pairs, all but one on the other half.
ALL_BUT_ONE = ScheduleConfig(staged=False, leave_out=0.5)

# Colors are destroyed where they are usually only disturbed.
STRONG = View({"color_jitter": {"saturation": 0.4, "hue": 0.5}, "grayscale": {"probability": 0.4}})
PRESETS["mast5_strong"] = Preset(MAST5, (STRONG, STRONG))

Fields = dict[str, Any]


def invariance(weight: float) -> Fields:
    """The weight of invariance of VICReg and of MAST-C over its distance."""
    return {"invariance_weight": weight}


def masked(width: float = 0.0) -> Callable[[float], Fields]:
    """The weights of MAST, with a reward of the mean mask entry as a share of the first."""
    return lambda weight: {"masked_weight": weight, "sparsity_weight": -weight * width}


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


# All variants use VICReg's average pooling, so that they differ in the objective alone.
PROJECTOR = {"hidden": 1024, "dim": 512}
CERTAIN: Fields = {"projector": {**PROJECTOR, "pool": "average"}, "uncertainty": False}
SIGMA: Fields = {**CERTAIN, "uncertainty": True}
EXEMPT: Fields = {
    "projector": PROJECTOR,
    "exempt": ("color",),
    "exempt_share": 0.03,
    "predicted": ("color",),
    "predict_from": ("block",),
    "prediction": {"weight": 1.0},
}
ONE: Fields = {"prediction": {"weight": 1.0}}  # of the prediction of each operator
LESS: Fields = {"prediction": {"weight": 0.5}}
BOTH: Fields = {"predict_from": ("block", "representation")}
PROPERTIES = ("color", "position", "orientation", "focus")  # five operators destroy them
TEN = (10.0,)
V, M, C = "vicreg5_small", "mast5_small", "mast_c5_distance_small"
WIDE = masked(width=0.2)

VARIANTS: dict[str, Variant] = {
    "untrained": Variant(V, printed, weights=(0.0,), trained=False),
    "vicreg5": Variant(V, invariance, schedule=UNSTAGED),
    "vicreg5_staged": Variant(V, invariance),
    "vicreg5_all_but_one": Variant(V, invariance, schedule=ALL_BUT_ONE),
    # As printed: the masks move with the rate of everything else.
    "mast5_literal": Variant(M, printed, {"printed": True}, gate_lr=LR, weights=(25.0,)),
    # All but one operator: masks that stay where they start, learned ones, and the uncertainty with
    # either. (The results `half…`, `wide…`, `learned_plain`, `budgeted` and `…_some` used options
    # that were removed: where masks start, how distances are standardized, a second, plain
    # distance, learned blocks, and leaving out one to four operators.)
    "fixed": Variant(M, masked(), CERTAIN, ALL_BUT_ONE, gate_lr=0.0),
    "fixed_sigma": Variant(M, masked(), SIGMA, ALL_BUT_ONE, gate_lr=0.0),
    "learned": Variant(M, WIDE, CERTAIN, ALL_BUT_ONE),
    "learned_slow": Variant(M, WIDE, CERTAIN, ALL_BUT_ONE, gate_lr=3e-4),
    "learned_slow_sigma": Variant(M, WIDE, SIGMA, ALL_BUT_ONE, gate_lr=3e-4),
    "learned_sigma": Variant(M, WIDE, SIGMA, ALL_BUT_ONE),
    # Exempt blocks whose dimensions tell what the operators did, and what is left of that without
    # the block (VICReg that has to tell, from its representation) or without the telling.
    "augself": Variant(V, invariance, {"predicted": ("color",), **ONE}, UNSTAGED),
    "augself_half": Variant(
        V, invariance, {"predicted": ("color",), **LESS}, UNSTAGED, weights=TEN
    ),
    "augself_all": Variant(V, invariance, {"predicted": PROPERTIES, **ONE}, UNSTAGED, weights=TEN),
    "exempt": Variant(C, invariance, EXEMPT, UNSTAGED),
    "exempt_both": Variant(C, invariance, EXEMPT | BOTH, UNSTAGED),
    "exempt_both_half": Variant(C, invariance, EXEMPT | LESS | BOTH, UNSTAGED, weights=TEN),
    "exempt_representation": Variant(
        C, invariance, EXEMPT | {"predict_from": ("representation",)}, UNSTAGED, weights=TEN
    ),
    "exempt_silent": Variant(C, invariance, EXEMPT | {"predict_from": ()}, UNSTAGED, weights=TEN),
    "exempt_all": Variant(
        C,
        invariance,
        EXEMPT | {"exempt": PROPERTIES, "predicted": PROPERTIES},
        UNSTAGED,
        weights=TEN,
    ),
    "exempt_wide": Variant(C, invariance, EXEMPT | {"exempt_share": 0.1}, UNSTAGED, weights=TEN),
    "exempt_half": Variant(C, invariance, EXEMPT | LESS, UNSTAGED, weights=TEN),
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
