"""The study `forgetting`: its section of the results, and what the README says of the demo."""

import json
import statistics
from typing import Any

from experiments.forgetting import LONGER, PROJECTOR, SHARE, WEIGHT, Forgetting
from experiments.searches import WHOLE, block_of, leads, led, precision, searches
from mast.analyses import Grid
from mast.measure.result import TOLD
from mast.methods import MastConfig
from mast.methods.prediction import PredictionConfig
from mast.studies.tables.printed import as_markdown
from written.result_files import RESULTS, processors

SHOWN = {  # by the demo, as the study calls them
    "untrained": "untrained",
    "vicreg": "VICReg",
    "augself_double": "VICReg + prediction",
    "both": "MAST",
}
OURS = "both"
HEAD = "color_jitter"  # what reads the colour best


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
        "## What is kept where the views destroy it: generated images",
        "`python -m experiments forgetting --data SETS --out FOLDER --seeds 0 1 2 3 4`. The set is "
        "`toys`, made so that operators destroy a factor ([how](data.md)): `forget_color` turns "
        "the hue anywhere, and so on. Percent; mean and standard deviation of seeds. "
        f"{first['images']:,} images of 32 pixels, {Forgetting().epochs} epochs "
        f"({' and '.join(f'{name} {times} times as many' for name, times in LONGER.items())}), "
        f"{processors(measured.values())}. What has a single seed has no spread and is not "
        "ranked; what is not listed has not been run yet. `augself` is VICReg that predicts what "
        "the operators did from its representation, `exempt` MAST that does so from its block of "
        f"{100 * SHARE:g} % of the dimensions; a prediction weighs {WEIGHT:g}, or twice that "
        "(`double`). A number at the end is another share in percent. "
        "`both` predicts from block and representation, as MAST does by default, and so weighs "
        f"{2 * WEIGHT:g} in all, `both_double` {4 * WEIGHT:g}; by default a prediction weighs "
        f"{PredictionConfig().weight:g} and a block has {100 * MastConfig().exempt_share:g} %. "
        f"{legend(measured)}Linear accuracy of the representation:",
        as_markdown(Forgetting().table(measured)),
        "Of the ten nearest test images by cosine, the share with the query's label. *Head of …* "
        "is what the first layer of a head reads of the representation; the first runs were not "
        "measured there, so that some rows have fewer seeds:",
        as_markdown(searches(measured)),
        "Seed by seed: *lead* is *matching it* minus *best whole space*, the best representation "
        "or embedding of three runs: the block's own, VICReg's, and that of VICReg with a "
        "prediction of the same weight. *Best heads* is the most that heads which predict the "
        "factor's operators find in these runs; empty where it was not measured. *Furthest "
        "behind* is the other task on which *ignoring it* loses most against the best whole space:",
        as_markdown(led(measured)),
    ]
    return "\n\n".join(parts)


def legend(measured: dict[str, dict[str, Any]]) -> str:
    """What the methods are that need a word, of those that have been run."""
    methods = {result["method"] for result in measured.values()}
    meant = {
        "silent": "MAST without the prediction",
        "representation_double": "MAST that predicts from the representation alone",
        "budgeted_double": "MAST that learns which dimensions are exempt",
        "guarded": "learned masks, nothing predicted",
    }
    said = [f"`{name}` is {what}" for name, what in meant.items() if name in methods]
    return f"{', '.join(said)}. " if said else ""


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
    tables = [
        as_markdown(
            Grid(grid.columns[1:], tuple((SHOWN[row[1]], *row[2:]) for row in grid.rows))
        ).replace("ing it |", "ing colour |")
        for grid in (Forgetting().table(shown), searches(shown))
    ]
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
    verdict = (
        f"On the mean of six linear tasks MAST has {level[OURS]:.1f}, VICReg with "
        f"prediction {level['augself_double']:.1f} and VICReg {level['vicreg']:.1f}. In a search "
        f"that matches the colour, by MAST's block of {dims} of {PROJECTOR['dim']} dimensions, "
        f"{matching:.0f} % of the ten nearest have the query's colour (by chance 12 %). VICReg "
        f"with prediction finds {found['augself_double', 'representation']:.0f} % by its "
        f"representation and VICReg {found['vicreg', 'representation']:.0f} %; but by what the "
        "head of colour jitter reads of the representation "
        f"({PredictionConfig().hidden} numbers) VICReg with "
        f"prediction finds {heads:.0f} %, MAST {our_heads:.0f} %. With the block left out, "
        f"{ignoring:.0f} % of the ten "
        "nearest share the colour, nearly as few as by the whole embedding of VICReg with "
        "prediction "
        f"({found['augself_double', 'embedding']:.0f} %). {ahead(shown)}"
    )
    return (
        f"{verdict}\n\n"
        "Linear accuracy of the representation (%), where the views destroy the colour; mean and "
        f"standard deviation of seeds:\n\n{tables[0]}\n\n"
        "Of the ten nearest images, the share with the query's label (%):\n\n"
        f"{tables[1]}"
    )


def ahead(shown: dict[str, dict[str, Any]]) -> str:
    """By how much the block leads the search for colour, over all seeds."""
    found = leads(shown)
    behind = [lead.furthest[1] for lead in found]
    points = [lead.lead for lead in found]
    beside = [lead.block - lead.heads for lead in found if lead.heads is not None]
    return (
        f"Seed by seed the block is {min(points):.0f} to {max(points):.0f} points ahead of the "
        f"best representation or embedding, and {min(beside):+.0f} to {max(beside):+.0f} points "
        "from the best heads. Leaving it out costs "
        f"{min(behind):.0f} to {max(behind):.0f} points on the task that suffers most, compared "
        "with the best representation or embedding of the three."
    )
