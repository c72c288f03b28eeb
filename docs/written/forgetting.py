"""The study `forgetting`: its section of the results, and what the README says of the demo."""

import json
import statistics
from typing import Any

from experiments.forgetting import LONGER, PROJECTOR, SHARE, WEIGHT, Forgetting
from experiments.searches import WHOLE, block_of, leads, led, precision, searches
from mast.evaluation.result import TOLD
from mast.methods.parts import PredictionConfig
from written.result_files import RESULTS, processors, top, whole

SHOWN = {  # by the demo, as the study calls them
    "untrained": "untrained",
    "vicreg": "VICReg",
    "augself_double": "VICReg + AugSelf",
    "both": "MAST-C over VICReg's distance",
}
COMPARED = ("untrained", "vicreg", "augself_double", "both", "both_double")
OURS = "both"
HEAD = "color_jitter"  # what reads the color best


def forgotten() -> dict[str, dict[str, Any]]:
    """Results of the study `forgetting`, by factor destroyed, method and seed."""
    folder = RESULTS / Forgetting.results
    return {
        f"{file.parent.name}/{file.stem}": json.loads(file.read_text())
        for file in sorted(folder.glob("*/*.json"))
    }


def forgetting() -> str:
    """The section of the study of this name: linear accuracy, and what a search finds."""
    measured = forgotten()
    first = next(iter(measured.values()))
    parts = [
        "`python -m experiments forgetting --data SETS --out FOLDER --seeds 0 1 2 3 4`: "
        f"{first['images']:,} images of 32 pixels, {Forgetting().epochs} epochs "
        f"({' and '.join(f'{name} {times} times as many' for name, times in LONGER.items())}), "
        f"{processors(measured.values())}. Percent; mean and standard deviation over seeds. "
        "`augself` is VICReg that predicts the operators from its representation; "
        "`exempt`, MAST-C over VICReg's distance that predicts from its block of "
        f"{100 * SHARE:g} % of the dimensions; `both`, from both. Prediction weight {WEIGHT:g}, "
        f"or twice that (`double`). {legend(measured)}Linear accuracy of the representation:",
        top("forgetting", Forgetting().table(measured), lambda row: row[1] in COMPARED),
        "Share of the ten nearest with the query's label: "
        f"{whole('forgetting-searches', searches(measured))}. Lead of a block over the "
        "best representation, embedding and heads, seed by seed: "
        f"{whole('forgetting-leads', led(measured))}.",
    ]
    return "\n\n".join(parts)


def legend(measured: dict[str, dict[str, Any]]) -> str:
    """What the methods are that need a word, of those that have been run."""
    methods = {result["method"] for result in measured.values()}
    meant = {
        "silent": "the same without prediction",
        "representation_double": "the same that predicts from the representation alone",
        "budgeted_double": "the same that learns which dimensions are exempt",
        "guarded": "MAST, no uncertainty",
    }
    said = [f"`{name}` is {what}" for name, what in meant.items() if name in methods]
    return f"In the CSV, {', '.join(said)}. " if said else ""


def of_method(measured: dict[str, dict[str, Any]], method: str) -> list[dict[str, Any]]:
    """The results of a method, a seed each."""
    return [result for result in measured.values() if result["method"] == method]


def demonstration() -> str:
    """What the demo shows, over all seeds, for the README."""
    shown = {
        name: result
        for name, result in forgotten().items()
        if result["destroyed"] == "color" and result["method"] in SHOWN
    }
    level = {
        method: statistics.fmean(
            statistics.fmean(result["linear"].values()) for result in of_method(shown, method)
        )
        for method in SHOWN
    }
    found = {
        (method, space): statistics.fmean(
            precision(result, "color", space) for result in of_method(shown, method)
        )
        for method in ("vicreg", "augself_double")
        for space in WHOLE
    }
    heads, our_heads = (
        statistics.fmean(
            precision(result, "color", f"{TOLD}{HEAD}") for result in of_method(shown, method)
        )
        for method in ("augself_double", OURS)
    )
    dims = round(SHARE * PROJECTOR["dim"])
    ours = of_method(shown, OURS)
    spaces_of_ours = block_of(ours[0])
    assert spaces_of_ours is not None
    ignoring, matching = (
        statistics.fmean(precision(result, "color", space) for result in ours)
        for space in spaces_of_ours
    )
    return (
        f"Mean of six linear tasks: MAST-C over VICReg's distance {level[OURS]:.1f}, VICReg + "
        f"AugSelf {level['augself_double']:.1f}, VICReg {level['vicreg']:.1f}. Share of the ten "
        "nearest with the query's color (chance 12 %): MAST-C's block "
        f"({dims} of {PROJECTOR['dim']} dimensions) {matching:.0f} %; the representation of "
        f"VICReg + AugSelf {found['augself_double', 'representation']:.0f} %, of VICReg "
        f"{found['vicreg', 'representation']:.0f} %; the color-jitter head "
        f"({PredictionConfig().hidden} dimensions) of VICReg + AugSelf {heads:.0f} %, of MAST-C "
        f"{our_heads:.0f} %. MAST-C's embedding without its block finds {ignoring:.0f} %, the "
        "embedding of VICReg + AugSelf "
        f"{found['augself_double', 'embedding']:.0f} %. {ahead(shown)}"
    )


def ahead(shown: dict[str, dict[str, Any]]) -> str:
    """By how much the block leads the search for color, over all seeds."""
    found = leads(shown)
    behind = [lead.furthest[1] for lead in found]
    points = [lead.lead for lead in found]
    beside = [lead.block - lead.heads for lead in found if lead.heads is not None]
    return (
        f"Seed by seed, the block leads the best representation or embedding by {min(points):.0f} "
        f"to {max(points):.0f} points and the best heads by {min(beside):+.0f} to "
        f"{max(beside):+.0f}. Leaving it out costs "
        f"{min(behind):.0f} to {max(behind):.0f} points on the task that suffers most, compared "
        "with the best representation or embedding of the three."
    )
