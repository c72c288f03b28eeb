"""What the study `beyond` found."""

import json
import statistics
from typing import Any

from experiments.beyond import ADAPTED, DEPTHS, FROZEN, LAST, READ, Beyond, gain
from mast.analyses import Grid
from paper.tables.printed import as_markdown
from written.result_files import RESULTS, processors, whole

Result = dict[str, Any]


def read() -> dict[str, Result]:
    """All results by name."""
    folder = RESULTS / Beyond.results
    return {
        file.relative_to(folder).with_suffix("").as_posix(): json.loads(file.read_text())
        for file in sorted(folder.rglob("*.json"))
    }


def not_trained(read_as: str) -> str:
    """Linear probe, kNN and five labels per class on the frozen encoder, means of all sets."""
    tests = Beyond().tested(read())
    scores = [tests[name, FROZEN][0]["scores"] for name in Beyond().sets]
    return " / ".join(
        f"{statistics.fmean(each[f'{read_as}{key}'] for each in scores):.0f}"
        for key in ("linear", "knn", "fewshot/5_a_class")
    )


def beyond() -> str:
    """A sentence per set, and scores by encoder and set."""
    experiment, measured = Beyond(), read()
    sentences = [f"- {name}: {_sentence(experiment, measured, name)}" for name in experiment.sets]
    epochs = experiment.sets.values()
    notes = (
        f"Training sees some 12,000 images, in {min(epochs)} to {max(epochs)} epochs at "
        f"{experiment.size} pixels. The encoder's learning rate is a share of the projector's: the "
        "best of three by linear probe and kNN on validation images. Gains are linear-probe points "
        "± standard deviation over seeds [95 % interval over test images], in the CSV over the "
        "frozen encoder read the same way. Exact copies were left out; slices of one brain and "
        "signs of one hand may be in training and test images. Minutes are of one run, without "
        f"the trials of its rate. {processors(measured.values())}, up to three runs at once with a "
        "thread each; runs under a minute shared an NVIDIA H200 with six others "
        "(`python -m experiments beyond`)."
    )
    grid = experiment.table(measured)
    scores = "Linear probe / kNN / five labels per class, means of one to three seeds"
    title = f"{scores}; {whole('beyond', grid)} with seeds, gains, rates and minutes:"
    return "\n\n".join(["\n".join(sentences), notes, title, as_markdown(_by_set(grid))])


def _by_set(grid: Grid) -> Grid:
    """One row per encoder and way to read it, one column per set."""
    cells = {
        (encoder, read, name): " / ".join(score.partition(" ")[0] for score in scores)
        for name, _, encoder, read, _, *scores in (row[:8] for row in grid.rows)
    }
    sets = list(dict.fromkeys(row[0] for row in grid.rows))
    ways = dict.fromkeys(row[2:4] for row in grid.rows if row[3] != READ[DEPTHS])
    rows = ((*way, *(cells.get((*way, name), "") for name in sets)) for way in ways)
    return Grid(("encoder", "read", *sets), tuple(rows))


def _sentence(experiment: Beyond, measured: dict[str, Result], name: str) -> str:
    """What a set gains over the frozen encoder, by what was measured."""
    tests = experiment.tested(measured)
    own = {way: tests[name, way] for way in experiment.ways if (name, way) in tests}
    trials: dict[str, float] = {}
    for file, result in measured.items():
        way = result["way"] if result["set"] == name else ""
        if file.startswith("validation/") and way in own and way != "scratch":
            trials[way] = max(sum(result["scores"].values()), trials.get(way, 0.0))
    frozen = own[FROZEN]
    ahead = {"all depths": gain(frozen, frozen, DEPTHS, LAST),
             "adapted": gain(frozen, frozen, ADAPTED, LAST)}  # fmt: skip
    best = max(trials, key=trials.__getitem__, default=FROZEN)
    for way in ("frozen_224", "statistics", best, "scratch"):
        if way in own and way != FROZEN:
            chosen = " (the best on validation)" if way == best else ""
            ahead[f"{experiment.ways[way].title}{chosen}"] = gain(own[way], frozen)
    text = (
        f"{frozen[0]['images']:,} photos. Gain over the frozen encoder's last map: "
        f"{'; '.join(f'{title} {lead}' for title, lead in ahead.items())}."
    )
    if best == FROZEN:
        return text
    return f"{text} Adapted, continued minus frozen: {gain(own[best], frozen, ADAPTED, ADAPTED)}."
