"""The collapses that a log shows, whatever the method: each metric belongs to one of them."""

import math
from collections.abc import Iterator, Mapping

PREDICTED = "stat/predicted_by_"  # how the statistics of `OperatorPrediction` begin
SPREAD, STD = "stat/spread", "stat/embedding_std"
COLLAPSED = {SPREAD: 0.1, STD: 0.3}  # below it


def collapse_signs(metrics: Mapping[str, float]) -> Iterator[str]:
    """What the last values of a log show of the embedding; nothing where all is well."""
    for name, least in COLLAPSED.items():
        if not math.isfinite(metrics.get(name, least)):
            yield "The embedding is not finite."
        elif metrics.get(name, least) < least:
            yield "The embedding collapsed."


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
            "what these operators change may be forgotten. Raise the weight of the prediction, "
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
            "the variance weight (of LeJEPA and VISReg, objective.regularizer_weight)."
        )
