"""Write docs/results.md and the results of the README from the result files.

python experiments/write_results.py
"""

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from mast.core.checkpoint import write_text

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


def read(folder: Path) -> dict[tuple[str, float], list[dict[str, Any]]]:
    """Result files by variant and weight of invariance."""
    groups = defaultdict(list)
    for file in sorted(folder.glob("*.json")):
        result = json.loads(file.read_text())
        groups[result["variant"], result["weight"]].append(result)
    return dict(groups)


def cell(values: list[float]) -> str:
    """Mean, and the standard deviation over seeds where there are several."""
    mean = statistics.fmean(values)
    return f"{mean:.1f}" if len(values) == 1 else f"{mean:.1f} ± {statistics.stdev(values):.1f}"


def comparison(groups: dict[tuple[str, float], list[dict[str, Any]]]) -> str:
    """One row a variant and weight, best mean first."""

    def mean_of(result: dict[str, Any]) -> float:
        return statistics.fmean(result["scores"][task] for task in TASKS)

    lines = [
        f"| variant | weight | seeds | {' | '.join(COLUMNS.values())} | mean of four tasks |",
        f"|---|---|---|{'---|' * len(COLUMNS)}---|",
    ]
    ordered = sorted(groups.items(), key=lambda item: -statistics.fmean(map(mean_of, item[1])))
    for (variant, weight), results in ordered:
        cells = [cell([result["scores"][name] for result in results]) for name in COLUMNS]
        means = cell([mean_of(result) for result in results])
        row = [variant, f"{weight:g}", str(len(results)), *cells, means]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def does_it_help() -> str:
    """The section of `does_it_help.py`."""
    text = [
        "## Does it help? CIFAR-10 at equal budgets",
        "`python experiments/does_it_help.py --sets SETS --seeds 0 1 2` (then `--score test`). "
        "Linear accuracy in percent (L-BFGS probe, penalty chosen on a tenth of its training "
        "set), `objects kNN` by weighted kNN; `weight` is the weight of invariance.",
    ]
    for score, title in (
        ("test", "### Test"),
        ("validation", "### Validation, by which variants are chosen"),
    ):
        groups = read(HERE / "results" / "does_it_help" / score)
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
    file = HERE / "results" / "flowers17.json"
    if not file.is_file():
        return ""
    result = json.loads(file.read_text())
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


def step() -> str:
    """What a step costs, from benchmarks/results."""
    file = ROOT / "benchmarks" / "results" / "step-cpu.json"
    result = json.loads(file.read_text())
    setting = result["setting"]
    lines = ["| step of | seconds (min to max) | over the encoder alone |", "|---|---|---|"]
    for name, value in result["seconds"].items():
        ratio = result["ratio_to_encoder"].get(name, 1.0)
        lines.append(
            f"| {name} | {value['median']:.2f} ({value['min']:.2f} to {value['max']:.2f}) "
            f"| {ratio:.2f} x |"
        )
    return (
        f"### What a step costs: {setting['encoder']}, {setting['size']} pixels, batch "
        f"{setting['batch']}\n\n`python benchmarks/step.py`, {result['provenance']['processor']}, "
        f"{result['provenance']['threads']} threads.\n\n" + "\n".join(lines)
    )


def main() -> None:
    sections = [section for section in (photos(), step()) if section]
    head = "# Results\n\nWritten by `experiments/write_results.py` from result files.\n\n"
    body = "\n\n".join([does_it_help(), *sections])
    write_text(ROOT / "docs" / "results.md", head + body + "\n")

    readme = ROOT / "README.md"
    before, rest = readme.read_text().split("<!-- results -->")
    after = rest.split("<!-- /results -->")[1]
    shown = "\n\n".join(sections)
    write_text(readme, f"{before}<!-- results -->\n{shown}\n<!-- /results -->{after}")


if __name__ == "__main__":
    main()
