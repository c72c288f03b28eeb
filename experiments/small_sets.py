"""Small sets, the small runs on them, and probes on several sets: what experiments share."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from mast.config import PretrainConfig
from mast.data import CanvasSet
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder
from mast.evaluation.result import ENDS, Result, TargetResult
from mast.methods import METHODS, MastCConfig, MastConfig, MethodConfig
from paper.experiment import CIFAR, NARROW, Workplace, narrow
from paper.protocols.retrieval import PRECISION
from paper.seeds import pack

# Narrower again: two pretrainings in minutes on two cores.
NARROWER = {**narrow(16, 32, 64, 256), "stem_stride": 2}
TOP1 = "top1"
CHANGED = "changed"  # images, beside the top-1 of those that are not, which `linear` has
# What the measures of protocols without a top-1 have in their names.
OTHERS = ("_a_class", PRECISION, "chance")


class SmallRun(NamedTuple):
    """A run: its recipe, its images (of the workplace, or generated) and what differs."""

    recipe: str
    data: str
    changes: dict[str, Any]

    def configure(self, name: str, workplace: Workplace) -> PretrainConfig:
        """Its configuration at a workplace."""
        data = workplace.derived(CIFAR) if self.data == CIFAR else self.data
        return workplace.configure(name, self.recipe, data, **self.changes)


def _changes(size: int, epochs: int, **objective: Any) -> dict[str, Any]:
    encoder = {**NARROW, "stem_stride": 2}
    return {"size": size, "epochs": epochs, "encoder": encoder, "objective": objective}


MAST = "mast5_small"
FIFTEEN = {"views": "mast15"}
RUNS = {
    "factors_mast5": SmallRun(MAST, "factors@train", _changes(32, 12)),
    "factors_exempt": SmallRun("mast_c5_distance_small", "factors@train", _changes(32, 12)),
    "factors64_mast15": SmallRun(MAST, "factors@train", FIFTEEN | _changes(64, 12)),
    "factors_small": SmallRun("mast5_no_uncertainty_small", "factors@train:4096", _changes(32, 6)),
    "cifar_mast5": SmallRun(MAST, CIFAR, _changes(32, 10)),
    "cifar_mast15": SmallRun(MAST, CIFAR, FIFTEEN | _changes(32, 10)),
    "cifar_mast5_paper": SmallRun(MAST, CIFAR, _changes(32, 10, printed=True)),
    "cifar_exempt": SmallRun("mast_c5_distance_small", CIFAR, _changes(32, 10)),
    "cifar_vicreg5": SmallRun("vicreg5_small", CIFAR, _changes(32, 10)),
}


# What results call the objective of a run of MAST or MAST-C, by what it was called when they were
# measured: "guarded" is the form that trains.
OBJECTIVES = {
    "guarded": "MAST",
    "paper": "Eq. 7 as printed",
    "exempt": "MAST-C over VICReg's distance",
}


def run_facts(name: str, config: PretrainConfig) -> dict[str, Any]:
    """What a run was, for the record."""
    return {
        "name": name,
        "data": config.data.spec.rpartition("/")[2],
        "method": config.method,
        "views": config.views,
        "size": config.size,
        "epochs": config.epochs,
        "staged": config.schedule.staged,
        "mode": _mode(config.objective),
    }


def _mode(objective: MethodConfig) -> str | None:
    """A key of `OBJECTIVES`; None for other methods."""
    match objective:
        case MastConfig():
            return "paper" if objective.printed else "guarded"
        case MastCConfig(compare="distance"):
            return "exempt"
    return None


def called(run: Mapping[str, Any]) -> str:
    """The objective of a run, from its facts."""
    return OBJECTIVES.get(run["mode"]) or METHODS[run["method"]].title


# ------------------------------------------------------------------------------ sets made of others


def with_colors(sets: Sequence[CanvasSet]) -> tuple[CanvasSet, ...]:
    """Sets with the bin of each image's mean color as a second target, "colour".

    There are eight bins: each channel above or below its median over the first of the sets.
    """
    threshold_C = np.median(_mean_color(sets[0]), axis=0)
    names = tuple(f"{r}{g}{b}" for r in "rR" for g in "gG" for b in "bB")
    colored = []
    for canvases in sets:
        above_NC = (_mean_color(canvases) > threshold_C).astype(np.int64)
        targets = {**canvases.targets, "colour": above_NC @ np.array([4, 2, 1])}
        classes = {**canvases.classes, "colour": names}
        colored.append(replace(canvases, targets=targets, classes=classes))
    return tuple(colored)


def _mean_color(canvases: CanvasSet) -> np.ndarray:
    batch = canvases.batch(np.arange(len(canvases)))
    images = (batch.image(index).numpy() for index in range(len(batch)))
    return np.stack([image_HWC.mean(axis=(0, 1), dtype=np.float64) for image_HWC in images])


def folds(canvases: CanvasSet, size: int, count: int = 3) -> list[EvaluationData]:
    """Each image scored once by a probe that learns from the other folds."""
    fold_N = np.random.default_rng(0).permutation(len(canvases)) % count
    return [
        EvaluationData(
            canvases.subset(np.flatnonzero(fold_N != fold)),
            None,
            canvases.subset(np.flatnonzero(fold_N == fold)),
            size,
        )
        for fold in range(count)
    ]


# -------------------------------------------------------------------------------------- probes


class Probed(NamedTuple):
    """What was measured.

    Attributes:
        scores: In percent, by `<set>/<target>/<protocol>`, and for protocols that measure something
            other than top-1 `…/<measure>`.
        each: What every test image contributed, packed, where a set has one part and the score is a
            mean over its images.
    """

    scores: dict[str, float]
    each: dict[str, str]


def probe(
    encoder: nn.Module | FrozenEncoder,
    sets: Mapping[str, Sequence[EvaluationData]],
    protocols: Mapping[str, Sequence[str]],
    settings: EvaluationSettings | None = None,
) -> Probed:
    """Scores of an encoder by protocols on several sets.

    Args:
        encoder: From images_BCHW in [0, 1] to representation_BD.
        sets: By name; of several parts, such as folds, the scores are averaged.
        protocols: By name of the set.
        settings: Of the protocols; None for the defaults.
    """
    scores: dict[str, list[float]] = {}
    each: dict[str, str] = {}
    for name, parts in sets.items():
        for data in parts:
            results = evaluate_encoder(encoder, data, protocols[name], settings)
            for key, value, credit_N in _measured(name, results):
                scores.setdefault(key, []).append(value)
                if len(parts) == 1 and credit_N is not None and len(credit_N) == len(data.test):
                    each[key] = pack(credit_N)
    return Probed({key: statistics.fmean(values) for key, values in scores.items()}, each)


def _measured(name: str, results: Sequence[Result]) -> Iterator[tuple[str, float, Tensor | None]]:
    """The key of each score, its value and what every unit contributed, if that is known."""
    for result in results:
        for target, measured in result.targets.items():
            for measure in _measures(measured):
                key = f"{name}/{target}/{result.protocol}"
                key = key if measure == TOP1 else f"{key}/{measure}"
                yield key, measured.values[measure], measured.each.get(measure)


def _measures(measured: TargetResult) -> list[str]:
    """Top-1, or what a protocol has in its place."""
    if CHANGED in measured.values:
        return [CHANGED]
    if TOP1 in measured.values:
        return [TOP1]
    return [
        name
        for name in measured.values
        if not name.endswith(ENDS) and any(part in name for part in OTHERS)
    ]
