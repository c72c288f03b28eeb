"""The accuracy of a classifier on labelled images, by class, and its calibration.

M images, C classes.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast.core.compute import Compute
from mast.core.errors import UserError, unknown
from mast.core.run import provenance
from mast.data import CanvasSet
from mast.data.decode import crop_fraction
from mast.data.groups import groups_of
from mast.encoders.extract import extract
from mast.evaluation.accuracy import accuracies, accuracy, chance_level, correct_within
from mast.evaluation.calibration import BINS, calibration_error
from mast.evaluation.intervals import Measured, ends, mean_interval
from mast.evaluation.labelled_sets import HELD_OUT, EvaluationData, Task, image_identity
from mast.evaluation.protocols.evaluator import Learned
from mast.evaluation.result import Result
from mast.models import Classifier

RESAMPLES = 1000
CHOSEN = {"penalty": "penalty", "encoder_lr": "learning rate of the encoder"}
_log = logging.getLogger("mast")


def test_classifier(
    classifier: Classifier, name: str, canvases: CanvasSet, metric: str, compute: Compute, seed: int
) -> Result:
    """Measure a classifier on labelled images of the classes that it knows.

    `name` takes the place of a protocol, `metric` is what the field reports on the set.
    """
    about, classes = classifier.about, classifier.classes
    canvases, target, label_M = _labelled(classifier, canvases)
    probability_MC = extract(classifier, canvases, classifier.size, compute)
    groups_M = groups_of(canvases.units)
    files_M = None if groups_M is None else torch.from_numpy(groups_M)
    held: Mapping[str, Any] = about.get("validation", {})
    learned_from: Mapping[str, str] = about.get("images", {}).get("fingerprints", {})
    extraction = compute.settings(classifier.size)
    extraction["crop_fraction"] = crop_fraction(classifier.size)
    result = Result.collect(
        _measured(target, probability_MC, label_M, classes, seed, files_M),
        protocol=name,
        set_name=canvases.name,
        settings={
            "extraction": extraction,
            "protocol": {"seed": seed, "resamples": RESAMPLES},
        },
        fingerprints={"test": canvases.fingerprint},
        sizes={"test": len(canvases)},
        images=image_identity(canvases),
        metric=metric,
        encoder=dict(about.get("encoder", {})),
        duplicates={part: len(canvases) for part, fingerprint in learned_from.items()
                    if fingerprint == canvases.fingerprint},
        provenance=provenance(),
        files={} if groups_M is None else {"test": int(groups_M.max()) + 1},
    )  # fmt: skip
    confusion: dict[str, dict[str, int]] = {}
    taken_M = probability_MC.argmax(dim=1).tolist()
    for (true, taken), count in sorted(
        Counter(zip(label_M.tolist(), taken_M, strict=True)).items()
    ):
        confusion.setdefault(classes[true], {})[classes[taken]] = count
    result.targets[target] = replace(
        result.targets[target],
        chosen=held.get("chosen", {}) | ({"validation": held["top1"]} if held else {}),
        confusion=confusion,
    )
    return result


def _measured(
    target: str,
    probability_MC: Tensor,
    label_M: Tensor,
    classes: tuple[str, ...],
    seed: int,
    files_M: Tensor | None,
) -> Iterator[Measured]:
    """The accuracies that every protocol reports, the recall of each class, the calibration."""
    yield from accuracies(target, probability_MC, label_M, seed, RESAMPLES, files_N=files_M)
    credit_M = correct_within(probability_MC, label_M, k=1).double()
    for label in label_M.unique().tolist():
        at_M, measure = label_M == label, f"recall/{classes[label]}"
        files = None if files_M is None else files_M[at_M]
        yield f"{target}/{measure}", 100 * float(credit_M[at_M].mean())
        yield from ends(target, measure, mean_interval(credit_M[at_M], seed, RESAMPLES, files))
    yield f"{target}/calibration_error", calibration_error(probability_MC, label_M)


def _labelled(classifier: Classifier, canvases: CanvasSet) -> tuple[CanvasSet, str, Tensor]:
    """The images whose class the classifier knows, the name of the target, and the labels."""
    target = classifier.about.get("target", "class")
    if target not in canvases.targets:
        raise unknown(f"labels of {canvases.name}", target, canvases.targets)
    names, known_N = canvases.classes[target], canvases.targets[target]
    number = {name: at for at, name in enumerate(classifier.classes)}
    # The last entry is for images without a label.
    label_N = np.array([*(number.get(name, -1) for name in names), -1])[known_N]
    foreign = sorted({names[at] for at in known_N[(label_N < 0) & (known_N >= 0)]})
    if (label_N < 0).all():
        raise UserError(
            f"data: expected some of the classifier's classes ({', '.join(classifier.classes[:5])})"
            f" in {canvases.name}, got none, but {', '.join(foreign[:5])}"
        )
    if foreign:
        _log.warning(
            "%s: %d of %d images are left out, as the classifier does not know their classes: %s",
            canvases.name, ((label_N < 0) & (known_N >= 0)).sum(), len(label_N),
            ", ".join(foreign),
        )  # fmt: skip
    if (label_N < 0).any():
        canvases = canvases.part(np.flatnonzero(label_N >= 0))
    return canvases, target, torch.from_numpy(label_N[label_N >= 0])


# ---------------------------------------------------------------------- the report of `mast fit`


def validation(learned: Learned, pool: EvaluationData, task: Task, seed: int) -> dict[str, Any]:
    """How well the classes of held-out images are predicted."""
    folds = len(task.folds) if len(learned.labels_V) == len(task.held_out_V) else 0
    held_V = task.held_out_V if folds else task.choose_V
    files_V = None if pool.pool_groups is None else torch.from_numpy(pool.pool_groups)[held_V]
    held_out = f"in {folds} folds" if folds else f"{100 * HELD_OUT:g} % of each class"
    right_V = correct_within(learned.scores_VC, learned.labels_V, k=1).double()
    interval = mean_interval(right_V, seed, files_N=files_V)
    return {
        "held_out": held_out if pool.val is None else "val",
        "images": len(right_V),
        "top1": 100 * float(right_V.mean()),
        "top1_low": 100 * interval.low,
        "top1_high": 100 * interval.high,
        "interval": interval.method,
        "by_chance": chance_level(learned.labels_V, "top1"),
        "mean_per_class": accuracy(learned.scores_VC, learned.labels_V, "mean_per_class"),
        "chosen": learned.chosen,
    }


def described(
    about: Mapping[str, Any], classes: int, called: Callable[[str], str] = str
) -> dict[str, str]:
    """Its classes, training images, accuracy and calibration, in words; `called` renames a set."""
    sizes, name = about["images"]["sizes"], called(about["images"]["set"])
    parts = " and ".join(f"{number:,} in {part}" for part, number in sizes.items())
    images = f"{sum(sizes.values()):,} images of {name}"
    held, calibration = about["validation"], about["calibration"]
    chosen = " and ".join(CHOSEN[name] for name in held["chosen"])
    after, before = calibration["error_after"], calibration["error_before"]
    return {
        "classes": f"{classes} classes"
        + f" (target {about['target']})" * (about["target"] != "class"),
        "learned from": f"all {images}" if about["images"]["whole"] else f"{images} ({parts})",
        "accuracy": f"{held['top1']:.1f} % [{held['top1_low']:.1f}, {held['top1_high']:.1f}], by "
        f"the most frequent class alone {held['by_chance']:.1f} %, in the mean per class "
        f"{held['mean_per_class']:.1f} %, on {held['images']:,} held-out images "
        f"({held['held_out']})" + f", on which the {chosen} was chosen, too" * bool(chosen),
        "probabilities": f"off by {after:.1f} points on average with the temperature "
        f"{calibration['temperature']:.3g}, by {before:.1f} without"
        + ": the temperature did not help on these images" * (after - before > 0.05)
        + f" (expected calibration error on the held-out images, {BINS} bins)",
    }
