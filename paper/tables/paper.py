"""The paper's tables, which `paper.yaml` has as data, and two budgets to run them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from paper.experiment import CIFAR, NARROW, SIZE

ScaleName = Literal["small", "paper"]


class ImageSet(NamedTuple):
    """A set of images, of the same name in the folder of sets."""

    title: str
    images: int = 0  # to pretrain on
    classes: int = 0  # of its labels, for supervised training
    train: str = "train"  # the part that is pretrained on
    test: str = ""  # the part that is tested, where it is not `test`
    layout: str = ""  # stands before the folder's name where it is no folder a class


class Measure(NamedTuple):
    """What is measured."""

    title: str  # as the paper heads it
    test: str  # the set that is tested, a key of `SETS`
    train: str  # the set that is pretrained on
    protocol: str = "linear_sgd"
    measure: str = "top1"
    target: str = "class"
    settings: Mapping[str, Any] = {}  # of the protocol, at the paper's scale


class TableRow(NamedTuple):
    """What is trained."""

    title: str  # as the paper calls it
    published: tuple[float | None, ...]  # one number a column
    recipe: str = ""  # empty where nothing here trains it
    changes: Mapping[str, Any] = {}  # from the recipe
    epochs: int | None = None  # at the paper's scale; those of the table, or of the recipe, if None
    protocols: Mapping[str, str] = {}  # in place of a column's
    note: str = ""  # what a reader has to know of its numbers
    labelled: bool = False  # whether it is trained with labels
    unmeasured: tuple[str, ...] = ()  # protocols that would say something else of it
    only_at: ScaleName | None = None  # the one scale at which it is trained
    trained: bool = True  # whether it is, or is measured as it starts


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, or a figure as one."""

    title: str
    source: str  # of the published numbers
    columns: tuple[Measure, ...]
    rows: Mapping[str, TableRow]  # by a name for files
    baseline: str  # the row that the others are compared with
    epochs: int | None = None  # of all rows at the paper's scale; those of the recipes if None
    changes: Mapping[str, Any] = field(default_factory=dict)  # of all rows, at the paper's scale
    # The same of the runs on a set; "epochs" is of the table's full length.
    by_set: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what the paper contradicts or leaves open


@dataclass(frozen=True)
class Scale:
    """A budget and replacements for sets beyond it; an empty name omits columns."""

    suffix: str = ""  # of the recipes' names
    changes: Mapping[str, Any] = field(default_factory=dict)  # of all rows
    epochs: int | None = None  # of a run with the table's full length; the table's own if None
    trained_on: Mapping[str, str] = field(default_factory=dict)  # sets in place of others
    tested_on: Mapping[str, str] = field(default_factory=dict)
    protocols: Mapping[str, str] = field(default_factory=dict)  # in place of others
    settings: Mapping[str, Mapping[str, Any]] | None = None  # of protocols, in place of columns'
    by_recipe: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what differs besides
    tuned: str = ""  # what was chosen for its runs, and how


SMALL_SET = f"{CIFAR}-labelled"  # is made of CIFAR-10
_NONE = ""
SCALES: dict[ScaleName, Scale] = {
    "paper": Scale(
        changes={"precision": "bfloat16"},  # on a CPU, too
        tuned="One trial per row, with the values of its recipe or those named here; nothing was "
        "tuned on these sets.",
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
        # As for VICReg, whose small recipe has all operators from the start.
        {"vicreg5_staged": {"objective": {"invariance_weight": 10.0}}},
        "One trial per row, at one rate for all. It and the small recipes of VICReg and MAST come "
        "from earlier studies on CIFAR-10; nothing was tuned for the other rows.",
    ),
}


def _read(table: Mapping[str, Any]) -> PaperTable:
    columns = tuple(Measure(*names[:3], **dict(*names[3:])) for names in table["columns"])
    rows = {
        row: TableRow(
            title, tuple(published) or (None,) * len(columns), recipe or "", **dict(*other)
        )
        for row, (title, recipe, published, *other) in table["rows"].items()
    }
    notes = tuple(table["notes"])
    return PaperTable(**{**table, "columns": columns, "rows": rows, "notes": notes})


_DATA = yaml.safe_load(Path(__file__).with_name("paper.yaml").read_text("utf-8"))
# Numbers of images are those of the sets' authors; of ImageNet-100 those of its usual list of
# classes (Tian et al., Contrastive Multiview Coding, ECCV 2020).
SETS: dict[str, ImageSet] = {name: ImageSet(**fields) for name, fields in _DATA["sets"].items()}
# What a reader of more than one table has to know.
AUGSELF, NEAR_COPIES = (str(_DATA["notes"][name]) for name in ("augself", "near_copies"))
TABLES: Mapping[str, PaperTable] = {name: _read(table) for name, table in _DATA["tables"].items()}
