"""Results in the README, the site's first page, and the reference."""

import json
import re
import statistics

from experiments.beyond import ADAPTED, LAST
from experiments.does_it_help import mean_of_tasks
from experiments.small import ROWS
from mast import PUBLIC
from mast.analyses import Grid
from mast.commands.common import TEXTS
from mast.studies.seeds import cell
from mast.studies.tables.printed import as_markdown
from written.beyond import not_trained
from written.invariances import brief
from written.result_files import ROOT
from written.subspaces import found_and_right
from written.tables import finished, without_labels

OURS, OBJECTS = "mast", "cifar10/class/linear"


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
        f"Where a function says nothing of one of these, it is:\n\n<!-- shared -->\n{shared}\n"
        "<!-- /shared -->\n"
    )


def pretraining() -> str:
    """What pretraining on a few photos gains."""
    result = json.loads((ROOT / "benchmarks" / "results" / "path.json").read_text())
    setting, ways = result["setting"], result["ways"]
    ours, scratch, untrained = (
        cell([draw["top1"] for draw in ways[way]])
        for way in ("mast5_small, linear head", "from scratch", "untrained, linear head")
    )
    return (
        f"With {setting['photos']} unlabelled flower photos and {setting['labels']} labels per "
        f"class, pretraining reaches {ours} % accuracy on {setting['classes']} classes; training "
        f"on the labels alone reaches {scratch} %, the untrained encoder {untrained} %."
    )


def results() -> str:
    """The README's table."""
    copies, knn = brief("first"), brief("kNN")
    tested = without_labels(finished())
    means = {name: [mean_of_tasks(one) for one in each] for name, each in tested.items()}
    objects = {name: [one["scores"][OBJECTS] for one in each] for name, each in tested.items()}
    rows = [
        ("edited copies ranked first among 50,000 images", f"{copies['ignore all']} "
         "(`--ignore all`)", f"encoder alone {copies['last map']}, whitened "
         f"{copies['all depths, whitened']}, pHash {copies['pHash']}"),
        ("kNN, mean of seven sets", f"{knn['ignore all']} (`--ignore all`)",
         f"encoder alone {knn['last map']}, whitened {knn['all depths, whitened']}"),
        ("edited copies found / grouped with the right photo, five sets",
         f"{found_and_right('ignoring all, or pHash')} (`mast duplicates --ignore all`)",
         f"pHash {found_and_right('pHash, up to 4 bits')}"),
        ("linear probe / five labels per class, means of five sets of photos",
         f"{not_trained(ADAPTED)} (`mast adapt`)", f"encoder alone {not_trained(LAST)}"),
        ("one small budget, mean of four tasks", _place(means), _others(means)),
        ("the same, objects alone", _place(objects), _others(objects)),
    ]  # fmt: skip
    return as_markdown(Grid(("percent", "`mast`", "others"), tuple(rows)))


def _place(scores: dict[str, list[float]]) -> str:
    """What our method has, and how many are ahead of it."""
    order = _order(scores)
    return f"{ROWS[OURS].title} {cell(scores[OURS])}, rank {order.index(OURS) + 1} of {len(order)}"


def _others(scores: dict[str, list[float]]) -> str:
    """What the best of the others has, VICReg, and the encoder as it starts."""
    best = next(name for name in _order(scores) if name != OURS)
    return ", ".join(f"{ROWS[name].title} {cell(scores[name])}"
                     for name in dict.fromkeys((best, "vicreg_augself", "vicreg")))  # fmt: skip


def _order(scores: dict[str, list[float]]) -> list[str]:
    return sorted(scores, key=lambda name: -statistics.fmean(scores[name]))
