"""What the study `beyond` found."""

import json
import statistics
from typing import Any

from experiments.beyond import ADAPTED, DEPTHS, FROZEN, LAST, RATES, Beyond, gain
from written.result_files import RESULTS, processors, top

Result = dict[str, Any]


def read() -> dict[str, Result]:
    """All results by name."""
    folder = RESULTS / Beyond.results
    return {
        file.relative_to(folder).with_suffix("").as_posix(): json.loads(file.read_text())
        for file in sorted(folder.rglob("*.json"))
    }


def not_trained(read_as: str) -> str:
    """Linear probe and five labels per class on the frozen encoder, means of all sets."""
    tests = Beyond().tested(read())
    scores = [tests[name, FROZEN][0]["scores"] for name in Beyond().sets]
    linear, few = (
        statistics.fmean(each[f"{read_as}{key}"] for each in scores)
        for key in ("linear", "fewshot/5_a_class")
    )
    return f"{linear:.0f} / {few:.0f}"


def beyond() -> str:
    """A sentence a set, and the table."""
    experiment, measured = Beyond(), read()
    sentences = [
        f"- {name}: {sentence}" for name in experiment.sets
        if (sentence := _sentence(experiment, measured, name))
    ]  # fmt: skip
    epochs, rates = experiment.sets.values(), ", ".join(f"{rate:g}" for rate in RATES)
    notes = (
        f"Training sees some 12,000 images, in {min(epochs)} to {max(epochs)} epochs at "
        f"{experiment.size} pixels. The encoder's rate is {rates} of the projector's, by linear "
        "probe and kNN on validation images; from random weights 1, 3 or 10. Gains are points of "
        "the linear probe ± deviation over seeds [95 % interval over test images], in the table "
        "over the frozen encoder as it is read in the same row. Exact copies were left out; slices "
        "of one brain and signs of one hand may be in both parts. Minutes are one run's, without "
        f"those that chose its rate. {processors(measured.values())}, up to three at once with a "
        "thread each (`python -m experiments beyond`)."
    )
    table = top("beyond", experiment.table(measured), lambda row: True)
    return "\n\n".join(filter(None, ["\n".join(sentences), notes, table]))


def _sentence(experiment: Beyond, measured: dict[str, Result], name: str) -> str:
    """What a set gains over the frozen encoder, once all ways have been tested."""
    tests = experiment.tested(measured)
    own = {way: tests.get((name, way), []) for way in experiment.ways}
    if not all(own.values()):
        return ""
    trials: dict[str, float] = {}
    for file, result in measured.items():
        way = result["way"]
        if file.startswith("validation/") and result["set"] == name and way != "scratch":
            trials[way] = max(sum(result["scores"].values()), trials.get(way, 0.0))
    best = max(trials, key=trials.__getitem__)
    frozen, chosen = own[FROZEN], own[best]
    ahead = {
        "all depths": gain(frozen, frozen, DEPTHS, LAST),
        "adapted": gain(frozen, frozen, ADAPTED, LAST),
        "at 224 pixels": gain(own["frozen_224"], frozen),
        "with BatchNorm of the photos": gain(own["statistics"], frozen),
        f"{experiment.ways[best].title} (the best on validation)": gain(chosen, frozen),
        experiment.ways["scratch"].title: gain(own["scratch"], frozen),
    }
    return (
        f"{frozen[0]['images']:,} photos. Over the last map of the frozen encoder: "
        f"{'; '.join(f'{title} {lead}' for title, lead in ahead.items())}. Of adapted encoders, "
        f"the continued one is ahead of the frozen one by "
        f"{gain(chosen, frozen, ADAPTED, ADAPTED)}."
    )
