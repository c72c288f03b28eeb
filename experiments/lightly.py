"""A row of lightly's CIFAR-10 benchmark: the same network, views, optimizer, epochs and kNN.

Theirs (docs/source/getting_started/benchmarks/cifar10_benchmark.py): ResNet-18 with a 3 x 3 stem,
batch 128, 200 epochs, SGD with momentum 0.9, rate 0.06 that falls to 0 along a half cosine, weight
decay 5e-4 of all parameters, no blur, float32; kNN of 200 neighbors at temperature 0.1, the best
epoch on test images. Ours is the last epoch's, in bfloat16; BYOL's momentum rises from 0.99 to 1,
theirs stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import torch

from mast.analyses import Grid
from mast.augment import PRESETS, Preset, View
from mast.augment.presets import MAST5
from mast.encoders.extract import extract
from mast.evaluation.accuracy import accuracy
from mast.search.nearest import nearest, votes
from paper.experiment import SIZE, Experiment, Measured, Workplace, last_metrics
from paper.seeds import spread
from paper.studies.engine import StudyRun

NEIGHBORS, TEMPERATURE = 200, 0.1
VIEWS, UNEQUAL = "lightly", "lightly_byol"
CROP = {"random_resized_crop": {"scale": (0.08, 1.0)}}
JITTERED = View({**CROP, "color_jitter": {"saturation": 0.4}})
PLAIN = View({**CROP, "solarize": {"probability": 0.0}})
SOLARIZED = View({**CROP, "solarize": {"probability": 0.2, "threshold": (0.5, 0.5)}})


# Residual branches do not start at zero, as they do in VICReg's code and our recipes.
ENCODER = {"name": "resnet18", "stem": "small", "stem_stride": 1,
           "options": {"zero_init_residual": False}}  # fmt: skip


class Row(NamedTuple):
    """A method with lightly's sizes.

    Attributes:
        recipe: Where it starts from.
        objective: What differs.
        published: Their accuracy in percent; None where they have none.
        views: A preset.
        lr: At a batch of 256.
    """

    recipe: str
    objective: dict[str, Any]
    published: float | None = None
    views: str = VIEWS
    lr: float = 0.12


CONTRAST = {"projector": {"hidden": 512, "dim": 128}, "temperature": 0.5}  # as their NTXentLoss
AUGSELF = {"predicted": ("color", "position"), "prediction": {"weight": 1.0}}  # as MAST-C's
WIDE = {"projector": {"hidden": 2048, "dim": 2048}}
ROWS = {
    "simclr": Row("simclr", CONTRAST, 84.7),
    "mast_c": Row("mast_c5", CONTRAST),
    "simclr_augself": Row("simclr", CONTRAST | AUGSELF),
    "vicreg": Row("vicreg5", WIDE),
    "mast": Row("mast5", WIDE),
    "byol": Row(  # its loss is four times theirs
        "byol", {"projector": {"hidden": 1024, "dim": 256}, "momentum": 0.99}, 86.9, UNEQUAL, 0.03
    ),
}


@final
@dataclass(frozen=True)
class Lightly(Experiment):
    """Rows × seeds; it needs `cifar10/{train,test}`."""

    results: ClassVar[str] = "lightly"
    seeded: ClassVar[bool] = True

    epochs: int = 200

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        PRESETS[VIEWS] = Preset(MAST5[:-1], (JITTERED, JITTERED))
        PRESETS[UNEQUAL] = Preset((*MAST5[:-1], "solarize"), (PLAIN, SOLARIZED))
        return [
            StudyRun(f"{name}-{seed}", {"row": name}, self._config(workplace, name, seed), seed)
            for seed in seeds
            for name in ROWS
        ]

    def _config(self, workplace: Workplace, name: str, seed: int) -> Any:
        row = ROWS[name]
        optimizer = {
            "name": "sgd", "lr": row.lr, "weight_decay": 5e-4, "treat_alike": True, "momentum": 0.9,
            "warmup": 0, "final": 0.0,
        }  # fmt: skip
        return workplace.configure(
            f"{name}-{seed}", row.recipe, workplace.sets / "cifar10/train", size=SIZE,
            views=row.views, encoder=ENCODER,
            objective=row.objective, optimizer=optimizer, epochs=self.epochs, batch_size=128,
            seed=seed, score_every=self.epochs,
        )  # fmt: skip

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """kNN top-1 on test images, in percent."""
        encoder = workplace.encoder(run)
        train, test = (workplace.open(f"cifar10/{part}", SIZE) for part in ("train", "test"))
        bank_ND, queries_MD = (extract(encoder, each, SIZE) for each in (train, test))
        similarity_MK, at_MK = nearest(bank_ND, queries_MD, NEIGHBORS)
        label_N, label_M = (torch.from_numpy(each.targets["class"]) for each in (train, test))
        scores_MC = votes(similarity_MK, label_N[at_MK], TEMPERATURE, 1 + int(label_N.max()))
        metrics = last_metrics(run.folder)
        return {**run.changes, "seed": run.seed, "minutes": metrics["seconds"] / 60,
                "last_metrics": metrics, "knn": accuracy(scores_MC, label_M, "top1")}  # fmt: skip

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """One row a method."""
        rows = []
        for name, row in ROWS.items():
            knn = [each["knn"] for each in measured.values() if each["row"] == name]
            own = f"{sum(knn) / len(knn):.1f} ± {spread(knn):.1f}" if knn else ""
            rows.append((name, own, str(row.published or ""), str(len(knn))))
        return Grid(("method", "kNN (%)", "lightly", "seeds"), tuple(rows))
