"""The studies `does_it_help` and `flowers`."""

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from experiments.does_it_help import COLUMNS, FEW, TASKS, DoesItHelp, mean_of_tasks
from experiments.flowers import Flowers
from experiments.searches import spaces
from mast.analyses import Grid
from mast.augment import PROPERTIES
from paper.protocols.retrieval import PRECISION
from paper.seeds import cell, difference, spread
from written.result_files import RESULTS, link_table

OURS = "MAST-C over VICReg's distance"
COMPARED = {  # as the study `does_it_help` calls them
    "untrained": "untrained",
    "vicreg5": "VICReg",
    "augself_half": "VICReg + AugSelf",
    "learned_slow": "MAST, no uncertainty",
    "exempt_half": "MAST-C, heads see the block",
    "exempt_both_half": OURS,
}
KNN = "cifar10/class/knn"
CONTROLS = ("VICReg", "VICReg + AugSelf")

NAMES = {  # of variants
    "untrained": "the encoder before training (no weight)",
    "vicreg5": "VICReg, five operators from the start; _staged: in the paper's two stages; "
    "_all_but_one, _some: half of the pairs without one operator, or without one to four",
    "mast5_literal": "the paper's Eq. 7 as printed",
    "half, wide": "learned masks: half or three quarters of the dimensions start in every "
    "subspace, the others in all but one; _unstaged: without the two stages; wide, "
    "half_wide: with a reward for wide masks; half_plain: with a plain distance",
    "fixed, learned": "each mask leaves out one operator, as half of the pairs do, and is "
    "fixed or learned (_slow: at a third of the rate); _some, _plain: as above",
    "_sigma": "distances are divided by the predicted uncertainty",
    "augself": "VICReg that predicts from its representation how the colors of the views differ",
    "exempt": "MAST-C over VICReg's distance, which predicts from its blocks; _both: from "
    "block and representation, as mast_c5_distance does; budgeted: blocks that are learned",
    "_half at the end of these": "each prediction weighs 0.5 (as in mast_c5_distance), not 1",
    "strong_, fifteen_ in front": "mast5_strong, mast15 in place of mast5",
}

Groups = dict[tuple[str, float], list[dict[str, Any]]]


def compared_on_photos() -> str:
    """The methods on the test sets, and differences."""
    methods = compared(*scored())
    ours = methods[OURS]
    tasks = {task: ("linear", name) for task, name in COLUMNS.items() if task in TASKS}
    tasks |= {"cifar10/rotation/rotation": ("linear", "rotation"), KNN: ("kNN", "objects")}
    tasks |= {task: ("5 labels per class", name) for task, name in FEW.items()}
    rows = [
        (
            name, how, *(cell([result["scores"][task] for result in results])
                         for results in methods.values()),
            *(str(difference(ours, methods[control], task)) for control in CONTROLS),
        )
        for task, (how, name) in tasks.items()
    ]  # fmt: skip
    ahead = [gain(ours, methods[control]) for control in CONTROLS]
    cells = (cell(list(map(mean_of_tasks, results))) for results in methods.values())
    rows.insert(len(TASKS), ("mean of these four", "linear", *cells, *ahead))
    titles = (
        name if len(results) == len(ours) else f"{name} ({len(results)} seeds)"
        for name, results in methods.items()
    )
    columns = ("task", "by", *titles, *(f"{OURS} minus {control}" for control in CONTROLS))
    return link_table("photos", Grid(columns, tuple(rows)), "scores")


def gain(ours: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    """By how much one method is ahead of another on the mean of four tasks, seed by seed."""
    by_seed = {result["seed"]: mean_of_tasks(result) for result in others}
    gains = [
        mean_of_tasks(result) - by_seed[result["seed"]]
        for result in ours
        if result["seed"] in by_seed
    ]
    mean = f"{statistics.fmean(gains):+.1f}"
    return mean if len(gains) == 1 else f"{mean} ± {spread(gains):.1f}"


def compared(validation: Groups, test: Groups, regime: str = "") -> dict[str, list[dict[str, Any]]]:
    """The results of every method that was compared, by its name for readers, a seed each.

    Of several weights of invariance that were tested in all ways, validation chose one.

    Args:
        validation: Of all variants.
        test: Of all variants.
        regime: How the names of its variants begin.
    """
    found = {}
    for variant, name in COMPARED.items():
        tested = {
            key: each
            for key, results in test.items()
            if key[0] == regime + variant
            and (each := [result for result in results if result.get("each")])
        }
        if len(tested) == 1:
            (found[name],) = tested.values()
        elif tested:
            means = {statistics.fmean(map(mean_of_tasks, validation[key])): key for key in tested}
            found[name] = tested[means[max(means)]]
    return found


def found_on_photos() -> str:
    """Precision at 10 in every space of the methods, under the usual operators and strong ones."""
    methods = {
        name + (" (strong operators)" if regime else ""): results
        for regime in ("", "strong_")
        for name, results in compared(*scored(), regime).items()
    }
    tasks = {
        "flowers17/class": "flowers, kind", "textures/class": "textures, kind",
        "cifar10/class": "objects, kind", "cifar10/colour": "color bin",
    }  # fmt: skip
    rows = []
    for name, results in methods.items():
        first = f"{next(iter(tasks))}/retrieval/"
        for space, title in of_color(results, first).items():
            having = [
                result for result in results if f"{first}{PRECISION}{space}" in result["scores"]
            ]
            cells = (
                cell(
                    [result["scores"][f"{task}/retrieval/{PRECISION}{space}"] for result in having]
                )
                for task in tasks
            )
            rows.append((name, title, str(len(having)), *cells))
    chance = [found_in_any_order(methods, f"{task}/retrieval/chance") for task in tasks]
    rows.insert(0, ("by chance", "", "", *chance))
    grid = Grid(("method", "space", "seeds", *tasks.values()), tuple(rows))
    return link_table("photos-searches", grid, "precision at 10")


def of_color(results: list[dict[str, Any]], first: str) -> dict[str, str]:
    """The spaces that concern color of any seed of a method, and what they are called."""
    scores = {key.removeprefix(first) for result in results for key in result["scores"]
              if key.startswith(first)}  # fmt: skip
    return spaces(sorted(scores), PROPERTIES["color"], "color")


def found_in_any_order(methods: dict[str, list[dict[str, Any]]], key: str) -> str:
    """What a random order finds, from whichever result has it: it is the same for all."""
    values = [result["scores"].get(key) for results in methods.values() for result in results]
    return cell([value for value in values if value is not None][:1])


def variants() -> str:
    """All variants of the study `does_it_help`, and what their names mean."""
    names = zip(("validation", "test"), scored(), strict=True)
    links = (comparison(name, groups) for name, groups in names)
    meant = Grid(("name", "meaning"), tuple(NAMES.items()))
    return f"variants on {' and '.join(links)} ({link_table('variants-names', meant, 'names')})"


def comparison(name: str, groups: Groups) -> str:
    """One row a variant and weight, best mean first."""
    results = [result for of_variant in groups.values() for result in of_variant]
    grid = DoesItHelp().table({str(at): each for at, each in enumerate(results)})
    return link_table(f"variants-{name}", grid, f"{name} images")


def scored() -> tuple[Groups, Groups]:
    """Results on validation and on test sets."""
    folder = RESULTS / DoesItHelp.results
    return read(folder / "validation"), read(folder / "test")


def read(folder: Path) -> Groups:
    """Result files by variant and weight of invariance."""
    groups = defaultdict(list)
    for file in sorted(folder.glob("*.json")):
        result = json.loads(file.read_text())
        groups[result["variant"], result["weight"]].append(result)
    return dict(groups)


def photos() -> str:
    """Everything that was measured on photos."""
    result = json.loads((RESULTS / f"{Flowers.results}.json").read_text())
    encoders = {
        name: {"encoder": name, "scores": scores} for name, scores in result["encoders"].items()
    }
    flowers = link_table("flowers", Flowers().table(encoders), "Flowers-17")
    links = [compared_on_photos(), found_on_photos(), variants(), flowers]
    return f"All rows: {', '.join(links)}."
