"""What a table of the paper is: its rows and columns, what it prints, and two budgets to run it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from mast.studies.tables.small_scale import CIFAR, IMAGES, NARROW, SIZE

ScaleName = Literal["small", "paper"]


class ImageSet(NamedTuple):
    """A set of images, of the same name in the folder of sets.

    Attributes:
        title: As tables print it.
        images: To pretrain on; 0 for a set that nothing is pretrained on.
        classes: Of its labels, for supervised training.
        train: The part that is pretrained on.
        test: The part that is tested, where it is not `test`.
        layout: What stands before the folder's name where it is no folder a class.
    """

    title: str
    images: int = 0
    classes: int = 0
    train: str = "train"
    test: str = ""
    layout: str = ""


# Numbers of images: those of the sets' authors; of ImageNet-100 those of its usual list of classes
# (Tian et al., Contrastive Multiview Coding, ECCV 2020).
SETS: dict[str, ImageSet] = {
    "imagenet": ImageSet("ImageNet", 1_281_167, 1000, test="val"),
    "imagenet100": ImageSet("ImageNet-100", 126_689, 100, test="val"),
    "places205": ImageSet("Places205", test="val"),
    "voc07": ImageSet("VOC07", layout="voc:"),
    "voc0712": ImageSet("VOC07+12", layout="coco:"),
    "coco": ImageSet("COCO", layout="coco:"),
    "inat18": ImageSet("iNat18", test="val"),
    "inat1k": ImageSet("iNat-1k", test="val"),
    "cub200": ImageSet("CUB-200"),
    "flowers102": ImageSet("Flowers-102"),
    "sun397": ImageSet("SUN397"),
    "stl10": ImageSet("STL-10", 100_000, train="unlabeled"),
    "flowers17": ImageSet("Flowers-17", 680, 17),
    "cars": ImageSet("Cars", 8_144, 196),
    "cifar10": ImageSet("CIFAR-10", 50_000, 10),
    "dtd10": ImageSet("textures"),
    f"{CIFAR}-labelled": ImageSet(f"{IMAGES:,} images of CIFAR-10", IMAGES, 10, train=""),
}
SMALL_SET = f"{CIFAR}-labelled"  # is made of CIFAR-10

# What a reader of more than one table has to know.
AUGSELF = (
    "AugSelf's heads are this project's: one hidden layer with BatchNorm predicts the standardised "
    "differences of all operators that destroy a property; its authors' have two hidden layers "
    "and predict crops and colour jitter."
)
NEAR_COPIES = (
    "33 of the 340 test images of Flowers-17 have a near-copy in train or val (official split 1), "
    "so that all numbers on it are somewhat too good."
)
VIEWS_DIFFER = (
    "Rows differ in their views as well as in their objective where the budgets name other views."
)


class Column(NamedTuple):
    """What is measured.

    Attributes:
        title: As the paper heads it.
        test: The set that is tested, a key of `SETS`.
        on: The set that is pretrained on.
        protocol: By which it is tested.
        measure: Of the protocol.
        target: Of the set, or what the protocol makes of it.
        settings: Of the protocol, for the paper's scale.
    """

    title: str
    test: str
    on: str
    protocol: str = "linear_sgd"
    measure: str = "top1"
    target: str = "class"
    settings: Mapping[str, Any] = {}


class Row(NamedTuple):
    """What is trained.

    Attributes:
        title: As the paper calls it.
        published: What it prints, one number a column; None where it has none.
        recipe: What trains it; empty where there is nothing here that does.
        changes: What differs from the recipe.
        epochs: Of its run at the paper's scale; those of the table, or of the recipe, if None.
        protocols: Protocols that take the place of a column's.
        note: What a reader has to know of its numbers.
        labelled: Whether it is trained with labels.
        unmeasured: Protocols by which it is not measured, as they would say something else of it.
        only_at: The one scale at which it is trained; None: at each.
        trained: Whether it is, or is measured as it starts.
    """

    title: str
    published: tuple[float | None, ...]
    recipe: str = ""
    changes: Mapping[str, Any] = {}
    epochs: int | None = None
    protocols: Mapping[str, str] = {}
    note: str = ""
    labelled: bool = False
    unmeasured: tuple[str, ...] = ()
    only_at: ScaleName | None = None
    trained: bool = True


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, or a figure as one.

    Args:
        title: What it shows.
        source: Where the published numbers are from.
        columns: What is measured.
        rows: By a name for files; a row with nothing to train has published numbers alone.
        baseline: The row that the others are compared with.
        epochs: Of all rows at the paper's scale; those of the recipes if None.
        changes: What differs from the recipes in all rows, at the paper's scale.
        by_set: The same of the runs on a set, by its name; "epochs" is of the table's full length.
        notes: What the paper contradicts or leaves open.
    """

    title: str
    source: str
    columns: tuple[Column, ...]
    rows: Mapping[str, Row]
    baseline: str
    epochs: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    by_set: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scale:
    """A budget, and what stands in for what is beyond it.

    Args:
        suffix: Of the recipes' names.
        changes: What differs from the recipes in all rows.
        epochs: Of a run with the table's full length; the table's own if None.
        trained_on: What is pretrained on in place of a set; that set itself if not named. An empty
            name leaves its columns out.
        tested_on: What is tested on in place of a set, likewise.
        protocols: Protocols in place of others, likewise.
        settings: Of protocols, in place of the columns' own; None leaves those.
        by_recipe: What differs besides, by the recipe of a row.
        tuned: What was chosen for its runs, and how.
    """

    suffix: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    trained_on: Mapping[str, str] = field(default_factory=dict)
    tested_on: Mapping[str, str] = field(default_factory=dict)
    protocols: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] | None = None
    by_recipe: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tuned: str = ""


_NONE = ""
SCALES: dict[ScaleName, Scale] = {
    "paper": Scale(
        changes={"precision": "bf16-mixed"},  # on a CPU, too
        tuned="One trial a row, by the values of its recipe or those named here: nothing was tuned "
        "on these sets.",
    ),
    # A narrow ResNet-10 at 32 pixels, 12 epochs of 10,000 images: minutes a run on a CPU.
    "small": Scale(
        "_small",
        {
            "size": SIZE,
            "encoder": {**NARROW, "stem_stride": 2},
            "optimizer": {"lr": 5e-3},
            "batch_size": 64,
        },
        12,
        dict.fromkeys(("imagenet", "imagenet100", "stl10"), SMALL_SET) | {"cars": _NONE},
        {
            **dict.fromkeys(("imagenet", "imagenet100", "stl10"), "cifar10"),
            **dict.fromkeys(("inat18", "inat1k", "cub200", "flowers102"), "flowers17"),
            **dict.fromkeys(("places205", "sun397"), "dtd10"),
            **dict.fromkeys(("voc07", "voc0712", "coco", "cars"), _NONE),
        },
        {"linear_sgd": "linear"},
        {"finetune": {"changes": {"epochs": 5}}},
        # As VICReg beside it, whose small recipe has all operators from the start.
        {"vicreg5_staged": {"objective": {"invariance_weight": 10.0}}},
        "One trial a row, at one rate for all. It and the small recipes of VICReg and MAST come "
        "from earlier studies on CIFAR-10; nothing was tuned for the other rows.",
    ),
}
