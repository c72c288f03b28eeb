"""The paper's tables of runs on ImageNet-100: 3, 4 and 9."""

from mast.studies.tables.imagenet import FIFTEEN, FIVE, MAST_5, NOTE, VIEWS
from mast.studies.tables.paper_table import AUGSELF, VIEWS_DIFFER, Column, PaperTable, Row

ON = "imagenet100"
EPOCHS = 500
IFM = "81.4 is of 200 epochs in IFM's paper, and stands among runs of 500."

THEIRS = "What is trained here is the row MoCo v2."
ENSEMBLE = (
    "Measured by `ensemble`: logistic regression on the masked embeddings, 4096 × 5 dimensions, "
    "where the paper prints 2048 × 5. The other rows are probed by SGD."
)
HEADS = (
    "Measured by `ensemble`: logistic regression on the first layers of the three heads, as LooC "
    "was trained."
)
ENSEMBLES = {"linear_sgd": "ensemble", "linear": "ensemble"}

TOP1, TOP5 = Column("top-1", ON, ON), Column("top-5", ON, ON, measure="top5")

TABLE3 = PaperTable(
    "Evaluation on ImageNet-100",
    "MAST, Table 3",
    (TOP1, TOP5),
    {
        "moco_v2": Row("MoCo v2", (81.0, 95.2), "moco_v2"),
        "ifm": Row("IFM-MoCo v2", (81.4, None), "ifm_moco_v2", epochs=200, note=IFM),
        "looc": Row("LooC", (79.2, 94.7), "looc"),
        "looc_ensemble": Row("LooC++ (ensemble)", (81.2, 95.2), "looc",
                             protocols=ENSEMBLES, note=HEADS),
        "mast5": Row("MAST-5", (81.9, 95.4), MAST_5, FIVE),
        "mast5_ensemble": Row("MAST-5 (ensemble)", (82.1, 95.4), MAST_5, FIVE,
                              protocols=ENSEMBLES,
                              note=ENSEMBLE),
        "mast15": Row("MAST-15", (82.5, 95.5), MAST_5, FIFTEEN),
    },
    "moco_v2",
    EPOCHS,
    notes=(NOTE, VIEWS_DIFFER),
)  # fmt: skip

TABLE4 = PaperTable(
    "From ImageNet-100 to CUB-200 and Flowers-102",
    "MAST, Table 4",
    (
        Column("CUB-200 top-1", "cub200", ON),
        Column("CUB-200 top-5", "cub200", ON, measure="top5"),
        Column("Flowers-102 5-shot", "flowers102", ON, "fewshot", "5_a_class"),
        Column("Flowers-102 10-shot", "flowers102", ON, "fewshot", "10_a_class"),
    ),
    {
        "moco_v2": Row("MoCo v2", (36.7, 64.7, 67.9, 77.3), "moco_v2"),
        "looc": Row("LooC", (39.6, 69.2, 70.9, 80.8), "looc"),
        "moco_v2_theirs": Row("MoCo v2*", (32.2, None, 78.5, 81.2), note=THEIRS),
        "moco_v2_augself": Row("MoCo v2* + AugSelf", (37.0, None, 81.7, 84.5), "moco_v2",
                               {"objective": {"predicted": ["position", "color"]}}),
        "simsiam": Row("SimSiam*", (38.4, None, 83.6, 85.9), "simsiam"),
        "simsiam_augself": Row("SimSiam* + AugSelf", (45.3, None, 86.4, 88.3),
                               "simsiam_augself"),
        "vicreg": Row("VICReg", (37.5, 65.2, 68.3, 77.5), "vicreg5"),
        "mast5": Row("MAST-5", (40.3, 69.8, 70.1, 81.2), MAST_5, FIVE),
        "mast15": Row("MAST-15", (41.1, 70.0, 72.4, 81.9), MAST_5, FIFTEEN),
    },
    "vicreg",
    EPOCHS,
    notes=(
        NOTE,
        VIEWS,
        "Rows with * were trained and probed by AugSelf's authors, in other ways than the others.",
        AUGSELF,
    ),
)  # fmt: skip

TABLE9 = PaperTable(
    "Fine-grained classification from ImageNet-100",
    "MAST, Table 9",
    (
        TOP1._replace(title="ImageNet-100 top-1"),
        TOP5._replace(title="ImageNet-100 top-5"),
        Column("iNat-1k top-1", "inat1k", ON),
        Column("iNat-1k top-5", "inat1k", ON, measure="top5"),
        Column("Cars", "cars", ON),
        Column("SUN397", "sun397", ON),
    ),
    {
        "moco_v2": Row("MoCo v2", (81.0, 95.2, 36.2, 62.0, 33.86, 46.50), "moco_v2"),
        "looc": Row("LooC", (79.2, 94.7, 44.0, 69.3, None, None), "looc"),
        "looc_ensemble": Row("LooC++", (81.2, 95.2, 46.1, 71.5, None, None), "looc",
                             protocols=ENSEMBLES, note=HEADS),
        "augself": Row("MoCo v2 + AugSelf", (82.4, None, None, None, 37.35, 48.52), "moco_v2",
                       {"objective": {"predicted": ["position", "color"]}}),
        "mast5": Row("MAST-5", (81.9, 95.4, 46.9, 72.1, 39.07, 49.87), MAST_5, FIVE),
        "mast15": Row("MAST-15", (82.5, 95.5, 48.1, 72.8, 39.86, 50.74), MAST_5, FIFTEEN),
    },
    "moco_v2",
    EPOCHS,
    notes=(NOTE, VIEWS_DIFFER, AUGSELF),
)  # fmt: skip
