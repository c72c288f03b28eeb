"""Candidates for the objective on validation images, at two rates; `fair` tests what is left.

The rule, fixed when VICReg, VICReg + AugSelf and one rate of two other rows were known:

1. All rows with seed 0 at the larger rate, which was the better one; those within a point of
   VICReg + AugSelf at the smaller one, too. The mean is by the last map or by all depths, whichever
   is better.
2. Those that are not half a point behind get seeds 1 and 2, and are dropped if they are then.
3. What is left becomes rows of `fair`. The default is the best of them if it is ahead of VICReg +
   AugSelf by both intervals, over test images and over seeds, and its objects are not more than a
   point behind VICReg's; otherwise VICReg + AugSelf.
"""

from experiments.fair import LINEAR, ONE, TASKS, predicting
from experiments.objectives import CANDIDATES
from experiments.small import DEPTHS, Row, Small
from experiments.variants import LR

RATES = (LR, 3 * LR)


def candidate(name: str, title: str = "", **objective: object) -> Row:
    """A candidate at two rates, which predicts the same properties if its kind does."""
    row = predicting(title or CANDIDATES[name].title, f"{name}_small", **objective)
    return row._replace(rates=RATES)


ROWS: dict[str, Row] = {
    "vicreg": Row("VICReg", "vicreg5_small", rates=RATES),
    "vicreg_augself": predicting("VICReg + AugSelf", "vicreg5_augself_small")._replace(rates=RATES),
    "mast": predicting("MAST, color exempt", "mast5_small")._replace(rates=RATES),
    "heads_by_depth": candidate("by_depth", "L, heads alone", block=0),
    "by_depth": candidate("by_depth", "L, heads and block"),
    "masked_contrast": candidate("masked_contrast", "N"),
    "contrast_by_depth": candidate("contrast_by_depth", "L, over SimCLR", exempt=()),
    "depth_and_mask": candidate("contrast_by_depth", "L and N"),
    "simclr_augself": predicting("SimCLR + AugSelf", "simclr_small")._replace(rates=RATES),
    "conditioned": candidate("conditioned", "C"),
    "cassle": Row("CASSLE over VICReg", "cassle_small", rates=RATES),
    "equivariant": candidate("equivariant", "Q"),
    "routed": candidate("routed", "R"),
    "budgeted": predicting("MAST, learned block", "mast5_small", masks="budgeted")._replace(
        rates=RATES
    ),
    "before": predicting(
        "VICReg + AugSelf, pooled before the layers", "mast5_small", exempt=(),
        projector={"pool": "before"},
    )._replace(rates=RATES),
    "mast_before": predicting(
        "MAST, pooled before the layers", "mast5_small", projector={"pool": "before"}
    )._replace(rates=RATES),
}  # fmt: skip
CANDIDATES_ON_VALIDATION = Small(
    rows=ROWS,
    tasks=TASKS._replace(
        protocols={"validation": ONE},
        columns={
            key: title for key, title in TASKS.columns.items() if key.removeprefix(DEPTHS) in LINEAR
        },
    ),
    results="candidates",
    precision="32-true",
    title="Candidates for the objective, on validation images",
    baseline="vicreg_augself",
    about=("All but VICReg and CASSLE predict color and position.",),
    tested=False,
)
