"""Results in the README, the site's first page, and the reference."""

import json
import re
import statistics
from typing import Any

from experiments.fair import DECIDING, FAIR
from experiments.small import DEPTHS
from mast import PUBLIC
from mast.analyses import Grid
from mast.commands.common import TEXTS
from paper.seeds import cell
from paper.tables.printed import as_markdown
from written.clean import edits_of
from written.result_files import ROOT
from written.tables import results_of

SEEDS = 8
TOOLS = {
    "mast": "`mast duplicates`",
    "fastdup": "fastdup {fastdup}",
    "pHash": "pHash (imagehash, 10 bits)",
    "czkawka": "czkawka {czkawka} (Python)",
}
PUBLISHED = "published"
# Recall, precision and seconds per 1,000 images of the transformed set, by its user guide.
THEIRS = {
    "imagededup, CNN": ("38", "100", "36"),
}


def home(readme: str) -> str:
    """The README without tests, examples, results and tree; links lead from the documents."""
    results = r"pip install -e.*?\n|## Use\n.*?(?=\[All numbers\])|```\nmast/.*?```\n\n"
    files = r" · \[\w+\]\((CONTRIBUTING.md|CITATION.cff)\)"
    text = re.sub(f"{results}|{files}", "", readme, flags=re.DOTALL)
    text = text.replace("[All numbers]", "[Quickstart](docs/start.md); [all numbers]")
    return re.sub(r"\]\(docs/", "](", text)


def reference() -> str:
    """What `import mast` offers, from the docstrings."""
    entries = "\n\n".join(f"::: {module}.{name}" for name, module in PUBLIC.items())
    shared = "\n".join(f"- `{name}`: {text}" for name, text in TEXTS.items())
    return (
        f"# Reference\n\nWhat `import mast` offers.\n\n{entries}\n\n## Shared options\n\n"
        f"Unless a function says otherwise:\n\n<!-- shared -->\n{shared}\n"
        "<!-- /shared -->\n"
    )


def copies() -> str:
    """The README's table of tools that find copies, measured here or as their authors say."""
    result = json.loads((ROOT / "benchmarks" / "results" / "copies.json").read_text())
    measured = result["rows"]
    for row in measured:
        row["seconds"] *= 1000 / row["images"]
    rows = []
    for tool, title in TOOLS.items():
        of_tool = [row for row in measured if row["tool"] == tool]
        means = (statistics.fmean(row[key] for row in of_tool)
                 for key in ("recall", "precision", "seconds"))  # fmt: skip
        rows.append((title.format_map(result["versions"]), *(f"{mean:.0f}" for mean in means)))
    rows += [(f"{name} ({PUBLISHED})", *numbers) for name, numbers in THEIRS.items()]
    sets, draws = (len({row[key] for row in measured}) for key in ("set", "seed"))
    images = measured[0]["images"]
    viewpoints = edits_of("ukbench")
    others, joined = viewpoints["others"], viewpoints["joined"]
    table = as_markdown(Grid(("edited copies found (%)", "recall", "precision", "s / 1,000 images"),
                             tuple(rows)))  # fmt: skip
    return (
        f"{table}\n\nCrop, flips, rotation, aspect ratio; {images} images at a time, {sets} "
        f"sets, {draws} draws, two cores. `mast` "
        f"wrongly merges {joined} of {others} pairs that show one object from two viewpoints "
        "(UKBench). "
        "*Published*: on UKBench, four cores, by "
        "[imagededup](https://idealo.github.io/imagededup/user_guide/benchmarks)."
    )


def pretrained() -> str:
    """The README's table of pretraining, with its controls."""
    return (
        f"{controls()}\n\nLinear probe, mean of four groups of tasks, {SEEDS} seeds, equal tuning "
        "([details](docs/results.md#mast-c-and-its-controls)). The color block adds 0.3 points, "
        "within seed noise."
    )


def controls() -> str:
    """Its rows."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, result in results_of(FAIR.results).items():
        if name.startswith("test/"):
            found.setdefault(result["row"], []).append(result)
    rows = [
        (FAIR.rows[name].title,
         *(cell([FAIR.tasks.mean(each, read) for each in found[name]]) for read in (DEPTHS, "")))
        for name in (*DECIDING, "vicreg") if len(found.get(name, ())) == SEEDS
    ]  # fmt: skip
    return as_markdown(Grid(("pretrained on CIFAR-10 (%)", "all depths", "last map"), tuple(rows)))
