"""What searching and cleaning a folder is worth, as the benchmarks measured it."""

import json
import statistics
from typing import Any

from mast.analyses import Grid
from written.result_files import ROOT, markdown

FOLDER = ROOT / "benchmarks" / "results"


def search() -> str:
    """Seconds of an exact search, and of comparing all pairs, by the number of images."""
    result = _read("search-cpu")
    setting = result["setting"]
    rows = [
        (case, size.removesuffix(" images"), f"{seconds['median']:.2g}")
        for case, sizes in result["cases"].items()
        for size, seconds in sizes.items()
    ]
    return (
        f"{markdown(Grid(('queries', 'images', 'seconds'), tuple(rows)))}\n\n"
        f"Random features of {setting['dimensions']} dimensions, the {setting['neighbours']} "
        f"nearest; median of {setting['rounds']} rounds, one thread of "
        f"{result['provenance']['processor']}, which other programs used too "
        "(`benchmarks/search.py`)."
    )


def copies() -> str:
    """Percent of planted copies that are found, by what was done to them."""
    result = _read("copies")
    setting, encoders = result["setting"], result["encoders"]
    columns = [(kind, above) for kind in encoders for above in _first(_first(encoders))]
    rows = [
        (
            change,
            *(f"{encoders[kind][change][above]['found']:.0f}" for kind, above in columns),
        )
        for change in _first(encoders)
    ]
    heads = tuple(f"{kind}, above {above}" for kind, above in columns)
    return (
        f"{markdown(Grid(('the copy has', *heads), tuple(rows)))}\n\n"
        f"Percent of {setting['copied']} planted copies that are in one group with their original, "
        f"among {setting['images']} images of Flowers-17 at {setting['size']} pixels; a narrow "
        f"ResNet after {setting['epochs']} epochs of `mast5_small` on these images, and before "
        "(`benchmarks/copies.py`)."
    )


def label_errors() -> str:
    """What each method takes for wrong labels, and how much of it is."""
    result = _read("label_errors")
    setting, encoders = result["setting"], result["encoders"]
    rows = []
    for kind, seeds in encoders.items():
        for method in _first(seeds)["flagged"]:
            each = [seed["flagged"][method] for seed in seeds]
            rows.append(
                (
                    kind,
                    method,
                    f"{statistics.mean(one['images'] for one in each):,.0f}",
                    _range(one["precision"] for one in each),
                    _range(one["recall"] for one in each),
                )
            )
        for name in _first(seeds)["first"]:
            # As many are taken as were changed: precision and recall are the same.
            share = _range(seed["first"][name] for seed in seeds)
            taken = _first(seeds)["changed"]
            rows.append((kind, f"mast: the first by {name}", f"{taken:,}", share, share))
    agreed = " and ".join(
        f"{statistics.mean(seed['agreed'] for seed in seeds):.0f} % ({kind})"
        for kind, seeds in encoders.items()
    )
    grid = Grid(("encoder", "taken for wrong", "images", "precision", "recall"), tuple(rows))
    return (
        f"{markdown(grid)}\n\n"
        f"{setting['images']:,} images of CIFAR-10, {100 * setting['share']:g} % of their labels "
        f"changed at random; smallest to largest of {setting['seeds']} seeds, in percent. The "
        f"probes agree with {agreed} of the labels. All methods have the same out-of-fold "
        f"probabilities; cleanlab {result['provenance']['cleanlab']} "
        "(`benchmarks/label_errors.py`)."
    )


def _range(values: Any) -> str:
    each = [f"{value:.0f}" for value in sorted(values)]
    return each[0] if each[0] == each[-1] else f"{each[0]} to {each[-1]}"


def _first(values: Any) -> Any:
    """The first of a list, or of a mapping's values."""
    return next(iter(values.values() if isinstance(values, dict) else values))


def _read(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return result
