"""Write the results in the documents from the result files that studies wrote.

    python docs/generate.py

docs/results.md is written whole; in the others the results stand between `<!-- NAME -->` and
`<!-- /NAME -->`.
"""

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from mast.analyses import Grid
from mast.augment import PROPERTIES
from mast.core.checkpoint import write_text
from mast.measure.result import PRECISION
from mast.studies import OF_A_RUN
from mast.studies.advice_check import AdviceCheck
from mast.studies.detectors import AVERAGED, Detectors
from mast.studies.does_it_help import COLUMNS, FEW, TASKS, DoesItHelp, mean_of_tasks
from mast.studies.flowers import Flowers
from mast.studies.forgetting import SHARE, WEIGHT, Forgetting
from mast.studies.searches import WHOLE, block_of, leads, led, precision, searches, spaces
from mast.studies.seeds import cell, difference, spread
from mast.studies.uncertainty_check import UncertaintyCheck

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "experiments" / "results"
SHOWN = {  # by the demo, as the study `forgetting` calls them
    "untrained": "untrained",
    "vicreg": "VICReg",
    "augself_double": "VICReg + prediction",
    "exempt_double": "MAST",
}
OURS = "MAST"
COMPARED = {  # on photos, as the study `does_it_help` calls them
    "untrained": "untrained",
    "vicreg5": "VICReg",
    "augself_half": "VICReg + prediction",
    "learned_slow": "MAST, guarded",
    "exempt_half": OURS,
}
KNN = "cifar10/class/knn"
CONTROLS = ("VICReg", "VICReg + prediction")

Groups = dict[tuple[str, float], list[dict[str, Any]]]


def read(folder: Path) -> Groups:
    """Result files by variant and weight of invariance."""
    groups = defaultdict(list)
    for file in sorted(folder.glob("*.json")):
        result = json.loads(file.read_text())
        groups[result["variant"], result["weight"]].append(result)
    return dict(groups)


def markdown(grid: Grid) -> str:
    """A table in Markdown."""
    rows = [grid.columns, ("---",) * len(grid.columns), *grid.rows]
    return "\n".join(
        f"|{'|'.join(row)}|" if at == 1 else f"| {' | '.join(map(str, row))} |"
        for at, row in enumerate(rows)
    )


def comparison(groups: Groups) -> str:
    """One row a variant and weight, best mean first."""
    results = [result for of_variant in groups.values() for result in of_variant]
    return markdown(DoesItHelp().table({str(at): each for at, each in enumerate(results)}))


def compared(validation: Groups, test: Groups) -> dict[str, list[dict[str, Any]]]:
    """The results of every method that was compared, by its name for readers, a seed each.

    Of several weights of invariance that were tested in all ways, validation chose one.
    """
    found = {}
    for variant, name in COMPARED.items():
        tested = {
            key: [result for result in results if result.get("each")]
            for key, results in test.items()
            if key[0] == variant
        }
        weighed = {
            statistics.fmean(map(mean_of_tasks, validation[key])): results
            for key, results in tested.items()
            if results
        }
        if weighed:
            found[name] = weighed[max(weighed)]
    return found


def compared_on_photos() -> str:
    """The methods on the test sets: a verdict, scores and differences, and what a search finds."""
    methods = compared(*scored())
    ours = methods[OURS]
    tasks = {task: ("linear", name) for task, name in COLUMNS.items() if task in TASKS}
    tasks |= {"cifar10/rotation/rotation": ("linear", "rotation"), KNN: ("kNN", "objects")}
    tasks |= {task: ("5 labels a class", name) for task, name in FEW.items()}
    rows = [
        (
            name, how, *(cell([result["scores"][task] for result in results])
                         for results in methods.values()),
            *(str(difference(ours, methods[control], task)) for control in CONTROLS),
        )
        for task, (how, name) in tasks.items()
    ]  # fmt: skip
    means = {
        name: {result["seed"]: mean_of_tasks(result) for result in results}
        for name, results in methods.items()
    }
    gains = {
        control: [means[OURS][seed] - value for seed, value in means[control].items()]
        for control in CONTROLS
    }
    ahead = [f"{statistics.fmean(gain):+.1f} ± {spread(gain):.1f}" for gain in gains.values()]
    cells = (cell(list(by_seed.values())) for by_seed in means.values())
    rows.insert(len(TASKS), ("mean of these four", "linear", *cells, *ahead))
    titles = (
        name if len(results) == len(ours) else f"{name} ({len(results)} seeds)"
        for name, results in methods.items()
    )
    columns = ("task", "by", *titles, *(f"{OURS} minus {control}" for control in CONTROLS))
    differences = {
        what: " and ".join(str(difference(ours, methods[control], task)) for control in CONTROLS)
        for task, what in (("cifar10/class/linear", "objects"), ("cifar10/colour/linear", "colour"))
    }
    first = ours[0]
    return (
        f"### CIFAR-10 and its transfer sets: {first['images']:,} images, {first['epochs']} epochs"
        f"\n\nOver four linear tasks {OURS} is {ahead[0]} points from {CONTROLS[0]} and "
        f"{ahead[1]} from {CONTROLS[1]}; on objects {differences['objects']}, on colour "
        f"{differences['colour']}. Test sets, in percent; mean and standard deviation of "
        f"{len(ours)} seeds; in brackets the 95 % interval of a difference over test images, "
        f"paired.\n\n{markdown(Grid(columns, tuple(rows)))}\n\n{found_on_photos(methods)}"
    )


def found_in_any_order(methods: dict[str, list[dict[str, Any]]], key: str) -> str:
    """What a random order finds, from whichever result has it: it is the same for all."""
    values = [result["scores"].get(key) for results in methods.values() for result in results]
    return cell([value for value in values if value is not None][:1])


def found_on_photos(methods: dict[str, list[dict[str, Any]]]) -> str:
    """Precision at 10 in every space of the methods."""
    tasks = {
        "flowers17/class": "flowers, kind", "textures/class": "textures, kind",
        "cifar10/class": "objects, kind", "cifar10/colour": "colour bin",
    }  # fmt: skip
    rows = []
    for name, results in methods.items():
        first = f"{next(iter(tasks))}/retrieval/"
        scores = [key.removeprefix(first) for key in results[0]["scores"] if key.startswith(first)]
        rows += [
            (name, title, *(
                cell([result["scores"][f"{task}/retrieval/{PRECISION}{space}"]
                      for result in results])
                for task in tasks))
            for space, title in spaces(scores, PROPERTIES["color"], "colour").items()
        ]  # fmt: skip
    chance = [found_in_any_order(methods, f"{task}/retrieval/chance") for task in tasks]
    rows.insert(0, ("by chance", "", *chance))
    grid = Grid(("method", "space", *tasks.values()), tuple(rows))
    return f"Of the ten nearest test images, the share with the query's label:\n\n{markdown(grid)}"


def scored() -> tuple[Groups, Groups]:
    """Results on validation and on test sets."""
    folder = RESULTS / DoesItHelp.results
    return read(folder / "validation"), read(folder / "test")


def does_it_help() -> str:
    """The section of the study of this name."""
    text = [
        "### Everything that was tried on CIFAR-10",
        "`mast study does_it_help --data SETS --out FOLDER --seeds 0 1 2 --only 'validation/*'` "
        "(then `--only 'test/*'`). "
        "Linear accuracy in percent (L-BFGS probe), `objects kNN` by weighted kNN; `weight` is the "
        "weight of invariance. The penalty is chosen on a tenth of the training set, for the test "
        "score of Flowers-17 on its validation set, and for that of the textures, in the runs of "
        "the comparison above, by cross-validation. Those runs, `augself`, `exempt` and "
        "`exempt_both` were trained in float32, the rest under bfloat16 autocast; of "
        "`learned_slow` at 25 seeds 0 and 1 are in float32. `half` in front is a start of learned "
        "masks, behind it a prediction that weighs 0.5 in place of 1.",
    ]
    validation, test = scored()
    for groups, title in (
        (test, "#### Test"),
        (validation, "#### Validation, by which variants are chosen"),
    ):
        if not groups:
            continue
        first = next(iter(groups.values()))[0]
        text += [
            title,
            f"{first['images']:,} training images of {first['size']} pixels, {first['epochs']} "
            f"epochs, {first['provenance']['processor']}.",
            comparison(groups),
        ]
    return "\n\n".join(text)


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
        "`mast study forgetting --data SETS --out FOLDER --seeds 0 1 2 3 4`. The set is `toys`, "
        "made so that operators destroy a factor ([how](data.md)): `forget_color` turns the hue "
        "anywhere, and so on. Percent; mean and standard deviation of seeds. "
        f"{first['images']:,} images of 32 pixels, {first['epochs']} epochs, "
        f"{first['provenance']['processor']}. What has a single seed has no spread and is not "
        "ranked; what is not listed has not been run yet. `augself` is VICReg that predicts what "
        "the operators did from its representation, `exempt` MAST that does so from its block of "
        f"{100 * SHARE:g} % of the dimensions; their prediction weighs {WEIGHT:g}, or twice that "
        "(`double`). A number at the end is another share in percent. "
        f"{legend(measured)}Linear accuracy of the representation:",
        markdown(Forgetting().table(measured)),
        "Of the ten nearest test images by cosine, the share with the query's label:",
        markdown(searches(measured)),
        "Seed by seed, the block's lead over the best representation or embedding: the run's own, "
        "VICReg's, and that of VICReg with a prediction of the same weight; and on which other "
        "task ignoring the factor is furthest behind the best of these:",
        markdown(led(measured)),
    ]
    return "\n\n".join(parts)


def legend(measured: dict[str, dict[str, Any]]) -> str:
    """What the methods are that need a word, of those that have been run."""
    methods = {result["method"] for result in measured.values()}
    meant = {
        "silent": "does not predict",
        "both_double": "predicts from block and representation",
        "representation_double": "predicts from the representation",
        "budgeted_double": "learns which dimensions are exempt",
        "guarded": "is the former default",
    }
    said = [f"`{name}` {what}" for name, what in meant.items() if name in methods]
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
        markdown(Grid(grid.columns[1:], tuple((SHOWN[row[1]], *row[2:]) for row in grid.rows)))
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
    ours = of_method(shown, "exempt_double")
    spaces_of_ours = block_of(ours[0])
    assert spaces_of_ours is not None
    ignoring, matching = (
        statistics.fmean(precision(result, "color", space) for result in ours)
        for space in spaces_of_ours
    )
    verdict = (
        f"On the mean of six linear tasks MAST has {level['exempt_double']:.1f}, VICReg with "
        f"prediction {level['augself_double']:.1f} and VICReg {level['vicreg']:.1f}. What the "
        f"block adds is a search: matching the colour, {matching:.0f} % of the ten nearest have "
        "the query's colour. VICReg with prediction finds "
        f"{found['augself_double', 'representation']:.0f} % by its representation, VICReg "
        f"{found['vicreg', 'representation']:.0f} % (by chance 12 %). Ignoring the colour it is "
        f"{ignoring:.0f} %, as in the whole embedding of VICReg with prediction "
        f"({found['augself_double', 'embedding']:.0f} %). {ahead(shown)}"
    )
    return (
        f"{verdict}\n\n"
        "Linear accuracy of the representation (%), where the views destroy the colour; mean and "
        f"standard deviation of seeds:\n\n{tables[0]}\n\n"
        "Of the ten nearest images, the share with the query's label (%); “it” is the colour:\n\n"
        f"{tables[1]}"
    )


def ahead(shown: dict[str, dict[str, Any]]) -> str:
    """By how much the block leads the search for colour, over all seeds."""
    found = leads(shown)
    behind = [lead.furthest[1] for lead in found]
    points = [lead.lead for lead in found]
    return (
        f"Seed by seed the block is {min(points):.0f} to {max(points):.0f} points ahead of the "
        "best representation or embedding; ignoring the colour is at most "
        f"{min(behind):.0f} to {max(behind):.0f} points behind the best of them on any other task."
    )


def photos() -> str:
    """Flowers-17, as the study `flowers` measured it."""
    result = json.loads((RESULTS / f"{Flowers.results}.json").read_text())
    encoders = {
        name: {"encoder": name, "scores": scores} for name, scores in result["encoders"].items()
    }
    commands = "\n".join(result["commands"])
    return (
        "### Photos: Flowers-17, 64 pixels\n\n"
        f"```bash\n{commands}\n```\n\n{markdown(Flowers().table(encoders))}\n\n"
        f"{result['minutes']:.0f} minutes of pretraining on {result['threads']} CPU thread(s), "
        "beside other runs. "
        "33 of the 340 test images have a near-copy in train or val (official split 1), so every "
        "number here is somewhat too good."
    )


def insights(question: str) -> list[dict[str, Any]]:
    """What was measured of each run."""
    files = sorted((RESULTS / "insight").glob(f"{question}-*.json"))
    return [json.loads(file.read_text()) for file in files]


def described(run: dict[str, Any]) -> str:
    """What a run was, in a few words."""
    return (
        f"{run['method']} on {run['data']}, views {run['views']}, {run['size']} pixels, "
        f"{run['epochs']} epochs"
    )


def advice() -> str:
    """For each run the operators of each task by what they cost it, those that destroy it bold."""
    parts = [
        f"{described(result['run'])}:\n\n{markdown(AdviceCheck().table({'': result}))}"
        for result in insights("advice")
    ]
    return (
        "\n\n".join(parts) + "\n\n"
        "`!`: the interval is below a loss of 2 points; `?`: it is not clear. *Right order*: "
        "percent of the pairs of a destroying and another operator in which the destroying one "
        "costs more (50 by chance); *by subspaces*: likewise, by what the subspaces keep of the "
        "true class."
    )


def uncertain() -> str:
    """How often a damaged copy is ranked above its original, a column a run."""
    results = {str(at): result for at, result in enumerate(insights("uncertain"))}
    return markdown(UncertaintyCheck().table(results))


def studies() -> str:
    """What the studies of each run said, in words; the numbers are in the result files."""
    return "\n\n".join(
        f"**{answer['title']}** (of a run of {described(result['run'])}). {answer['caption']}"
        for result in insights("findings")
        for name, answer in result["analyses"].items()
        if name in OF_A_RUN
    )


def findings(run: str) -> str:
    """What the analyses of one run said, in words."""
    (result,) = (result for result in insights("findings") if result["run"]["name"] == run)
    return "\n".join(
        f"- **{answer['title']}**: {answer['caption']}"
        for name, answer in result["analyses"].items()
        if name not in OF_A_RUN
    )


def detection() -> str:
    """What the detectors learn."""
    result = json.loads((RESULTS / f"{Detectors.results}.json").read_text())
    fitted, networks = result["overfit"], list(result["losses"]["networks"].values())
    names = {"AP": "objects/ap", "AP50": "objects/ap50", "AP75": "objects/ap75"}
    precision = ", ".join(f"{name} {fitted['measures'][key]:.1f}" for name, key in names.items())
    truth = "; ".join(
        f"{split}: boxes {row['objects/ap']:.1f}, masks {row['masks/ap']:.1f}"
        for split, row in result["truth"]["sets"].items()
    )
    return (
        f"Learned by heart, {fitted['images']['train']} photos with {fitted['objects']} objects in "
        f"{fitted['settings']['iterations']} steps and {fitted['minutes']:.0f} minutes, boxes: "
        f"{precision}.\n\n"
        f"Mean of each loss over the first and the last {AVERAGED} steps on "
        f"{networks[0]['images']['train']} photos:\n\n"
        f"{markdown(Detectors().table(result))}\n\nAP of the annotations themselves: {truth}."
    )


def documents() -> dict[Path, str]:
    """Every document with the results that the files hold."""
    head = "# Results\n\nWritten by `docs/generate.py` from result files.\n\n"
    readme, insight, studied, detected = (
        ROOT / name
        for name in ("README.md", "docs/insight.md", "docs/studies.md", "docs/detection.md")
    )
    parts = {
        "advice": advice(),
        "uncertain": uncertain(),
        "findings": findings("cifar_exempt"),
    }
    on_generated = forgetting()
    on_photos = f"## Photos\n\n{compared_on_photos()}\n\n{does_it_help()}\n\n{photos()}"
    return {
        ROOT / "docs" / "results.md": f"{head}{on_generated}\n\n{on_photos}\n",
        readme: between(
            readme,
            {
                "demo": demonstration(),
                "results": f"{compared_on_photos()}\n\n{photos()}",
            },
        ),
        insight: between(insight, parts),
        studied: between(studied, {"studies": studies()}),
        detected: between(detected, {"detection": detection()}),
    }


def between(document: Path, parts: dict[str, str]) -> str:
    """A document with what stands between its marks replaced."""
    text = document.read_text()
    for mark, part in parts.items():
        before, rest = text.split(f"<!-- {mark} -->")
        after = rest.split(f"<!-- /{mark} -->")[1]
        text = f"{before}<!-- {mark} -->\n{part}\n<!-- /{mark} -->{after}"
    return text


def main() -> None:
    for document, text in documents().items():
        write_text(document, text)


if __name__ == "__main__":
    main()
