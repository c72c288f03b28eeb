"""Does it help? Exempt blocks against VICReg on CIFAR-10 and its transfer sets, one budget."""

import hashlib
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import torch

from experiments.small_sets import folds, probe, with_colors
from experiments.variants import LR, VARIANTS, Variant
from mast.analyses import Grid
from mast.core.launch import Precision
from mast.core.run import plain
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings
from paper.experiment import (
    CIFAR,
    NARROW,
    SIZE,
    Experiment,
    Measured,
    Workplace,
    drawn_positions,
    last_metrics,
    link_cifar,
)
from paper.seeds import cell
from paper.studies.engine import StudyRun

SCORES = ("validation", "test")
COLUMNS = {
    "cifar10/class/knn": "objects kNN",
    "cifar10/class/linear": "objects",
    "cifar10/colour/linear": "color",
    "flowers17/class/linear": "flowers",
    "textures/class/linear": "textures",
}
TASKS = tuple(name for name in COLUMNS if name.endswith("linear"))
# Variants are chosen by linear probes; those of the test have the other ways to use an encoder too.
PROTOCOLS = {
    "validation": {"cifar10": ("knn", "linear"), "flowers17": ("linear",), "textures": ("linear",)},
    "test": {
        "cifar10": ("knn", "linear", "rotation", "fewshot", "retrieval"),
        "flowers17": ("linear", "fewshot", "retrieval"),
        "textures": ("linear", "fewshot", "retrieval"),
    },
}
FEW = {  # of the test sets, beside the columns
    f"{task}/fewshot/5_a_class": name
    for task, name in (
        ("cifar10/class", "objects"), ("cifar10/colour", "color"),
        ("flowers17/class", "flowers"), ("textures/class", "textures"),
    )
}  # fmt: skip
SETTINGS = EvaluationSettings(protocols={"fewshot": {"shots": (5,), "episodes": 0}})


@final
@dataclass(frozen=True)
class DoesItHelp(Experiment):
    """Variants × weights of invariance × seeds, each pretrained on the same images.

    Linear and kNN probes score each on objects (CIFAR-10), color (the bin of an image's mean
    color, CIFAR-10), Flowers-17 and ten texture classes. By the runs `validation/…` variants are
    chosen: other training images of CIFAR-10, Flowers-17's validation set and a third of the
    textures' training images. The runs `test/…` fill the final table.
    It needs `cifar10/{train,test}`, `flowers17/{train,val,test}` and `dtd10/{train,test}`.
    """

    results: ClassVar[str] = "does_it_help"
    seeded: ClassVar[bool] = True

    variants: Mapping[str, Variant] = field(default_factory=lambda: VARIANTS)
    images: int = 10_000
    epochs: int = 12
    batch_size: int = 64
    encoder: Mapping[str, Any] = field(default_factory=lambda: {**NARROW, "stem_stride": 2})
    settings: EvaluationSettings = SETTINGS
    precision: Precision = "float32"  # bf16 is slow on a CPU without instructions for it

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        runs = [
            self._run(workplace, name, weight, seed)
            for seed in seeds
            for name, variant in self.variants.items()
            for weight in variant.weights
        ]
        return [
            replace(run, name=f"{score}/{run.name}")
            for score in SCORES
            for run in runs
            if score == "test" or self.variants[run.changes["variant"]].images is None
        ]

    def _run(self, workplace: Workplace, name: str, weight: float, seed: int) -> StudyRun:
        variant = self.variants[name]
        trial = f"{name}-{weight:g}-{seed}"
        config = workplace.configure(
            trial,
            variant.recipe,
            workplace.derived(_set(variant.images)),
            recipe=trial,
            size=SIZE,
            objective={**variant.objective, **variant.weigh(weight)},
            schedule=plain(variant.schedule),
            views=variant.views,
            encoder=dict(self.encoder),
            optimizer={"lr": LR, "gate_lr": variant.gate_lr},
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=seed,
            precision=self.precision,
            score_every=self.epochs,
        )
        changes = {"variant": name, "weight": weight}
        return StudyRun(trial, changes, config, seed, variant.trained)

    def prepare(self, workplace: Workplace) -> None:
        for images in {variant.images for variant in self.variants.values()}:
            link_cifar(workplace, images or self.images, _set(images))
        for name in ("cifar10/test", "flowers17/train", "flowers17/val", "flowers17/test",
                     "dtd10/train", "dtd10/test"):  # fmt: skip
            workplace.open(name, SIZE)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        frozen, metrics = workplace.frozen(run), last_metrics(run.folder)
        started = time.monotonic()
        score = run.name.partition("/")[0]
        probed = probe(frozen, self.sets(workplace, score), PROTOCOLS[score], self.settings)
        return {
            **run.changes,
            "seed": run.seed,
            "scores": probed.scores,
            "each": probed.each,
            "last_metrics": metrics,
            "minutes": {
                "pretrain": metrics.get("seconds", 0.0) / 60,
                "probes": (time.monotonic() - started) / 60,
            },
            "epochs": self.epochs,
            "images": self.variants[run.changes["variant"]].images or self.images,
            "size": SIZE,
            "precision": self.precision,
            "encoder_sha256": _digest(frozen.module),
        }

    def sets(self, workplace: Workplace, score: str) -> dict[str, list[EvaluationData]]:
        """The probes' sets, whose scores are averaged.

        Hyper-parameters of a probe are tuned on a tenth of its training set, of fewer than 5,000
        images by cross-validation, and for Flowers-17's test score on its own validation set. To
        validate, the two small sets are split three ways and every image is scored once, since a
        few hundred images separate no two variants.
        """
        everything = workplace.open("cifar10/train", SIZE)
        train, val = (
            everything.subset(drawn_positions(len(everything), self.images, part))
            for part in (0, 1)
        )
        train, val, test = with_colors((train, val, workplace.open("cifar10/test", SIZE)))
        flowers = {
            part: workplace.open(f"flowers17/{part}", SIZE) for part in ("train", "val", "test")
        }
        textures = {part: workplace.open(f"dtd10/{part}", SIZE) for part in ("train", "test")}
        if score == "validation":
            whole = EvaluationData(flowers["train"], None, flowers["val"], SIZE)
            return {
                "cifar10": [EvaluationData(train, None, val, SIZE)],
                "flowers17": [whole, *folds(flowers["train"], SIZE)],
                "textures": folds(textures["train"], SIZE),
            }
        return {
            "cifar10": [EvaluationData(train, None, test, SIZE)],
            "flowers17": [EvaluationData(flowers["train"], flowers["val"], flowers["test"], SIZE)],
            "textures": [EvaluationData(textures["train"], None, textures["test"], SIZE)],
        }

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """One row a variant and weight, best mean first, by score."""
        groups: dict[tuple[str, str, float], list[Measured]] = defaultdict(list)
        for name, result in measured.items():
            score = name.rpartition("/")[0]
            groups[score, result["variant"], result["weight"]].append(result)
        ordered = sorted(
            groups.items(),
            key=lambda item: (item[0][0], -statistics.fmean(map(mean_of_tasks, item[1]))),
        )
        rows = tuple(
            (
                *(() if score == "" else (score,)), variant, f"{weight:g}", str(len(results)),
                *(cell([result["scores"][task] for result in results]) for task in COLUMNS),
                cell([mean_of_tasks(result) for result in results]),
            )
            for (score, variant, weight), results in ordered
        )  # fmt: skip
        columns = ("variant", "weight", "seeds", *COLUMNS.values(), "mean of four tasks")
        scored = any(score != "" for score, *_ in groups)
        return Grid((*(("score",) if scored else ()), *columns), rows)


def mean_of_tasks(result: Measured) -> float:
    """The mean over the four tasks, by which variants are compared."""
    return statistics.fmean(result["scores"][task] for task in TASKS)


def _set(images: int | None) -> str:
    """The set that a variant is pretrained on."""
    return CIFAR if images is None else f"cifar10-{images}"


def _digest(encoder: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in encoder.state_dict().values():
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
