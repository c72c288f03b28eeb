"""How often intervals cover the truth, as `benchmarks/interval_coverage.py` simulated it."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from mast.analyses import Grid
from mast.measure.bootstrap import BOOTSTRAP, TANGO, WILSON
from mast.studies.tables.printed import as_markdown
from written.result_files import ROOT

FILE = ROOT / "benchmarks" / "results" / "interval_coverage.json"


def coverage() -> str:
    """Of one accuracy, then of a paired difference: the bootstrap and the score interval."""
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
        f"{as_markdown(Grid(('95 % interval of', 'right', *images), tuple(rows)))}\n\n"
        "Percent of simulated test sets whose interval holds the truth: of the percentile "
        f"bootstrap → of Wilson's or Tango's. At the least {lowest[BOOTSTRAP]:.0f} → "
        f"{min(lowest[WILSON], lowest[TANGO]):.0f} (Wilson {lowest[WILSON]:.0f}, Tango "
        f"{lowest[TANGO]:.0f}). {setting['single']:,} test sets a cell ({setting['paired']:,} of "
        f"two encoders), {setting['resamples']:,} resamples; of a difference, *right* is the first "
        "encoder, and the two are right on the same images with a correlation of "
        f"{setting['correlation']:g}."
    )


def _rows(what: str, cells: list[dict[str, Any]], method: str) -> Iterator[tuple[str, ...]]:
    """A row for each probability of being right, a column for each number of images."""
    for p in dict.fromkeys(cell["p"] for cell in cells):
        covered = (cell["covered"] for cell in cells if cell["p"] == p)
        yield (
            what,
            f"{100 * p:.0f} %",
            *(f"{each[BOOTSTRAP]:.0f} → {each[method]:.0f}" for each in covered),
        )


def _lowest(cells: Iterable[dict[str, Any]], method: str) -> float:
    return min(cell["covered"][method] for cell in cells if method in cell["covered"])
