"""The collapses that a log shows, whatever the method: each metric belongs to one of them."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

PREDICTED = "stat/predicted_by_"  # how the statistics of `OperatorPrediction` begin
SPREAD, STD = "stat/spread", "stat/embedding_std"
COLLAPSED = {SPREAD: 0.1, STD: 0.3}  # below it


class CollapseCheck(NamedTuple):
    """What the log shows of one thing that can collapse.

    Attributes:
        evidence: The number, in words that continue a list; empty where there is none to quote.
        sign: A sentence that names the collapse; None where it did not happen.
    """

    evidence: str
    sign: str | None


def collapse_checks(metrics: Mapping[str, float]) -> Iterator[CollapseCheck]:
    """What the last values of a log show of the embedding; nothing where it is not logged."""
    for name, text in (
        (SPREAD, "spread is {:.2f} (1 for directions at random, 0 is a collapse)"),
        (STD, "standard deviation is {:.2f} (0 is a collapse)"),
    ):
        value = metrics.get(name)
        if value is not None and not math.isfinite(value):
            yield CollapseCheck("", "The embedding is not finite.")
        elif value is not None:
            sign = "The embedding collapsed." if value < COLLAPSED[name] else None
            yield CollapseCheck(f"the embedding's {text.format(value)}", sign)


def collapse_warnings(metrics: Mapping[str, float]) -> Iterator[str]:
    """The collapses that the metrics of a step show, each with its cause and a remedy."""
    silent = []
    for name, value in metrics.items():
        if name.startswith(PREDICTED) and value < 0.02:
            source, _, operator = name.removeprefix(PREDICTED).partition("_")
            silent.append(f"{operator.replace('_', ' ')} (from the {source})")
    if metrics.get("progress", 1.0) > 0.5 and silent:
        yield (
            f"nothing predicted: heads of {', '.join(silent)} do no better than the mean, so "
            "what these operators destroy may be forgotten. Raise the weight of the prediction, "
            "train longer, or leave the operator out if it changes nothing at this size."
        )
    if (value := metrics.get(SPREAD, 1.0)) < COLLAPSED[SPREAD]:
        yield (
            f"collapse: the embeddings of all images point the same way, their spread is "
            f"{value:.3f} (1 for directions at random). Lower the rate or, where there is a "
            "teacher, raise its momentum."
        )
    if (value := metrics.get(STD, 1.0)) < COLLAPSED[STD]:
        yield (
            f"variance collapse: the embedding's mean standard deviation is {value:.2f} "
            "(the variance term wants 1). The views are pulled together harder than the "
            "variance term pushes apart; lower the weights of the invariance terms or raise "
            "the variance weight."
        )
