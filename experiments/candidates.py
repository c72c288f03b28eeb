"""Candidates for the objective on validation images; `fair` tests what is left.

The rule, fixed when no row had more than one seed:

1. All rows get three seeds at the larger rate, which was the better one for every row that had
   both; the references and a row of SimCLR show with one seed whether a still larger one is better
   (done for VICReg + AugSelf and `contrast`).
2. The mean of the groups is by all depths, which every row has better than the last map; that is
   reported beside it. A row is dropped that is half a point behind VICReg + AugSelf.
3. What is left becomes rows of `fair`, with seeds that no choice has seen. The best of it on
   validation images becomes the default if on test images its mean is ahead of VICReg + AugSelf's
   by both intervals, over images and over seeds, and its objects are not more than a point behind
   VICReg's; otherwise VICReg + AugSelf does. (Before any test, "the best on test images" became
   "the best on validation images": test images then decide between two methods only.)
4. `contrast` became the default so. The first test seed of SimCLR + AugSelf, the simplest control,
   was above it. Hence a second round on validation images: `FINALISTS` get three seeds at 0.015,
   0.045 and 0.135 (where a seed shows that a rate is worse, that one seed). The best by all depths
   becomes the default; within half a point of it, the best by the last map. It has to pass 3, too.
   (Not finished, as 5 replaced it: 0.135, and `contrast` at 0.045, lack seeds 1 and 2,
   `contrast_representation` 0.015 and 0.405.)
5. The weight of a prediction, 0.5, was chosen for VICReg, and SimCLR + AugSelf gained at 1. So
   finalists get the weights 1 and 2 with seed 0 at the rate 0.045, the best of SimCLR + AugSelf;
   what is then within half a point of the best gets three seeds. The choice on validation images is
   as in 4, at each row's best weight. It and SimCLR + AugSelf at its best weight are tested with
   seeds 3 to 10, in new runs; the test images are not new, as they led to 4. If SimCLR + AugSelf is
   the choice, or is ahead of it by both intervals, its recipe becomes the default, if it passes 3.
   (Fixed after three runs at weight 1: SimCLR + AugSelf two seeds, `contrast_representation` one.)
   The choice was `contrast_representation` at weight 1: of four rows within 0.3 points the best by
   the last map. VICReg + AugSelf then got the same weights (1: three seeds), SimSiam + AugSelf 1.
6. Under strong color operators (`strong` in `elsewhere`) 5's choice trailed VICReg + AugSelf by
   3.6 points: its heads never learned the hue. So rows whose heads read shallower depths ran
   there. One that with three seeds is ahead of 5's choice there by the interval over seeds, and
   in the second round within half a point of it by both readings, replaces it, if it passes 3 with
   seeds 3 to 10; it without a block (`contrast_no_block`) is tested beside it. (Fixed when the
   heads' explained variance of one seed was known, no score.)
7. LeJEPA and VISReg get three rates with seed 0 at the weight of their authors, and a lower and a
   higher weight at the middle rate. The best by all depths gets seeds 1 and 2, and AugSelf's heads
   with the weights 1, 0.3 and 0.1, as these losses are smaller than VICReg's. Rows of `fair` are
   tested with seeds 3 to 10, whatever comes out. What is within half a point of MAST-C becomes the
   base of MAST-C in place of the contrast, three seeds. (Fixed before the first run.) By seed 0
   LeJEPA was the better one, best at its authors' weight and the middle rate, like VISReg, and with
   heads two points behind MAST-C: neither becomes its base. Seeds 1 and 2 were not run.

`contrast` was added after three seeds of `depth_and_mask`: the same idea in the library, with heads
that read the depths that `mast adapt` reads; `contrast_last` has heads on the block and the last
map, as heads on depths alone cost one to two points there. `contrast_everywhere` was added when
the first seed of the test showed the same of `contrast`; after seed 0 it was behind. As it led
after the second seed of the second round, controls asked whether the block, or the weight of a
second head, is why. Rows whose best rate of seed 0 is 0.135 get 0.405, too.
"""

from experiments.fair import GRID, LARGER, LARGEST, LINEAR, ONE, TASKS, predicting, weighted
from experiments.fair import ROWS as TESTED_ROWS
from experiments.small import DEPTHS, Row, Small
from experiments.variants import LR

FINALISTS = {
    "contrast": "MAST-C, heads of shallow depths",
    "contrast_everywhere": "MAST-C",
    "contrast_representation": "MAST-C, heads of the representation",
    "simclr_augself": "SimCLR + AugSelf",
}
WEIGHED = {
    **FINALISTS,
    "vicreg_augself": "VICReg + AugSelf",
    "simsiam_augself": "SimSiam + AugSelf",
}
BESIDE = ("untrained", "simclr", "looc")  # rows of `fair` alone


def candidate(name: str, title: str, **objective: object) -> Row:
    """A candidate that predicts the same properties."""
    return predicting(title, f"{name}_small", **objective)


ROWS: dict[str, Row] = {
    **{
        f"{name}_{how}": weighted(name, f"{title}, weight {weight}", weight)
        for how, weight in (("double", 1), ("fourfold", 2))
        for name, title in WEIGHED.items()
    },
    **{name: row for name, row in TESTED_ROWS.items() if name not in BESIDE},
    **{
        f"{name}_{weight:g}": Row(
            f"{title}, weight {weight:g}",
            f"{name}_small",
            {"objective": {"regularizer_weight": weight}},
        )
        for name, title, weights in (
            ("lejepa", "LeJEPA", (0.02, 0.1)),
            ("visreg", "VISReg", (0.3, 0.9)),
        )
        for weight in weights
    },
    **{
        f"lejepa_augself_{weight:g}": candidate(
            "lejepa", f"LeJEPA + AugSelf, weight {weight:g}", prediction={"weight": weight}
        )
        for weight in (1, 0.3, 0.1)
    },
    "by_depth": candidate("by_depth", "VICReg, heads and block by depth"),
    "routed": candidate("routed", "VICReg, routed subspaces"),
    # Measured with blocks and a projector that the library no longer has.
    "budgeted": Row("MAST-C over VICReg's distance, learned blocks", ""),
    "before": Row("VICReg + AugSelf, GeM before the layers", ""),
    "mast_before": Row("MAST-C over VICReg's distance, GeM before the layers", ""),
    "vicreg_everywhere_double": candidate(
        "mast_c5_distance",
        "VICReg + AugSelf, heads of all depths",
        predict_from=("depths", "representation"),
        exempt=(),
        prediction={"weight": 1},
    ),
}
# Of the second round; controls and other weights have the best rate of SimCLR + AugSelf, or of
# VICReg + AugSelf.
RATES = dict.fromkeys(FINALISTS, (*GRID[:2], *LARGER[1:], LARGEST[-1])) | {
    name: (GRID if name.startswith("vicreg") else LARGER)[1:2]
    for name in ROWS
    if name.endswith(("_no_block", "_double", "_fourfold"))
}
RATES |= {"lejepa": GRID, "visreg": GRID}
RATES |= {name: GRID[1:2] for name in ROWS if name.startswith(("lejepa_", "visreg_"))}
RATES |= {"simsiam_augself": (LR, *LARGER), "simsiam_augself_double": LARGER[:2]}
CANDIDATES_ON_VALIDATION = Small(
    rows={
        name: row._replace(tuned="", rates=RATES.get(name, GRID[:2])) for name, row in ROWS.items()
    },
    tasks=TASKS._replace(
        protocols={"validation": ONE},
        columns={
            key: title for key, title in TASKS.columns.items() if key.removeprefix(DEPTHS) in LINEAR
        },
    ),
    results="candidates",
    precision="float32",
    title="Candidates for the objective, on validation images",
    baseline="vicreg_augself",
    about=(
        "All but VICReg, LeJEPA, VISReg and CASSLE predict color and position with one head each; "
        "MAST-C over VICReg's distance, 'MAST-C, heads of the last map' and 'heads and block by "
        "depth' also predict color from the block, so it counts twice there.",
        "MAST-C, and others with heads of all depths, predict each property twice. MAST-C, also "
        "with "
        "heads of the representation, SimCLR + AugSelf, also with heads of all depths, and VICReg "
        "+ AugSelf weigh predictions 1, others 0.5 where they do not say.",
        "No learning rates but these and the tested rows' were scored; some minutes include "
        "pauses.",
        "4 of the 863 validation images of flowers 5 are also training images.",
    ),
    tested=False,
)
