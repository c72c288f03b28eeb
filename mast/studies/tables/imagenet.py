"""The paper's tables of runs on ImageNet: 1, 2, 5, 8, 10 and Figure 4b."""

from typing import Any

from mast.augment.presets import MAST5, MAST15
from mast.studies.tables.paper_table import Column, PaperTable, Row

ON = "imagenet"
MAST_5 = "mast5_guarded"  # as printed the objective collapses; this is the nearest that does not
UNCERTAIN = {"uncertainty": True}  # which the small recipe leaves out
FIVE: dict[str, Any] = {"objective": UNCERTAIN}
FIFTEEN: dict[str, Any] = {**FIVE, "views": "mast15"}
NOTE = (
    "MAST is trained by `mast5_guarded`: the objective as printed, Eq. 7, collapses "
    "(`--objective.mode paper`)."
)
ONE_BLOCK = "Here it has words of the last block alone; published is with those of two blocks."
OWN_VIEWS = "What differs in its views stands beside the preset."
ONE_VIEW = "Here it has one strong view of an image; what differs in it stands beside the preset."
ALONE = (
    "Published with 1 % and 10 % of the labels, it learned from those labels alone; here it is "
    "trained on all, so that it is not measured so."
)
SIMSIAMS = "71.8 is of 800 epochs with two views, as SimSiam's authors trained it."
VIEWS = (
    "VICReg is trained in the views of MAST-5, so that the two differ in their objective; the "
    "published numbers are of its own views (`vicreg`). The other rows have their own."
)
FIRST = "The first version; here is the second."
NO_VIT = (
    "Published is a ResNet-50's, and the paper does not say what that is; here it is a ViT-B/16."
)
NO_CODE = (
    "Predictive contrastive learning (arXiv 2012.09962), of which no code was found: how it tells "
    "hidden pixels is chosen here."
)

TOP1, TOP5 = Column("linear top-1", ON, ON), Column("linear top-5", ON, ON, measure="top5")
BOXES: dict[str, Any] = {"protocol": "detection", "target": "objects"}


def _semi(share: int, measure: str) -> Column:
    title = f"{share} % top-{measure[-1]}"
    return Column(title, ON, ON, "semi", measure, f"class {share}%")


TABLE1 = PaperTable(
    "Evaluation on ImageNet",
    "MAST, Table 1",
    (
        TOP1, TOP5, _semi(1, "top1"), _semi(10, "top1"), _semi(1, "top5"), _semi(10, "top5"),
    ),
    {
        "supervised": Row("supervised", (76.5, None, 25.4, 56.4, 48.4, 80.4), "supervised",
                          note=ALONE, labelled=True, unmeasured=("semi",)),
        "moco": Row("MoCo", (60.6, None, None, None, None, None), note=FIRST),
        "simclr": Row("SimCLR", (69.3, 89.0, 48.3, 65.6, 75.5, 87.8), "simclr", epochs=1000),
        "pcl": Row("PCL", (71.0, None, None, None, None, None), "prcl", note=NO_CODE),
        "moco_v2": Row("MoCo v2", (71.1, None, None, None, None, None), "moco_v2"),
        "simsiam": Row("SimSiam", (71.3, None, None, None, None, None), "simsiam", epochs=800),
        "swav_two_views": Row("SwAV", (71.8, None, None, None, None, None), "swav",
                              {"views": "simclr"}, 800, note=SIMSIAMS),
        "obow": Row("OBoW", (73.8, None, None, None, 82.9, 90.7), "obow", note=ONE_BLOCK),
        "byol": Row("BYOL", (74.3, 91.6, 53.2, 68.8, 78.4, 89.0), "byol"),
        "swav": Row("SwAV (multi-crop)", (75.3, None, 53.9, 70.2, 78.5, 89.9), "swav",
                     only_at="paper"),
        "barlow_twins": Row("Barlow Twins", (73.2, 91.0, 55.0, 69.7, 79.2, 89.3),
                            "barlow_twins"),
        "vicreg": Row("VICReg", (73.2, 91.1, 54.8, 69.5, 79.4, 89.5), "vicreg5"),
        "mast5": Row("MAST-5", (74.9, 91.8, 55.2, 70.2, 80.1, 90.2), MAST_5, FIVE),
        "infomin": Row("InfoMin Aug", (73.0, 91.1, None, None, None, None), "infomin",
                       note=OWN_VIEWS),
        "clsa": Row("CLSA", (72.2, None, None, None, None, None), "clsa", note=ONE_VIEW),
        "mast15": Row("MAST-15", (75.8, 92.1, 55.8, 71.4, 81.0, 90.9), MAST_5, FIFTEEN),
    },
    "vicreg",
    notes=(NOTE, VIEWS, "The paper's numbers of MAST are means of three runs."),
)  # fmt: skip

TABLE2 = PaperTable(
    "Transfer from ImageNet",
    "MAST, Table 2",
    (
        Column("Places205", "places205", ON),
        Column("VOC07 mAP", "voc07", ON, "svm", "mAP"),
        Column("iNat18", "inat18", ON),
        Column("VOC07+12 AP50", "voc0712", ON, measure="ap50", **BOXES),
        Column("COCO boxes AP", "coco", ON, "segmentation", "ap", "objects"),
        Column("COCO masks AP", "coco", ON, "segmentation", "ap", "masks"),
    ),
    {
        "supervised": Row("supervised", (53.2, 87.5, 46.7, 81.3, 39.0, 35.4), "supervised",
                          labelled=True),
        "moco": Row("MoCo", (46.9, 79.8, 31.5, None, None, None), note=FIRST),
        "simclr": Row("SimCLR", (52.5, 85.5, 37.2, None, None, None), "simclr", epochs=1000),
        "moco_v2": Row("MoCo v2", (51.8, 86.4, 38.6, 82.5, 39.8, 36.1), "moco_v2"),
        "simsiam": Row("SimSiam", (None, None, None, 82.4, None, None), "simsiam", epochs=800),
        "byol": Row("BYOL", (54.0, 86.6, 47.6, None, 40.4, 37.0), "byol"),
        "swav": Row("SwAV (multi-crop)", (56.7, 88.9, 48.6, 82.6, 41.6, 37.8), "swav",
                     only_at="paper"),
        "obow": Row("OBoW", (56.8, 89.3, None, 82.9, None, None), "obow", note=ONE_BLOCK),
        "barlow_twins": Row("Barlow Twins", (54.1, 86.2, 46.5, 82.6, 40.0, 36.7),
                            "barlow_twins"),
        "vicreg": Row("VICReg", (54.3, 86.6, 47.0, 82.4, 39.4, 36.4), "vicreg5"),
        "mast5": Row("MAST-5", (58.9, 91.1, 49.5, 83.1, 41.9, 37.2), MAST_5, FIVE),
        "infomin": Row("InfoMin Aug", (None, None, None, 82.7, 40.6, 36.7), "infomin",
                       note=OWN_VIEWS),
        "clsa": Row("CLSA", (None, 93.6, None, 83.2, 42.3, None), "clsa", note=ONE_VIEW),
        "mast15": Row("MAST-15", (59.6, 92.8, 50.2, 84.0, 43.1, 38.3), MAST_5, FIFTEEN),
    },
    "vicreg",
    notes=(NOTE, VIEWS),
)  # fmt: skip

TABLE5 = PaperTable(
    "What each component of MAST adds",
    "MAST, Table 5",
    (
        TOP1,
        TABLE2.columns[0],
        TABLE2.columns[3],
        TABLE2.columns[5]._replace(title="COCO AP"),
    ),
    {
        "mast15": Row("MAST-15", (75.8, 59.6, 84.0, 38.3), MAST_5, FIFTEEN),
        "vicreg15": Row("VICReg (K=15)", (73.1, 53.5, 82.6, 36.9), "vicreg15"),
        "mast19": Row("MAST-19", (75.8, 59.4, 84.0, 38.4), MAST_5, {**FIVE, "views": "mast19"}),
        "vicreg5": Row("VICReg (K=5)", (73.2, 54.3, 82.4, 36.4), "vicreg5"),
        "mast5": Row("MAST-5", (74.9, 58.9, 83.1, 37.2), MAST_5, FIVE),
        "vicreg5_staged": Row("VICReg (K=5), staged", (73.4, 54.6, 82.4, 36.5),
                              "vicreg5_staged"),
        "handcrafted": Row("MAST-5, handcrafted masks", (74.3, 58.1, 82.5, 36.9),
                           "mast5_handcrafted", FIVE),
        "certain": Row("MAST-5, no uncertainty", (74.1, 57.5, 82.7, 36.8), MAST_5,
                       {"objective": {"uncertainty": False}}),
    },
    "vicreg5",
    notes=(NOTE, "The last column is of masks: 37.2 and 38.3 are those of Table 2."),
)  # fmt: skip

_EPOCHS = {200: (70.2, 70.9), 400: (72.3, 73.5), 800: (73.0, 74.5), 1000: (73.2, 74.9)}
TABLE8 = PaperTable(
    "ImageNet by epochs of pretraining",
    "MAST, Table 8",
    (TOP1,),
    {
        f"{name}-{epochs}": Row(
            f"{title}, {epochs} epochs", (published[at],), name, changes, epochs
        )
        for at, (title, name, changes) in enumerate(
            (("VICReg", "vicreg5", {}), ("MAST-5", MAST_5, FIVE))
        )
        for epochs, published in _EPOCHS.items()
    },
    "vicreg5-1000",
    epochs=1000,
    notes=(NOTE, "At 100 epochs Table 10 has 70.8 by another probe, at 200 this one has 70.9."),
)  # fmt: skip

TABLE10 = PaperTable(
    "MAST and MAE on ImageNet",
    "MAST, Table 10",
    (
        TOP1._replace(title="linear", settings={"learning_rates": (30.0,)}),
        Column("fine-tuning", ON, ON, "finetune", settings={"recipe": "a3"}),
    ),
    {
        "mae": Row("MAE", (37.8, 77.1), "mae", note=NO_VIT, only_at="paper"),
        "mast5": Row("MAST-5", (70.8, 78.8), MAST_5, FIVE),
    },
    "mast5",
    epochs=100,
    notes=(
        NOTE,
        "70.8 at 100 epochs stands beside 70.9 at 200 in Table 8, by another probe.",
        "The probe's rate starts at 30, as MoCo's, and falls by a cosine, MoCo's by steps.",
    ),
)


def _operators(count: int) -> dict[str, Any]:
    """So many of the fifteen; the first five and all are the presets of these names."""
    presets = {len(MAST5): FIVE, len(MAST15): FIFTEEN}
    return presets.get(count, {**FIFTEEN, "operators": list(MAST15[:count])})


FIGURE4B = PaperTable(
    "ImageNet by number of operators",
    "MAST, Figure 4b; the numbers of five and fifteen operators are those of Table 1",
    (TOP1,),
    {
        f"operators-{count}": Row(
            f"{count} operators: and {MAST15[count - 1]}" if count > len(MAST5) else "MAST-5",
            ({5: 74.9, 15: 75.8}.get(count),),
            MAST_5,
            _operators(count),
        )
        for count in range(len(MAST5), len(MAST15) + 1)
    },
    "operators-5",
    notes=(
        NOTE,
        "Operators are added in the order of the preset; the paper adds the least correlated "
        "first.",
    ),
)
