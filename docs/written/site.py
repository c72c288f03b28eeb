"""Results in the README, the site's first page, and the reference."""

import json
import re

from experiments.beyond import ADAPTED, LAST
from experiments.fair import DECIDING, FAIR
from experiments.small import DEPTHS
from mast import PUBLIC
from mast.analyses import Grid
from mast.commands.common import TEXTS
from mast.studies.seeds import cell
from mast.studies.tables.printed import as_markdown
from written.beyond import not_trained
from written.invariances import brief
from written.result_files import ROOT
from written.subspaces import found_and_right
from written.tables import results_of

SEEDS = 8


def home(readme: str) -> str:
    """The README, whose links lead from the folder of the documents."""
    text = readme.replace(" · [contributing](CONTRIBUTING.md)", "")
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


def pretraining() -> str:
    """What pretraining on a few photos gains."""
    result = json.loads((ROOT / "benchmarks" / "results" / "path.json").read_text())
    setting, ways = result["setting"], result["ways"]
    ours, scratch, untrained = (
        cell([draw["top1"] for draw in ways[way]])
        for way in ("pretrained, all depths", "from scratch", "untrained, all depths")
    )
    return (
        f"With {setting['photos']} unlabeled flower photos and {setting['labels']} labels per "
        f"class, pretraining (`mast_c5_small`) reaches {ours} % accuracy on "
        f"{setting['classes']} classes; training on the labels alone reaches {scratch} %, the "
        f"untrained encoder {untrained} %."
    )


def results() -> str:
    """The README's table."""
    copies, knn = brief("first"), brief("kNN")
    depths, last = map(_means, (DEPTHS, ""))
    rows = [
        ("edited copies ranked first among 50,000 images", f"{copies['ignore all']} "
         "(`--ignore all`)", f"encoder alone {copies['last map']}, whitened "
         f"{copies['all depths, whitened']}, pHash {copies['pHash']}"),
        ("kNN, mean of seven sets, adapted on other photos",
         f"{knn['ignore all']} (`--ignore all`)",
         f"encoder alone {knn['last map']}, whitened {knn['all depths, whitened']}"),
        ("edited copies found / grouped with the right photo, five sets",
         f"{found_and_right('ignoring all, or pHash')} (`mast duplicates --ignore all`)",
         f"pHash {found_and_right('pHash, up to 4 bits')}"),
        ("linear probe / kNN / five labels per class, means of five sets, adapted on their photos",
         f"{not_trained(ADAPTED)} (`--ignore all`)",
         f"encoder alone {not_trained(LAST)}, all depths {not_trained(DEPTHS)}"),
        ("pretrained at one small budget, eight seeds, mean of four groups of tasks, all depths "
         "(every stage, pooled)",
         *depths),
        ("the same, last map", *last),
    ]  # fmt: skip
    return as_markdown(Grid(("percent", "`mast`", "others"), tuple(rows)))


def _means(representation: str) -> tuple[str, str]:
    """Of the default and of its controls, where all seeds are there: the mean of the groups."""
    found: dict[str, list[float]] = {}
    for name, result in results_of(FAIR.results).items():
        if name.startswith("test/"):
            found.setdefault(result["row"], []).append(FAIR.tasks.mean(result, representation))
    ours, *others = (f"{FAIR.rows[name].title} {cell(found[name])}" for name in DECIDING
                     if len(found.get(name, ())) == SEEDS)  # fmt: skip
    return ours, ", ".join(others)
