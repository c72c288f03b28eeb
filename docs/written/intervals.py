"""How often intervals cover the truth, as `benchmarks/interval_coverage.py` simulated it."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from mast.analyses import Grid
from mast.evaluation.intervals import BOOTSTRAP, STUDENT, TANGO, WILSON, WILSON_OF_CLASSES
from written.result_files import ROOT, link_table

FILE = ROOT / "benchmarks" / "results" / "interval_coverage.json"


def coverage() -> str:
    """Coverage for accuracies, class means and few draws: the bootstrap and our methods."""
    result = json.loads(FILE.read_text())
    single, of_pairs = result["single"], result["paired"]
    rows = [*_rows("one accuracy", single, WILSON)]
    for second, cells in of_pairs.items():
        rows += _rows(f"difference, the second {second}", cells, TANGO)
    images = dict.fromkeys(f"{cell['n']:,} images" for cell in single)
    everything = [*single, *(cell for cells in of_pairs.values() for cell in cells)]
    lowest = {method: _lowest(everything, method) for method in (BOOTSTRAP, WILSON, TANGO)}
    table = link_table("coverage", Grid(("95 % interval of", "accuracy", *images), tuple(rows)))
    return "\n".join([
        f"- Proportions and their differences: {lowest[BOOTSTRAP]:.0f} → "
        f"{min(lowest[WILSON], lowest[TANGO]):.0f} % ({table}).",
        f"- Means over classes: {_of_classes(result)}.",
        _of_files(result),
        _of_draws(result),
    ])  # fmt: skip


def _of_classes(result: dict[str, Any]) -> str:
    """Of the mean over classes, with few images of some: of one encoder, and of a difference."""
    seconds = list(result["paired"])
    headings = ("classes of images each", "accuracy", "one encoder",
                *(f"difference, the second {second}" for second in seconds))  # fmt: skip
    rows = [
        (
            cell["classes"],
            f"{100 * cell['p']:.0f} %",
            _change(cell["covered"], WILSON_OF_CLASSES),
            *(_change(cell["paired"][second], TANGO) for second in seconds),
        )
        for cell in result["classes"]
    ]
    table = link_table("coverage-of-classes", Grid(headings, tuple(rows)))
    lowest = (min(cell["covered"][method] for cell in result["classes"])
              for method in (BOOTSTRAP, WILSON_OF_CLASSES))  # fmt: skip
    return f"{' → '.join(f'{share:.0f}' for share in lowest)} % ({table})"


def _of_files(result: dict[str, Any]) -> str:
    """Over pieces of files: as if each were an image of its own, and as their files count."""
    cells, right = result["files"], max(cell["p"] for cell in result["files"])
    correlations = list(dict.fromkeys(cell["alike"] for cell in cells))
    rows = {name: [name] for name in dict.fromkeys(cell["files"] for cell in cells)}
    lowest = {"pieces": 100.0, "files": 100.0}
    for cell in cells:
        for of, covered in cell["covered"].items():
            if cell["p"] == right and of == "one accuracy":
                rows[cell["files"]].append(f"{covered['pieces']:.0f} → {covered['files']:.0f}")
            lowest = {which: min(share, covered[which]) for which, share in lowest.items()}
    headings = ("files of tiles", *(f"correlation {value:g}" for value in correlations))
    table = link_table("coverage-of-files", Grid(headings, tuple(map(tuple, rows.values()))))
    return f"- Accuracies over tiles: {lowest['pieces']:.0f} → {lowest['files']:.0f} % ({table})."


def _of_draws(result: dict[str, Any]) -> str:
    """How often a difference over draws is called clear where there is none."""

    def listed(values: Iterable[float]) -> str:
        *others, last = (f"{value:.0f}" for value in values)
        return f"{', '.join(others)} and {last}"

    cells = result["draws"]
    false = (listed(cell["clear"][method] for cell in cells) for method in (BOOTSTRAP, STUDENT))
    return (
        f"- False alarms over {listed(c['draws'] for c in cells)} draws of training images: "
        "{} % → {} %."
    ).format(*false)


def _rows(what: str, cells: list[dict[str, Any]], method: str) -> Iterator[tuple[str, ...]]:
    """A row for each probability of being right, a column for each number of images."""
    for p in dict.fromkeys(cell["p"] for cell in cells):
        covered = (cell["covered"] for cell in cells if cell["p"] == p)
        yield (
            what,
            f"{100 * p:.0f} %",
            *(_change(each, method) for each in covered),
        )


def _change(covered: dict[str, float], method: str) -> str:
    return f"{covered[BOOTSTRAP]:.0f} → {covered[method]:.0f}"


def _lowest(cells: Iterable[dict[str, Any]], method: str) -> float:
    return min(cell["covered"][method] for cell in cells if method in cell["covered"])
