"""Methods that predict operators: same properties, up to three learning rates, eight seeds.

As `small`, on larger sets; budgets list which other weights were chosen earlier. Seed 0 chooses
rates, seeds 0 to 2 choose candidates, and seeds 3 to 10 are tested. Trials of rows that
`candidates` shares are the same: copy its `validation` to the folder of `fair`. Photos are folders
with a subfolder per class: `steel` (NEU surface defects, 1,800 images), `tiles` (magnetic tiles,
1,344) and `flowers5` (five kinds, 4,317).
"""

from typing import Any

from experiments.small import DEPTHS, GENERATED, SETTINGS, TOLD, WEIGHT, Row, Small, Tasks
from experiments.variants import LR
from mast.evaluation.protocols.run import EvaluationSettings

PREDICTED = ("color", "position")
PHOTOS = ("flowers5", "steel", "tiles")
# Not at the edge: the best of VICReg + AugSelf (GRID) and of MAST-C (LARGEST). Others: guesses.
GRID = (LR, 3 * LR, 9 * LR)
LARGER = (3 * LR, 9 * LR, 27 * LR)
LARGEST = (9 * LR, 27 * LR, 81 * LR)
ONE: dict[str, tuple[str, ...]] = {
    "cifar10": ("linear",),
    "flowers17": ("linear",),
    "textures": ("linear",),
    **dict.fromkeys(PHOTOS, ("linear",)),
}
LINEAR = {
    "cifar10/class/linear": "objects",
    "cifar10/colour/linear": "color",
    "flowers17/class/linear": "flowers 17",
    "flowers5/class/linear": "flowers 5",
    "textures/class/linear": "textures",
    "steel/class/linear": "steel",
    "tiles/class/linear": "tiles",
}
TASKS = Tasks(
    protocols={
        "validation": ONE,
        "test": {
            **dict.fromkeys(ONE, ("knn", "linear", "fewshot")),
            GENERATED: ("linear",),
        },
    },
    columns={
        **LINEAR,
        **{f"{DEPTHS}{key}": f"{title}, depths" for key, title in LINEAR.items()},
        "cifar10/class/knn": "objects kNN",
        "cifar10/class/fewshot/5_a_class": "objects, 5 labels",
        "flowers5/class/knn": "flowers 5 kNN",
        "flowers5/class/fewshot/5_a_class": "flowers 5, 5 labels",
        "steel/class/fewshot/5_a_class": "steel, 5 labels",
        "factors/orientation/linear": "orientation",
        "factors/position/linear": "position",
    },
    groups={
        "objects": ("cifar10/class/linear",),
        "color": ("cifar10/colour/linear",),
        "flowers": ("flowers17/class/linear", "flowers5/class/linear"),
        "surfaces": ("textures/class/linear", "steel/class/linear", "tiles/class/linear"),
    },
    photos=PHOTOS,
    depths=True,
)


def predicting(
    title: str, recipe: str, tuned: str = "", rates: tuple[float, ...] = GRID, **objective: Any
) -> Row:
    """A row whose representation predicts the same properties as the others', with weight 0.5."""
    told = {"predicted": PREDICTED, "prediction": {"weight": 0.5}}
    return Row(title, recipe, {"objective": {**told, **objective}}, rates, tuned)


ROWS: dict[str, Row] = {
    "untrained": Row("untrained", "vicreg5_small", rates=()),
    "vicreg": Row("VICReg", "vicreg5_small", rates=GRID, tuned=WEIGHT),
    "vicreg_augself": predicting("VICReg + AugSelf, weight 0.5", "vicreg5_augself_small", TOLD),
    "lejepa": Row("LeJEPA", "lejepa_small", rates=GRID),
    "visreg": Row("VISReg", "visreg_small", rates=GRID),
    "simclr": Row("SimCLR", "simclr_small", rates=LARGER),
    "simclr_augself": predicting("SimCLR + AugSelf, weight 0.5", "simclr_small", rates=LARGER),
    "simsiam_augself": predicting(
        "SimSiam + AugSelf", "simsiam_augself_small", "a fourth rate, 0.005", LARGER
    ),
    "cassle": Row("CASSLE over VICReg", "cassle_small", rates=GRID),
    "looc": Row("LooC, four views", "looc_small", {"views": "looc"}, GRID),
    "mast": predicting("MAST-C over VICReg's distance", "mast_c5_distance_small", TOLD),
    "contrast": predicting(
        "MAST-C, heads of shallow depths",
        "mast_c5_small",
        "projector of 2, heads of 3; a fourth rate, 0.015",
        LARGEST,
        predict_from=("depths",),
    ),
    "contrast_last": predicting(
        "MAST-C, heads of the last map",
        "mast_c5_small",
        rates=LARGEST,
        predict_from=("block", "representation"),
    ),
    "contrast_everywhere": predicting(
        "MAST-C, weight 0.5",
        "mast_c5_small",
        "a fourth rate, 0.015",
        LARGEST,
    ),
    "contrast_representation": predicting(
        "MAST-C, heads of the representation, weight 0.5",
        "mast_c5_small",
        rates=LARGER,
        predict_from=("representation",),
    ),
    "contrast_no_block": predicting(
        "SimCLR + AugSelf, heads of all depths, weight 0.5",
        "mast_c5_small",
        rates=LARGER,
        exempt=(),
    ),
    # of `objectives`
    "heads_by_depth": predicting("VICReg, heads by depth", "by_depth_small", block=0),
    "conditioned": predicting("VICReg, conditioned block", "conditioned_small"),
    "equivariant": predicting("VICReg, equivariant block", "equivariant_small"),
    "masked_contrast": predicting("SimCLR, masked contrast", "masked_contrast_small", rates=LARGER),
    "contrast_by_depth": predicting(
        "SimCLR, heads by depth", "contrast_by_depth_small", rates=LARGER, exempt=()
    ),
    "depth_and_mask": predicting(
        "SimCLR, masked contrast, heads by depth", "contrast_by_depth_small", rates=LARGER
    ),
}


def weighted(name: str, title: str, weight: float, tuned: str = "") -> Row:
    """A row with another weight of predictions than 0.5, at the middle rate of its grid."""
    row = ROWS[name]
    return row._replace(
        title=title,
        changes={"objective": {**row.changes["objective"], "prediction": {"weight": weight}}},
        rates=row.rates[1:2],
        tuned=f"{tuned}prediction {weight:g} of 0.5, 1, 2",
    )


ROWS |= {
    "vicreg_augself_double": weighted("vicreg_augself", "VICReg + AugSelf", 1, f"{WEIGHT}; "),
    "simclr_augself_double": weighted("simclr_augself", "SimCLR + AugSelf", 1),
    "contrast_representation_double": weighted(
        "contrast_representation",
        "MAST-C, heads of the representation",
        1,
        "projector of 2, heads of 4; rate of SimCLR + AugSelf; ",
    ),
    "contrast_everywhere_double": weighted(
        "contrast_everywhere",
        "MAST-C (ours)",
        1,
        "projector of 2, heads of 4; rate of SimCLR + AugSelf; ",
    )._replace(rates=LARGER[1:2]),
    "contrast_no_block_double": weighted(
        "contrast_no_block",
        "SimCLR + AugSelf, heads of all depths",
        1,
    )._replace(tuned="rate of SimCLR + AugSelf; prediction 1 of 0.5, 1"),
}
# The default and its controls.
DECIDING = (
    "contrast_everywhere_double",
    "contrast_no_block_double",
    "simclr_augself_double",
    "vicreg_augself_double",
)
FAIR = Small(
    rows=ROWS,
    settings=EvaluationSettings(
        protocols={**SETTINGS.protocols, "fewshot": {"shots": (5,), "episodes": 0}}
    ),
    tasks=TASKS,
    results="fair",
    precision="float32",
    title="Methods that predict the same properties",
    baseline=DECIDING[-1],
    about=(
        f"AugSelf and MAST-C predict the operators that destroy {' and '.join(PREDICTED)}. Each "
        "prediction weighs 1 (of 0.5, 1 and 2 tried, heads of all depths without a block 0.5 and "
        "1; SimCLR + AugSelf and VICReg + AugSelf at the rate best at 0.5), but 0.5 in rows that "
        "say so, 'MAST-C, heads of shallow depths', MAST-C over "
        "VICReg's distance and SimSiam + AugSelf. Heads of all depths predict each property twice.",
    ),
)
