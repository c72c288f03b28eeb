"""How often intervals cover the truth, as `benchmarks/interval_coverage.py` simulated it."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from mast.analyses import Grid
from mast.evaluation.intervals import BOOTSTRAP, STUDENT, TANGO, WILSON, WILSON_OF_CLASSES
from paper.tables.printed import as_markdown
from written.result_files import ROOT, top

FILE = ROOT / "benchmarks" / "results" / "interval_coverage.json"


def coverage() -> str:
    """Of accuracies, of means over classes, of a few draws: the bootstrap and what is used."""
    result = json.loads(FILE.read_text())
    setting, of_pairs = result["setting"], result["paired"]
    single = result["single"]
    rows = [*_rows("one accuracy", single, WILSON)]
    for second, cells in of_pairs.items():
        rows += _rows(f"difference, the second {second}", cells, TANGO)
    images = dict.fromkeys(f"{cell['n']:,} images" for cell in single)
    everything = [*single, *(cell for cells in of_pairs.values() for cell in cells)]
    lowest = {method: _lowest(everything, method) for method in (BOOTSTRAP, WILSON, TANGO)}
    return (
        f"{top('coverage', Grid(('95 % interval of', 'right', *images), tuple(rows)), _hardest)}"
        "\n\n"
        "Percent of simulated test sets whose interval contains the true value: percentile "
        f"bootstrap → Wilson or Tango. Lowest {lowest[BOOTSTRAP]:.0f} → "
        f"{min(lowest[WILSON], lowest[TANGO]):.0f} (Wilson {lowest[WILSON]:.0f}, Tango "
        f"{lowest[TANGO]:.0f}). {setting['single']:,} test sets per cell ({setting['paired']:,} "
        f"of two encoders), {setting['resamples']:,} resamples; for differences *right* is the "
        "first encoder's accuracy, and the two have correlation "
        f"{setting['correlation']:g}.\n\n{_of_classes(result)}\n\n{_of_files(result)}\n\n"
        f"{_of_draws(result)}"
    )


def _hardest(row: tuple[Any, ...]) -> bool:
    return bool(row[1] == "99 %")


def _of_classes(result: dict[str, Any]) -> str:
    """Of the mean over classes, with few images of some: of one encoder, and of a difference."""
    seconds = list(result["paired"])
    headings = (
        "95 % interval of mean per-class accuracy, classes of images each",
        "right",
        "one encoder",
        *(f"difference, the second {second}" for second in seconds),
    )
    rows = [
        (
            cell["classes"],
            f"{100 * cell['p']:.0f} %",
            _change(cell["covered"], WILSON_OF_CLASSES),
            *(_change(cell["paired"][second], TANGO) for second in seconds),
        )
        for cell in result["classes"]
    ]
    setting = result["setting"]
    return (
        f"{top('coverage-of-classes', Grid(headings, tuple(rows)), _hardest)}\n\n"
        f"Percent of {setting['classes']:,} simulated test sets whose interval contains the true "
        "value: a bootstrap over all images → the score interval."
    )


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
    headings = (
        f"95 % interval of an accuracy of {100 * right:.0f} % over pieces of files",
        *(f"correlation {correlation:g}" for correlation in correlations),
    )
    return (
        f"{as_markdown(Grid(headings, tuple(map(tuple, rows.values()))))}\n\n"
        f"Percent of {result['setting']['files']:,} simulated test sets whose interval contains "
        "the true value: the score interval over pieces taken as independent → over files. *3 of "
        "36*: three files with 36 pieces each; *about*: log-normal numbers of pieces. Lowest over "
        "all cells, including means over classes, differences and 50 % accuracies: "
        f"{lowest['pieces']:.0f} → {lowest['files']:.0f}."
    )


def _of_draws(result: dict[str, Any]) -> str:
    """How often a difference over draws is called clear where there is none."""

    def listed(values: Iterable[float]) -> str:
        *others, last = (f"{value:.0f}" for value in values)
        return f"{', '.join(others)} and {last}"

    cells = result["draws"]
    false = (listed(cell["clear"][method] for cell in cells) for method in (BOOTSTRAP, STUDENT))
    return (
        f"Of {result['setting']['draws']:,} differences over {listed(c['draws'] for c in cells)} "
        "draws of training images where the truth is zero, the bootstrap calls {} % clear, "
        "Student's t {} %."
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
