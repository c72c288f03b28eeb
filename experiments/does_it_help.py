"""Does it help? MAST against VICReg on CIFAR-10 and its transfer sets, at equal budgets.

    python experiments/does_it_help.py --sets SETS --seeds 0 1 2 [--score test] [--shard 0/2]

SETS holds `cifar10/{train,test}`, `flowers17/{train,val,test}` and `dtd10/{train,test}` as image
folders. Every (variant, weight, seed) pretrains one encoder on 10,000 CIFAR-10 training images
and is scored by linear and kNN probes on: objects (CIFAR-10), colour (the bin of an image's mean
colour, CIFAR-10), Flowers-17 and 10 texture classes. `--score validation` (the default; 10,000
other training images of CIFAR-10, Flowers-17's validation set, a third of the textures' training
images) is what variants are chosen by; `--score test` fills the final table.

Each score is a file in experiments/results/does_it_help/; what is there already is left alone, so
the same command continues. `--shard i/n` lets n processes share the work.
"""

import argparse
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mast.augment import ScheduleConfig
from mast.commands.pretrain import pretrain
from mast.config import PretrainConfig, build_method
from mast.core.checkpoint import write_json
from mast.core.run import RunFolder, provenance
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.measure.sets import EvaluationData
from mast.models import Encoder, EncoderConfig, GaussianProjectorConfig, load_encoder
from mast.protocols.run import evaluate_encoder
from mast.recipes import recipe

RESULTS = Path(__file__).parent / "results" / "does_it_help"
SIZE = 32
IMAGES = 10_000
EPOCHS = 12
BATCH = 64
LR = 5e-3  # at a batch of 256
ENCODER = EncoderConfig(
    "timm:resnet18",
    {
        "layers": [1, 1, 1, 1],
        "channels": [32, 64, 128, 256],
        "stem_type": "deep",
        "stem_width": 16,
    },
    stem_stride=2,
)


UNSTAGED = ScheduleConfig(staged=False)
# All operators on half of the pairs, all but one on the other half.
ALL_BUT_ONE = ScheduleConfig(staged=False, leave_out=0.5)
# All operators on half of the pairs, one to four of the five on the other half.
SOME = ScheduleConfig(staged=False, leave_out=0.5, leave_out_count="any")


@dataclass(frozen=True)
class Variant:
    """One row of the table.

    Attributes:
        recipe: The recipe it starts from; None is the untrained encoder.
        objective: Fields of the objective that differ from the recipe's.
        masked: Share of the weight of invariance that the masked distance gets; the plain
            distance gets the rest.
        weights: Weights of invariance to sweep.
        gate_lr: Peak rate of the masks; 0 fixes them at their start.
        width: Reward of the mean mask entry, as a share of the weight of invariance.
        schedule: How operators compose; in the paper's two stages if not given.
    """

    recipe: str | None
    objective: dict[str, Any] = field(default_factory=dict)
    masked: float = 1.0
    weights: tuple[float, ...] = (5.0, 10.0, 25.0)
    gate_lr: float = 1e-3
    width: float = 0.0
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)


# All variants use VICReg's average pooling, so that they differ in the objective alone. Every
# switch of a mode is given here or by the job: what a variant is does not move with the default.
LEAVE_ONE_OUT: dict[str, Any] = {
    "projector": GaussianProjectorConfig(1024, 512, pool="average"),
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
SIGMA: dict[str, Any] = {"uncertainty": True}

VARIANTS: dict[str, Variant] = {
    "untrained": Variant(None, weights=(0.0,)),
    "vicreg5": Variant("vicreg5_small", schedule=UNSTAGED),
    "vicreg5_staged": Variant("vicreg5_small"),
    "vicreg5_all_but_one": Variant("vicreg5_small", schedule=ALL_BUT_ONE),
    "vicreg5_some": Variant("vicreg5_small", schedule=SOME),
    # As printed: the masks move with the rate of everything else.
    "mast5_literal": Variant(
        "mast5_small", {"mode": "paper", "uncertainty": True}, weights=(25.0,), gate_lr=LR
    ),
    # Half of the dimensions start in every subspace, the others in all but one; standardized
    # distance in the intersection of the active subspaces. The masks barely move.
    "half": Variant("mast5_small", HALF, gate_lr=1e-3),
    "half_plain": Variant("mast5_small", HALF, gate_lr=1e-3, masked=0.5),
    # Wide masks are rewarded, so that they cannot concentrate and may move faster.
    "half_wide": Variant("mast5_small", HALF, gate_lr=LR, width=0.2),
    # Three quarters of the dimensions start in every subspace.
    "wide": Variant("mast5_small", STANDARDIZED, gate_lr=LR, width=0.2),
    "wide_sigma": Variant("mast5_small", STANDARDIZED | SIGMA, gate_lr=LR, width=0.2),
    # Every operator from the start, as in unstaged VICReg.
    "wide_unstaged": Variant("mast5_small", STANDARDIZED, gate_lr=LR, width=0.2, schedule=UNSTAGED),
    # All but one operator, the distance as it is: masks that stay where they start, masks that
    # compare operators within a dimension, those beside a plain distance, and the uncertainty
    # with either.
    "fixed": Variant("mast5_small", LEAVE_ONE_OUT, gate_lr=0.0, schedule=ALL_BUT_ONE),
    "fixed_sigma": Variant("mast5_small", LEAVE_ONE_OUT | SIGMA, gate_lr=0.0, schedule=ALL_BUT_ONE),
    "learned": Variant("mast5_small", LEAVE_ONE_OUT, gate_lr=1e-3, width=0.2, schedule=ALL_BUT_ONE),
    "learned_slow": Variant(
        "mast5_small", LEAVE_ONE_OUT, gate_lr=3e-4, width=0.2, schedule=ALL_BUT_ONE
    ),
    "learned_some": Variant("mast5_small", LEAVE_ONE_OUT, gate_lr=3e-4, width=0.2, schedule=SOME),
    "learned_slow_sigma": Variant(
        "mast5_small", LEAVE_ONE_OUT | SIGMA, gate_lr=3e-4, width=0.2, schedule=ALL_BUT_ONE
    ),
    "learned_plain": Variant(
        "mast5_small",
        LEAVE_ONE_OUT,
        masked=0.6,
        gate_lr=1e-3,
        width=0.2,
        schedule=ALL_BUT_ONE,
    ),
    "learned_sigma": Variant(
        "mast5_small", LEAVE_ONE_OUT | SIGMA, gate_lr=1e-3, width=0.2, schedule=ALL_BUT_ONE
    ),
}


@dataclass(frozen=True)
class Job:
    """One encoder to train and score."""

    variant: str
    weight: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.weight:g}-{self.seed}"

    def config(self, sets: Path, runs: Path) -> PretrainConfig:
        """Its pretraining run."""
        variant = VARIANTS[self.variant]
        base = recipe(variant.recipe or "vicreg5_small")
        objective = replace(base.objective, **variant.objective)
        if variant.recipe is not None and objective.__class__.__name__ == "VICRegConfig":
            objective = replace(objective, invariance_weight=self.weight)
        elif variant.recipe is not None and self.variant != "mast5_literal":
            objective = replace(
                objective,
                masked_weight=self.weight * variant.masked,
                plain_weight=self.weight * (1 - variant.masked),
                sparsity_weight=-self.weight * variant.width,
            )
        return replace(
            base,
            recipe=self.name,
            out=runs / self.name,
            data=DataConfig(str(sets / "cifar10-10k")),
            size=SIZE,
            objective=objective,
            schedule=variant.schedule,
            encoder=ENCODER,
            optimizer=replace(base.optimizer, lr=LR, gate_lr=variant.gate_lr),
            epochs=EPOCHS,
            batch_size=BATCH,
            seed=self.seed,
            threads=1,
            device="cpu",
            precision="bf16-mixed",
            score_every=EPOCHS,
        )


def jobs(seeds: list[int], names: list[str], weights: list[float] | None) -> Iterator[Job]:
    """All jobs, in the order in which they are most useful."""
    for seed in seeds:
        for name in names:
            for weight in VARIANTS[name].weights:
                if weights is None or weight in weights or len(VARIANTS[name].weights) == 1:
                    yield Job(name, weight, seed)


# --------------------------------------------------------------------------------------- data


def cifar(sets: Path) -> tuple[CanvasSet, CanvasSet, CanvasSet]:
    """Training, validation and test images of CIFAR-10, with classes and colour bins."""
    everything = open_canvas(str(sets / "cifar10" / "train"), SIZE)
    order = np.random.default_rng(0).permutation(len(everything))
    train = everything.subset(np.sort(order[:IMAGES]))
    val = everything.subset(np.sort(order[IMAGES : 2 * IMAGES]))
    test = open_canvas(str(sets / "cifar10" / "test"), SIZE)
    threshold_C = np.median(_mean_colour(train), axis=0)
    names = tuple(f"{r}{g}{b}" for r in "rR" for g in "gG" for b in "bB")
    coloured = []
    for canvases in (train, val, test):
        bits_NC = (_mean_colour(canvases) > threshold_C).astype(np.int64)
        colour_N = bits_NC @ np.array([4, 2, 1])
        coloured.append(
            replace(
                canvases,
                targets={**canvases.targets, "colour": colour_N},
                classes={**canvases.classes, "colour": names},
            )
        )
    return coloured[0], coloured[1], coloured[2]


def _mean_colour(canvases: CanvasSet) -> np.ndarray:
    return np.asarray(canvases.images).mean(axis=(1, 2), dtype=np.float64)


def link_pretraining_images(sets: Path) -> None:
    """A folder of links to the 10,000 training images, flat: pretraining sees no labels."""
    target = sets / "cifar10-10k"
    if target.is_dir():
        return
    everything = open_canvas(str(sets / "cifar10" / "train"), SIZE)
    order = np.random.default_rng(0).permutation(len(everything))
    partial = target.with_name(target.name + ".partial")
    partial.mkdir(exist_ok=True)
    for index in np.sort(order[:IMAGES]):
        identifier = everything.identifiers[index]
        link = partial / identifier.replace("/", "-")
        if not link.is_symlink():
            link.symlink_to((sets / "cifar10" / "train" / identifier).resolve())
    partial.rename(target)


def evaluation_sets(sets: Path, score: str) -> dict[str, list[EvaluationData]]:
    """The probes' sets, whose scores are averaged.

    Hyper-parameters of a probe are tuned on a tenth of its training set (Flowers-17's own
    validation set for its test score). The two small sets are cross-validated, since a few
    hundred images separate no two variants.
    """
    train, val, test = cifar(sets)
    flowers = {
        part: open_canvas(str(sets / "flowers17" / part), SIZE) for part in ("train", "val", "test")
    }
    textures = {part: open_canvas(str(sets / "dtd10" / part), SIZE) for part in ("train", "test")}
    if score == "validation":
        return {
            "cifar10": [EvaluationData(train, None, val, SIZE)],
            "flowers17": [
                EvaluationData(flowers["train"], None, flowers["val"], SIZE),
                *folds(flowers["train"]),
            ],
            "textures": folds(textures["train"]),
        }
    return {
        "cifar10": [EvaluationData(train, None, test, SIZE)],
        "flowers17": [EvaluationData(flowers["train"], flowers["val"], flowers["test"], SIZE)],
        "textures": [EvaluationData(textures["train"], None, textures["test"], SIZE)],
    }


def folds(canvases: CanvasSet, count: int = 3) -> list[EvaluationData]:
    """Each image scored once by a probe trained on the other folds."""
    fold_N = np.random.default_rng(0).permutation(len(canvases)) % count
    return [
        EvaluationData(
            canvases.subset(np.flatnonzero(fold_N != fold)),
            None,
            canvases.subset(np.flatnonzero(fold_N == fold)),
            SIZE,
        )
        for fold in range(count)
    ]


# --------------------------------------------------------------------------------------- work


def trained_encoder(job: Job, config: PretrainConfig) -> Encoder:
    """The encoder of a job: trained, continued, or untrained."""
    if VARIANTS[job.variant].recipe is None:
        return build_method(config).encoder.eval()
    return load_encoder(pretrain(config).path)


def last_metrics(config: PretrainConfig) -> dict[str, float]:
    """Loss terms and statistics at the end of the run."""
    lines = [line for line in RunFolder(config.folder()).read_metrics() if "loss" in line]
    return lines[-1] if lines else {}


def probe(encoder: Encoder, data: dict[str, list[EvaluationData]]) -> dict[str, float]:
    """Accuracy in percent by set, target and protocol, averaged over a set's folds."""
    measured: dict[str, list[float]] = {}
    for name, parts in data.items():
        protocols = ("knn", "linear") if name == "cifar10" else ("linear",)
        for part in parts:
            for result in evaluate_encoder(encoder, part, protocols):
                for target, scored in result.targets.items():
                    key = f"{name}/{target}/{result.protocol}"
                    measured.setdefault(key, []).append(scored.values["top1"])
    return {key: sum(values) / len(values) for key, values in measured.items()}


def work(
    job: Job, sets: Path, runs: Path, data: dict[str, list[EvaluationData]], target: Path
) -> None:
    """Train, probe, write."""
    config = job.config(sets, runs)
    encoder = trained_encoder(job, config)
    metrics = last_metrics(config)
    trained = time.monotonic()
    values = probe(encoder, data)
    digest = hashlib.sha256()
    for tensor in encoder.state_dict().values():
        digest.update(tensor.contiguous().numpy().tobytes())
    write_json(
        target,
        {
            "variant": job.variant,
            "weight": job.weight,
            "seed": job.seed,
            "scores": values,
            "last_metrics": metrics,
            "minutes": {
                "pretrain": metrics.get("seconds", 0.0) / 60,
                "probes": (time.monotonic() - trained) / 60,
            },
            "epochs": EPOCHS,
            "images": IMAGES,
            "size": SIZE,
            "encoder_sha256": digest.hexdigest(),
            "provenance": provenance(),
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/does_it_help"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--weights", type=float, nargs="+")
    parser.add_argument("--score", choices=("validation", "test"), default="validation")
    parser.add_argument("--shard", default="0/1")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shard, shards = (int(part) for part in options.shard.split("/"))
    link_pretraining_images(options.sets)
    data = evaluation_sets(options.sets, options.score)
    every = list(jobs(options.seeds, options.variants, options.weights))
    for job in every[shard::shards]:
        target = RESULTS / options.score / f"{job.name}.json"
        if target.is_file():
            continue
        work(job, options.sets, options.runs, data, target)
        print(f"{job.name}: written", flush=True)


if __name__ == "__main__":
    main()
