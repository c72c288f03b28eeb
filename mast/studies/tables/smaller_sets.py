"""The paper's tables of smaller sets: 6 and Figure 8 on Flowers-17 and Cars, 7 on STL-10."""

from dataclasses import asdict
from typing import Any

from mast.recipes import recipe
from mast.studies.tables.imagenet import FIFTEEN, FIVE, MAST_5, NOTE, TABLE2, TOP1, UNCERTAIN
from mast.studies.tables.paper_table import (
    AUGSELF,
    NEAR_COPIES,
    VIEWS_DIFFER,
    Column,
    PaperTable,
    Row,
)

# VICReg's base rate at 128 images (its Table of batch sizes), which MAST shares.
LARS: dict[str, Any] = {"optimizer": {"lr": 0.8}}
RESNET18: dict[str, Any] = {"encoder": {"name": "resnet18"}, "batch_size": 128}
MULTIPLIERS = (0.25, 0.5, 2.0, 4.0)
SYMBOLS = {"masked_weight": "λ", "sparsity_weight": "λ₁", "kl_weight": "λ₂"}
COEFFICIENTS = asdict(recipe(MAST_5).objective.resolved())


def _of_itself(name: str, title: str) -> tuple[Column, Column]:
    """Pretrained and tested on one set."""
    column = Column(f"{title} top-1", name, name, "linear")
    return column, column._replace(title=f"{title} top-5", measure="top5")


TABLE6 = PaperTable(
    "Uncertainty on small sets",
    "MAST, Table 6",
    (*_of_itself("flowers17", "Flowers-17"), *_of_itself("cars", "Cars")),
    {
        "untrained": Row("untrained", (None,) * 4, "vicreg5", LARS, trained=False),
        "simsiam": Row("SimSiam", (24.6, 51.5, 12.7, 33.2), "simsiam"),
        "vi_simsiam": Row("VI-SimSiam", (19.7, 43.9, 14.9, 37.2), "vi_simsiam"),
        "vicreg5": Row("VICReg", (None,) * 4, "vicreg5", LARS),
        "vicreg5_staged": Row("VICReg, staged", (None,) * 4, "vicreg5_staged", LARS),
        "uncertainty": Row("MAST-5 (uncertainty only)", (26.5, 55.7, 16.4, 40.3),
                           "mast5_uncertainty_only", LARS | FIVE),
        "mast5": Row("MAST-5", (28.9, 59.1, 18.7, 44.1), MAST_5, LARS | FIVE),
        "default": Row("MAST-5, exempt blocks", (None,) * 4, "mast5", LARS),
        "mast15": Row("MAST-15", (None,) * 4, MAST_5, LARS | FIFTEEN),
    },
    "vicreg5",
    100,
    RESNET18,
    notes=(
        NOTE,
        "The paper names neither batch nor rates; at its scale they are 128 images a step, which "
        "the sets have, and the recipes' rates, VICReg's for that batch.",
        "The untrained encoder, VICReg, staged or not, exempt blocks and MAST-15 are not in the "
        "paper's table.",
        'The paper has "197" models of cars; the set has 196.',
        "Both sets are split: pretraining sees their training images, 680 and 8,144. The paper "
        "counts all, 1,360 and 16,185, and names no split.",
        NEAR_COPIES,
        VIEWS_DIFFER,
    ),
)  # fmt: skip

# AugSelf's, on which the paper's table builds: SGD at .03 for 256 images, 96 pixels.
STL10: dict[str, Any] = {"encoder": {"name": "resnet18"}, "batch_size": 256, "size": 96}
SGD: dict[str, Any] = {"optimizer": {"lr": 0.03, "weight_decay": 5e-4}}

TABLE7 = PaperTable(
    "Which way up an image of STL-10 is",
    "MAST, Table 7",
    (Column("rotation", "stl10", "stl10", "rotation", target="rotation"),),
    {
        "untrained": Row("untrained", (None,), "simsiam", SGD, trained=False),
        "simsiam": Row("SimSiam", (59.11,), "simsiam", SGD),
        "simsiam_augself": Row("SimSiam + AugSelf", (64.61,), "simsiam_augself", SGD),
        "mast5": Row("MAST-5", (63.47,), MAST_5, {**FIVE, "optimizer": {"lr": 0.5}}),
    },
    "simsiam",
    200,
    STL10,
    notes=(NOTE, "The untrained encoder is not in the paper's table.",
           "At the paper's scale the rate of MAST is VICReg's for 256 images.",
           "Pretraining sees the 100,000 unlabelled images; AugSelf's authors add the 5,000 of the "
           "training part, and weigh its terms 1 where they are 0.5 here.", AUGSELF, VIEWS_DIFFER),
)  # fmt: skip

FIGURE8 = PaperTable(
    "Sensitivity to the coefficients of the loss",
    "MAST, Figure 8, which prints no numbers",
    (
        TOP1,
        TABLE2.columns[0],
        Column("Flowers-17", "flowers17", "flowers17", "linear"),
        Column("Cars", "cars", "cars", "linear"),
    ),
    {
        "base": Row("all × 1", (None,) * 4, MAST_5, FIVE),
        **{
            f"{coefficient}-{by:g}": Row(f"{symbol} × {by:g}", (None,) * 4, MAST_5,
                                         {"objective": {**UNCERTAIN, coefficient: by * value}})
            for coefficient, symbol in SYMBOLS.items()
            if (value := COEFFICIENTS[coefficient])
            for by in MULTIPLIERS
        },
    },
    "base",
    by_set={name: {**RESNET18, **LARS, "epochs": 100} for name in ("flowers17", "cars")},
    notes=(
        NOTE + " λ₂ is 0 there: its KL term is left out.",
        "The paper does not name the two tasks of ImageNet's panel.",
        "Runs on Flowers-17 and Cars are those of Table 6.",
        NEAR_COPIES,
    ),
)  # fmt: skip
