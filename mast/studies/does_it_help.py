"""Does it help? MAST against VICReg on CIFAR-10 and its transfer sets, at equal budgets."""

import hashlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import torch

from mast.analyses import Grid
from mast.augment import ScheduleConfig
from mast.core.launch import Precision
from mast.core.run import plain
from mast.measure.sets import EvaluationData
from mast.protocols.run import EvaluationSettings
from mast.studies.engine import StudyRun
from mast.studies.experiment import Experiment, Measured, Workplace, last_metrics, probe
from mast.studies.sets import drawn_positions, folds, with_colours
from mast.studies.small_runs import CIFAR, NARROW, SIZE, link_cifar

LR = 5e-3  # at a batch of 256
WEIGHTS = (5.0, 10.0, 25.0)
SCORES = ("validation", "test")
COLUMNS = {
    "cifar10/class/knn": "objects kNN",
    "cifar10/class/linear": "objects",
    "cifar10/colour/linear": "colour",
    "flowers17/class/linear": "flowers",
    "textures/class/linear": "textures",
}
TASKS = tuple(name for name in COLUMNS if name.endswith("linear"))
PROTOCOLS = {"cifar10": ("knn", "linear"), "flowers17": ("linear",), "textures": ("linear",)}

# ------------------------------------------------------------------------------------- variants

UNSTAGED = ScheduleConfig(staged=False)
# All operators on half of the pairs, all but one on the other half.
ALL_BUT_ONE = ScheduleConfig(staged=False, leave_out=0.5)
# All operators on half of the pairs, one to four of the five on the other half.
SOME = ScheduleConfig(staged=False, leave_out=0.5, leave_out_count="any")

Fields = dict[str, Any]


def invariance(weight: float) -> Fields:
    """The weight of invariance of an objective without masks."""
    return {"invariance_weight": weight}


def masked(share: float = 1.0, width: float = 0.0) -> Callable[[float], Fields]:
    """The weights of an objective with masks.

    Args:
        share: Of the weight of invariance that the masked distance gets; the plain distance gets
            the rest.
        width: Reward of the mean mask entry, as a share of the weight of invariance.
    """
    return lambda weight: {
        "masked_weight": weight * share,
        "plain_weight": weight * (1 - share),
        "sparsity_weight": -weight * width,
    }


def printed(weight: float) -> Fields:
    """The weights as the recipe has them."""
    return {}


@dataclass(frozen=True)
class Variant:
    """One row of the table.

    Attributes:
        recipe: The recipe it starts from.
        weigh: Fields of the objective for a weight of invariance.
        objective: Fields of the objective that differ from the recipe's.
        schedule: How operators compose; in the paper's two stages if not given.
        gate_lr: Peak rate of the masks; 0 fixes them at their start.
        weights: Weights of invariance to sweep.
        trained: Whether it is trained at all.
        views: Preset of its views.
    """

    recipe: str
    weigh: Callable[[float], Fields]
    objective: Mapping[str, Any] = field(default_factory=dict)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    gate_lr: float = 1e-3
    weights: tuple[float, ...] = WEIGHTS
    trained: bool = True
    views: str = "mast5"


# All variants use VICReg's average pooling, so that they differ in the objective alone. Every
# switch of a mode is given here or by the weight: what a variant is does not move with the default.
PROJECTOR = {"hidden": 1024, "dim": 512, "pool": "average"}
LEAVE_ONE_OUT: Fields = {
    "mode": "guarded",
    "masks": "learned",
    "predict_from": "none",
    "projector": PROJECTOR,
    "uncertainty": False,
    "normalize_uncertainty": True,
    "kl_weight": 0.0,
    "composition": "product",
    "count": "active",
    "mask_start": "leave_one_out",
    "mask_common": 0.75,
    "normalize_masks": "l2",
    "mask_gradient": "relative",
    "standardize": False,
}
STANDARDIZED = LEAVE_ONE_OUT | {"standardize": True, "mask_gradient": "distance"}
HALF = STANDARDIZED | {"mask_common": 0.5}
SIGMA: Fields = {"uncertainty": True}
EXEMPT: Fields = {
    "mode": "exempt",
    "projector": PROJECTOR,
    "uncertainty": False,
    "masks": "exempt",
    "exempt": ("color",),
    "exempt_share": 0.03,
    "predict_from": "block",
    "kl_weight": 0.0,
    "composition": "product",
    "count": "active",
    "normalize_masks": "none",
    "mask_gradient": "distance",
    "standardize": False,
}
PROPERTIES = ("color", "position", "orientation", "focus")  # five operators destroy them
TEN = (10.0,)
STRONG = "mast5_strong"
V, M = "vicreg5_small", "mast5_small"
WIDE = masked(width=0.2)

VARIANTS: dict[str, Variant] = {
    "untrained": Variant(V, printed, weights=(0.0,), trained=False),
    "vicreg5": Variant(V, invariance, schedule=UNSTAGED),
    "vicreg5_staged": Variant(V, invariance),
    "vicreg5_all_but_one": Variant(V, invariance, schedule=ALL_BUT_ONE),
    "vicreg5_some": Variant(V, invariance, schedule=SOME),
    # As printed: the masks move with the rate of everything else.
    "mast5_literal": Variant(
        M, printed, {"mode": "paper", "uncertainty": True}, gate_lr=LR, weights=(25.0,)
    ),
    # Half of the dimensions start in every subspace, the others in all but one; standardized
    # distance in the intersection of the active subspaces. The masks barely move.
    "half": Variant(M, masked(), HALF),
    "half_plain": Variant(M, masked(0.5), HALF),
    # Wide masks are rewarded, so that they cannot concentrate and may move faster.
    "half_wide": Variant(M, WIDE, HALF, gate_lr=LR),
    # Three quarters of the dimensions start in every subspace.
    "wide": Variant(M, WIDE, STANDARDIZED, gate_lr=LR),
    "wide_sigma": Variant(M, WIDE, STANDARDIZED | SIGMA, gate_lr=LR),
    # Every operator from the start, as in unstaged VICReg.
    "wide_unstaged": Variant(M, WIDE, STANDARDIZED, UNSTAGED, gate_lr=LR),
    # All but one operator, the distance as it is: masks that stay where they start, masks that
    # compare operators within a dimension, those beside a plain distance, and the uncertainty
    # with either.
    "fixed": Variant(M, masked(), LEAVE_ONE_OUT, ALL_BUT_ONE, gate_lr=0.0),
    "fixed_sigma": Variant(M, masked(), LEAVE_ONE_OUT | SIGMA, ALL_BUT_ONE, gate_lr=0.0),
    "learned": Variant(M, WIDE, LEAVE_ONE_OUT, ALL_BUT_ONE),
    "learned_slow": Variant(M, WIDE, LEAVE_ONE_OUT, ALL_BUT_ONE, gate_lr=3e-4),
    "learned_some": Variant(M, WIDE, LEAVE_ONE_OUT, SOME, gate_lr=3e-4),
    "learned_slow_sigma": Variant(M, WIDE, LEAVE_ONE_OUT | SIGMA, ALL_BUT_ONE, gate_lr=3e-4),
    "learned_plain": Variant(M, masked(0.6, width=0.2), LEAVE_ONE_OUT, ALL_BUT_ONE),
    "learned_sigma": Variant(M, WIDE, LEAVE_ONE_OUT | SIGMA, ALL_BUT_ONE),
    # Exempt blocks whose dimensions tell what the operators did, and what is left of that without
    # the block (VICReg that has to tell, from its representation) or without the telling.
    "augself": Variant(V, invariance, {"told": ("color",)}, UNSTAGED),
    "augself_all": Variant(V, invariance, {"told": PROPERTIES}, UNSTAGED, weights=TEN),
    "exempt": Variant(M, masked(), EXEMPT, UNSTAGED),
    "exempt_both": Variant(M, masked(), EXEMPT | {"predict_from": "both"}, UNSTAGED),
    "exempt_representation": Variant(
        M, masked(), EXEMPT | {"predict_from": "representation"}, UNSTAGED, weights=TEN
    ),
    "exempt_silent": Variant(M, masked(), EXEMPT | {"predict_from": "none"}, UNSTAGED, weights=TEN),
    "exempt_all": Variant(M, masked(), EXEMPT | {"exempt": PROPERTIES}, UNSTAGED, weights=TEN),
    "exempt_wide": Variant(M, masked(), EXEMPT | {"exempt_share": 0.1}, UNSTAGED, weights=TEN),
    "exempt_half": Variant(
        M, masked(), EXEMPT | {"prediction": {"weight": 0.5}}, UNSTAGED, weights=TEN
    ),
    "budgeted": Variant(M, masked(), EXEMPT | {"masks": "budgeted"}, UNSTAGED, 1e-2, TEN),
    # The same where colours are destroyed.
    "strong_vicreg5": Variant(V, invariance, {}, UNSTAGED, weights=TEN, views=STRONG),
    "strong_augself": Variant(
        V, invariance, {"told": ("color",)}, UNSTAGED, weights=TEN, views=STRONG
    ),
    "strong_exempt": Variant(M, masked(), EXEMPT, UNSTAGED, weights=TEN, views=STRONG),
    "strong_exempt_both": Variant(
        M, masked(), EXEMPT | {"predict_from": "both"}, UNSTAGED, weights=TEN, views=STRONG
    ),
}

# ---------------------------------------------------------------------------------------- study


@final
@dataclass(frozen=True)
class DoesItHelp(Experiment):
    """Variants × weights of invariance × seeds, each pretrained on the same images.

    Linear and kNN probes score each on objects (CIFAR-10), colour (the bin of an image's mean
    colour, CIFAR-10), Flowers-17 and ten texture classes. By the runs `validation/…` variants are
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
    settings: EvaluationSettings | None = None
    precision: Precision = "32-true"  # bf16 is slow on a CPU without instructions for it

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        """See `Experiment.plan`."""
        runs = [
            self._run(workplace, name, weight, seed)
            for seed in seeds
            for name, variant in self.variants.items()
            for weight in variant.weights
        ]
        return [replace(run, name=f"{score}/{run.name}") for score in SCORES for run in runs]

    def _run(self, workplace: Workplace, name: str, weight: float, seed: int) -> StudyRun:
        variant = self.variants[name]
        trial = f"{name}-{weight:g}-{seed}"
        config = workplace.configure(
            trial,
            variant.recipe,
            workplace.derived(CIFAR),
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
        """See `Experiment.prepare`."""
        link_cifar(workplace, self.images)
        for name in ("cifar10/test", "flowers17/train", "flowers17/val", "flowers17/test",
                     "dtd10/train", "dtd10/test"):  # fmt: skip
            workplace.open(name, SIZE)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """See `Experiment.measure`."""
        encoder, metrics = workplace.encoder(run), last_metrics(run.folder)
        started = time.monotonic()
        sets = self.sets(workplace, run.name.partition("/")[0])
        scores = probe(encoder, sets, PROTOCOLS, self.settings)
        return {
            **run.changes,
            "seed": run.seed,
            "scores": scores,
            "last_metrics": metrics,
            "minutes": {
                "pretrain": metrics.get("seconds", 0.0) / 60,
                "probes": (time.monotonic() - started) / 60,
            },
            "epochs": self.epochs,
            "images": self.images,
            "size": SIZE,
            "encoder_sha256": _digest(encoder),
        }

    def sets(self, workplace: Workplace, score: str) -> dict[str, list[EvaluationData]]:
        """The probes' sets, whose scores are averaged.

        Hyper-parameters of a probe are tuned on a tenth of its training set (Flowers-17's own
        validation set for its test score). To validate, the two small sets are cross-validated,
        since a few hundred images separate no two variants.
        """
        everything = workplace.open("cifar10/train", SIZE)
        train, val = (
            everything.subset(drawn_positions(len(everything), self.images, part))
            for part in (0, 1)
        )
        train, val, test = with_colours((train, val, workplace.open("cifar10/test", SIZE)))
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
        """See `Experiment.table`: one row a variant and weight, best mean first, by score."""
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


def cell(values: Sequence[float]) -> str:
    """Mean, and the standard deviation over seeds where there are several."""
    mean = statistics.fmean(values)
    return f"{mean:.1f}" if len(values) == 1 else f"{mean:.1f} ± {spread(values):.1f}"


def spread(values: Sequence[float]) -> float:
    """Standard deviation over seeds; 0 for a single one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _digest(encoder: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in encoder.state_dict().values():
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
