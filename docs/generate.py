"""Write docs/results.md, and the results in other documents, from the result files.

python experiments/write_results.py
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from mast.core.checkpoint import write_atomically, write_text
from mast.studies import STUDIES

HERE = Path(__file__).parent
ROOT = HERE.parent
COLUMNS = {
    "cifar10/class/knn": "objects kNN",
    "cifar10/class/linear": "objects",
    "cifar10/colour/linear": "colour",
    "flowers17/class/linear": "flowers",
    "textures/class/linear": "textures",
}
TASKS = [name for name in COLUMNS if name.endswith("linear")]
VICREG = ("vicreg5_staged", "vicreg5", "vicreg5_all_but_one")
REFERENCES = ("untrained", *VICREG, "mast5_literal")

Groups = dict[tuple[str, float], list[dict[str, Any]]]


def read(folder: Path) -> Groups:
    """Result files by variant and weight of invariance."""
    groups = defaultdict(list)
    for file in sorted(folder.glob("*.json")):
        result = json.loads(file.read_text())
        groups[result["variant"], result["weight"]].append(result)
    return dict(groups)


def cell(values: list[float]) -> str:
    """Mean, and the standard deviation over seeds where there are several."""
    mean = statistics.fmean(values)
    return f"{mean:.1f}" if len(values) == 1 else f"{mean:.1f} ± {spread(values):.1f}"


def spread(values: list[float]) -> float:
    """Standard deviation over seeds; 0 for a single one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def mean_of_tasks(result: dict[str, Any]) -> float:
    """The mean over the four tasks, by which variants are compared."""
    return statistics.fmean(result["scores"][task] for task in TASKS)


def comparison(groups: Groups) -> str:
    """One row a variant and weight, best mean first."""
    lines = [
        f"| variant | weight | seeds | {' | '.join(COLUMNS.values())} | mean of four tasks |",
        f"|---|---|---|{'---|' * len(COLUMNS)}---|",
    ]
    ordered = sorted(
        groups.items(), key=lambda item: -statistics.fmean(map(mean_of_tasks, item[1]))
    )
    for (variant, weight), results in ordered:
        cells = [cell([result["scores"][name] for result in results]) for name in COLUMNS]
        means = cell([mean_of_tasks(result) for result in results])
        row = [variant, f"{weight:g}", str(len(results)), *cells, means]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def best(groups: Groups, variants: Collection[str]) -> tuple[str, float]:
    """The variant and weight that did best on validation; only what has every seed is eligible."""
    seeds = max(len(results) for results in groups.values())
    eligible = {
        key: statistics.fmean(map(mean_of_tasks, results))
        for key, results in groups.items()
        if len(results) == seeds and key[0] in variants
    }
    return max(eligible, key=lambda key: eligible[key])


def guarded(groups: Groups) -> set[str]:
    """The variants among which the default is chosen."""
    return {variant for variant, _ in groups} - set(REFERENCES)


def verdict(validation: Groups, test: Groups) -> str:
    """The variant chosen on validation against VICReg on every schedule, on the test sets."""
    ours = best(validation, guarded(validation))
    measures = [*((lambda r, task=task: r["scores"][task]) for task in COLUMNS), mean_of_tasks]
    rows = []
    for reference in VICREG:
        theirs = best(validation, (reference,))
        by_seed = [{r["seed"]: r for r in test[key]} for key in (ours, theirs)]
        gains = [
            [measure(by_seed[0][seed]) - measure(by_seed[1][seed]) for seed in by_seed[0]]
            for measure in measures
        ]
        cells = [f"{statistics.fmean(g):+.1f} ± {spread(g):.1f}" for g in gains]
        rows.append(f"| {reference} at {theirs[1]:g} | {' | '.join(cells)} |")
    return (
        f"Best on validation: `{ours[0]}` at weight {ours[1]:g}. Its difference on the test sets "
        "from VICReg on each schedule, at VICReg's best weight (mean and standard deviation of "
        f"the {len(test[ours])} seeds' differences):\n\n"
        f"| {ours[0]} minus | {' | '.join(COLUMNS.values())} | mean of four tasks |\n"
        f"|---|{'---|' * len(measures)}\n" + "\n".join(rows)
    )


def draw_fronts(validation: Groups, test: Groups, path: Path) -> None:
    """Objects against colour, and against the mean of all tasks, over the weights."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ours = best(validation, guarded(validation))[0]
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    panels = (
        ("colour", lambda result: result["scores"]["cifar10/colour/linear"]),
        ("mean of four tasks", mean_of_tasks),
    )
    for axis, (label, value_of) in zip(figure.subplots(1, 2), panels, strict=True):
        for variant in (*VICREG, ours):
            points = sorted((key[1], results) for key, results in test.items() if key[0] == variant)
            x, y, x_spread, y_spread = [], [], [], []
            for weight, results in points:
                objects = [result["scores"]["cifar10/class/linear"] for result in results]
                other = [value_of(result) for result in results]
                x.append(statistics.fmean(objects))
                y.append(statistics.fmean(other))
                x_spread.append(spread(objects))
                y_spread.append(spread(other))
                axis.annotate(f"{weight:g}", (x[-1], y[-1]), (4, 4), textcoords="offset points")
            axis.errorbar(x, y, y_spread, x_spread, marker="o", capsize=2, label=variant)
        axis.set_xlabel("objects (linear, %)")
        axis.set_ylabel(f"{label} (%)")
        axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    with rc_context({"svg.hashsalt": "fronts"}):  # the same numbers give the same file
        write_atomically(
            path, lambda partial: figure.savefig(partial, format="svg", metadata={"Date": None})
        )


def summary() -> str:
    """The verdict, for the README; empty until there are test scores."""
    validation, test = scored()
    if not test:
        return ""
    return f"### Does it help? CIFAR-10, 10,000 images, 12 epochs\n\n{verdict(validation, test)}"


def scored() -> tuple[Groups, Groups]:
    """Results on validation and on test sets."""
    folder = HERE / "results" / "does_it_help"
    return read(folder / "validation"), read(folder / "test")


def does_it_help() -> str:
    """The section of `does_it_help.py`."""
    text = [
        "## Does it help? CIFAR-10 at equal budgets",
        "`python experiments/does_it_help.py --sets SETS --seeds 0 1 2` (then `--score test`). "
        "Linear accuracy in percent (L-BFGS probe, penalty chosen on a tenth of its training "
        "set), `objects kNN` by weighted kNN; `weight` is the weight of invariance.",
    ]
    validation, test = scored()
    if test:
        text += [
            verdict(validation, test),
            "Over the weights of invariance 5, 10 and 25 (mean and standard deviation of seeds, "
            "test sets):\n\n![Objects against colour and the mean](images/fronts.svg)",
        ]
    for groups, title in (
        (test, "### Test"),
        (validation, "### Validation, by which variants are chosen"),
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


def photos() -> str:
    """Flowers-17, from the run folder's own files as `flowers.py` kept them."""
    result = json.loads((HERE / "results" / "flowers17.json").read_text())
    lines = ["| encoder | protocol | test top-1 | 95 % interval |", "|---|---|---|---|"]
    for name, protocols in result["encoders"].items():
        for protocol, values in protocols.items():
            interval = f"{values['top1_low']:.1f} to {values['top1_high']:.1f}"
            lines.append(f"| {name} | {protocol} | {values['top1']:.1f} | {interval} |")
    commands = "\n".join(result["commands"])
    return (
        "### Photos: Flowers-17, 64 pixels\n\n"
        f"```bash\n{commands}\n```\n\n" + "\n".join(lines) + "\n\n"
        f"{result['minutes']:.0f} minutes of pretraining on {result['threads']} CPU thread(s). "
        "33 of the 340 test images have a near-copy in train or val (official split 1), so every "
        "number here is somewhat too good."
    )


def insights(question: str) -> list[dict[str, Any]]:
    """What `insight.py` measured of each run."""
    files = sorted((HERE / "results" / "insight").glob(f"{question}-*.json"))
    return [json.loads(file.read_text()) for file in files]


def about(run: dict[str, Any]) -> str:
    """What a run was, in a few words."""
    return (
        f"{run['method']} on {run['data']}, views {run['views']}, {run['size']} pixels, "
        f"{run['epochs']} epochs"
    )


def advice() -> str:
    """For each run the operators of each task by what they cost it, those that destroy it bold."""
    parts = []
    for result in insights("advice"):
        lines = [
            "| task | top-1 | costs the task, points of accuracy (**bold**: destroys it by how the "
            "images are drawn) | right order | by subspaces |",
            "|---|---|---|---|---|",
        ]
        for name, task in result["tasks"].items():
            told = [
                ("**{}**" if entry["operator"] in task["destroyed_by"] else "{}").format(
                    f"{entry['operator'].replace('_', ' ')} {entry['change']:+.0f}"
                    + {"needs what it destroys": "!", "undecided": "?"}.get(entry["verdict"], "")
                )
                for entry in task["ranking"]
            ]
            found = [
                "–" if task[f"found_by_{key}"] is None else f"{task[f'found_by_{key}']:.0f} %"
                for key in ("change", "kept_by_subspace")
            ]
            row = [name, f"{task['accuracy']:.0f}", ", ".join(told), *found]
            lines.append(f"| {' | '.join(row)} |")
        parts.append(f"{about(result['run'])}:\n\n" + "\n".join(lines))
    return (
        "\n\n".join(parts) + "\n\n"
        "`!`: the interval is below a loss of 2 points; `?`: it is not clear. *Right order*: "
        "percent of the pairs of a destroying and another operator in which the destroying one "
        "costs more (50 by chance); *by subspaces*: likewise, by what the subspaces keep of the "
        "true class."
    )


def uncertain() -> str:
    """How often a damaged copy is ranked above its original, a column a run."""
    results = insights("uncertain")
    head = " | ".join(f"{result['run']['views']}, {result['run']['mode']}" for result in results)
    lines = [f"| copies | {head} |", f"|---|{'---|' * len(results)}"]
    for kind in results[0]["percent"]:
        found = [result["percent"][kind] for result in results]
        cells = [
            "{:.0f} [{:.0f}, {:.0f}]".format(entry["above"], *entry["interval"]) for entry in found
        ]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def studies() -> str:
    """What the studies of each run said, in words; the numbers are in the result files."""
    return "\n\n".join(
        f"**{answer['title']}** (of a run of {about(result['run'])}). {answer['caption']}"
        for result in insights("findings")
        for name, answer in result["analyses"].items()
        if name in STUDIES
    )


def findings(run: str) -> str:
    """What the analyses of one run said, in words."""
    (result,) = (result for result in insights("findings") if result["run"]["name"] == run)
    return "\n".join(
        f"- **{answer['title']}**: {answer['caption']}"
        for name, answer in result["analyses"].items()
        if name not in STUDIES
    )


def documents() -> dict[Path, str]:
    """Every document with the results that the files hold."""
    head = "# Results\n\nWritten by `experiments/write_results.py` from result files.\n\n"
    readme, insight, studied = (
        ROOT / name for name in ("README.md", "docs/insight.md", "docs/studies.md")
    )
    parts = {
        "advice": advice(),
        "uncertain": uncertain(),
        "findings": findings("cifar_mast5"),
    }
    return {
        ROOT / "docs" / "results.md": f"{head}{does_it_help()}\n\n{photos()}\n",
        readme: between(readme, {"results": "\n\n".join(filter(None, (summary(), photos())))}),
        insight: between(insight, parts),
        studied: between(studied, {"studies": studies()}),
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
    validation, test = scored()
    if test:
        draw_fronts(validation, test, ROOT / "docs" / "images" / "fronts.svg")
    for document, text in documents().items():
        write_text(document, text)


if __name__ == "__main__":
    main()
