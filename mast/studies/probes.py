"""What an encoder scores on several sets."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from mast.measure.frozen import FrozenEncoder
from mast.measure.result import ENDS, PRECISION, Result, TargetResult
from mast.measure.sets import EvaluationData
from mast.protocols.run import EvaluationSettings, evaluate_encoder
from mast.studies.seeds import pack

TOP1 = "top1"
CHANGED = "changed"  # images, beside the top-1 of those that are not, which `linear` has
# What the measures of protocols without a top-1 have in their names.
OTHERS = ("_a_class", PRECISION, "chance")


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
