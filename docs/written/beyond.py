"""What the study `beyond` found."""

import json
from typing import Any

from experiments.beyond import ADAPTED, FROZEN, LAST, RATES, Beyond, gain
from written.result_files import RESULTS, processors, top

Result = dict[str, Any]


def beyond() -> str:
    """A sentence a set, and the table."""
    experiment, folder = Beyond(), RESULTS / Beyond.results
    measured = {
        file.relative_to(folder).with_suffix("").as_posix(): json.loads(file.read_text())
        for file in sorted(folder.rglob("*.json"))
    }
    sentences = [
        f"- {name}: {sentence}" for name in experiment.sets
        if (sentence := _sentence(experiment, measured, name))
    ]  # fmt: skip
    epochs, rates = experiment.sets.values(), ", ".join(f"{rate:g}" for rate in RATES)
    notes = (
        f"Some 12,000 images are seen, in {min(epochs)} to {max(epochs)} epochs at "
        f"{experiment.size} pixels. The encoder's rate is {rates} of the projector's, by linear "
        "probe and kNN on validation images. Gains are points of the linear probe ± deviation over "
        f"seeds [95 % interval over test images]. {processors(measured.values())}, two runs at a "
        "time with a thread each (`python -m experiments beyond`)."
    )
    table = top("beyond", experiment.table(measured), lambda row: True)
    return "\n\n".join(["\n".join(sentences), notes, table])


def _sentence(experiment: Beyond, measured: dict[str, Result], name: str) -> str:
    """What a set gains over the frozen encoder, once all ways have been tested."""
    tests = experiment.tested(measured)
    own = {way: tests.get((name, way), []) for way in experiment.ways}
    if not all(own.values()):
        return ""
    trials: dict[str, float] = {}
    for file, result in measured.items():
        if file.startswith("validation/") and result["set"] == name:
            score = result["scores"]["linear"] + result["scores"]["knn"]
            trials[result["way"]] = max(score, trials.get(result["way"], 0.0))
    best = max(trials, key=trials.__getitem__)
    frozen, chosen = own[FROZEN], own[best]
    return (
        f"{frozen[0]['images']:,} photos. Over the last map of the frozen encoder, its adapted "
        f"depths {gain(frozen, frozen, ADAPTED, LAST)}, {experiment.ways[best].title} (the best on "
        f"validation) {gain(chosen, frozen)}, from random weights {gain(own['scratch'], frozen)}. "
        f"By adapted depths, training gains {gain(chosen, frozen, ADAPTED, ADAPTED)}."
    )
