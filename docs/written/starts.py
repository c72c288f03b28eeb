"""What the study `starts` found."""

import json
import statistics
from collections import defaultdict
from typing import Any

from experiments.starts import COLUMNS, SOURCE, STARTS, Starts
from mast.analyses import Grid
from paper.seeds import cell, difference
from written.result_files import RESULTS, processors, top

Result = dict[str, Any]
Groups = dict[tuple[str, str], list[Result]]  # by what was trained on, and the start

OWN = {"flowers17": "flowers17/class/linear", "textures": "textures/class/linear"}
BEFORE = {"cifar10/class/linear": "objects", "cifar10/colour/linear": "color"}
METHODS = {"mast": "MAST-C over VICReg's distance", "vicreg": "VICReg"}


def starts() -> str:
    """A table of all starts, and what follows of the rate that validation chose."""
    validation, test = read("validation"), read("test")
    source = json.loads((RESULTS / Starts.results / "test" / f"{SOURCE}.json").read_text())
    rows = [("", "the source alone", "1",
             *(f"{source['scores'][task]:.1f}" for task in COLUMNS), "")]  # fmt: skip
    untrained = test["none", "random"]
    rows.append(("", "no training", str(len(untrained)), *cells(untrained), ""))
    for (set_name, start), results in test.items():
        if start in STARTS:
            scratch = test.get((set_name, f"{start.partition('-')[0]}-random"), [])
            ahead = "" if start.endswith("-random") else ahead_of(results, scratch, OWN[set_name])
            rows.append((set_name, title(start), str(len(results)), *cells(results), ahead))
    columns = ("trained on", "start", "seeds", *COLUMNS.values(), "minus from scratch, on its set")
    found = [
        f"- {sentence}" for method in METHODS for sentence in sentences(method, validation, test,
                                                                      source)
    ]  # fmt: skip
    experiment = Starts()
    everything = [result for results in test.values() for result in results]
    return "\n".join(
        [
            *found,
            "",
            "Linear probes on test images. The source is MAST-C over VICReg's distance on "
            f"{experiment.images:,} images of CIFAR-10, {experiment.source_epochs} epochs at 32 "
            f"pixels; each run trains {experiment.epochs} epochs on one small set. *Rate*: the "
            "encoder's learning rate relative to the rest (`python -m experiments starts`; "
            f"{processors(everything)}).",
            "",
            top("starts", Grid(columns, tuple(rows)), lambda row: "0." not in row[1]),
        ]
    )


def sentences(method: str, validation: Groups, test: Groups, source: Result) -> list[str]:
    """What a method gains of the start, at the rate that does best on validation images."""
    name = METHODS[method]
    rates = [start for start in STARTS if start.startswith(method) and "random" not in start]
    means = {start: own for start in rates if (own := own_score(start, rates, validation))}
    if len(means) < len(rates):
        return []
    best = max(means, key=means.__getitem__)
    scores = ", ".join(f"{mean:.1f} at {rate_of(start)}" for start, mean in means.items())
    found = [
        f"{name} does best on validation at rate {rate_of(best)} (mean of both sets: {scores})."
    ]
    for set_name, task in OWN.items():
        continued = test.get((set_name, best))
        scratch = test.get((set_name, f"{method}-random"))
        if not continued or not scratch:
            continue
        before = [source | {"seed": result["seed"]} for result in continued]
        kept = " and ".join(
            f"{difference(continued, before, other)} in {what}" for other, what in BEFORE.items()
        )
        found.append(
            f"{name} on {set_name}: {difference(continued, scratch, task)} points over training "
            f"from scratch, {difference(continued, before, task)} over the source; on CIFAR-10, "
            f"compared with the source, {kept}."
        )
    return found


def own_score(start: str, rates: list[str], groups: Groups) -> float | None:
    """Mean accuracy of a start on the sets it was trained on, by the seeds that all rates have.

    Returns:
        It; None where there is no such seed.
    """
    means = []
    for set_name, task in OWN.items():
        by_rate = [groups.get((set_name, rate), []) for rate in rates]
        seeds = set.intersection(*({result["seed"] for result in each} for each in by_rate))
        scores = [
            result["scores"][task]
            for result in groups.get((set_name, start), [])
            if result["seed"] in seeds
        ]
        if not scores:
            return None
        means.append(statistics.fmean(scores))
    return statistics.fmean(means)


def ahead_of(results: list[Result], others: list[Result], task: str) -> str:
    """A difference, where some seed has both."""
    seeds = {result["seed"] for result in results} & {result["seed"] for result in others}
    return str(difference(results, others, task)) if seeds else ""


def cells(results: list[Result]) -> tuple[str, ...]:
    """The scores of a start, by task."""
    return tuple(cell([result["scores"][task] for result in results]) for task in COLUMNS)


def rate_of(start: str) -> str:
    """The rate of a start from weights."""
    return f"{STARTS[start].rate:g}"


def title(start: str) -> str:
    """What readers call a start."""
    method = METHODS[start.partition("-")[0]]
    return f"{method}, " + ("random" if start.endswith("random") else f"weights, {rate_of(start)}")


def read(score: str) -> Groups:
    """Results by set and start, in the order of the study."""
    groups: Groups = defaultdict(list)
    files = sorted((RESULTS / Starts.results / score).glob("*.json"))
    for result in (json.loads(file.read_text()) for file in files if file.stem != SOURCE):
        groups[result["set"], result["start"]].append(result)
    order = ["random", *STARTS]
    return dict(sorted(groups.items(), key=lambda item: (item[0][0], order.index(item[0][1]))))
