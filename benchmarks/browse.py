"""How fast the page of `mast browse` is, and whether it finds what Python finds.

    python benchmarks/browse.py FOLDER [FOLDER ...] [--queries 20]

Each folder's page is written and opened in Chromium (pip install -e '.[browser]'). Recorded: its
size; milliseconds to the first view and, for each choice, from a switch to the new neighbors, the
median of three; and the share of the ten nearest photos that `mast neighbours` finds, too. Twelve
minutes for 300, 1,000 and 5,000 photos once their features are cached, on one core.
"""

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

from measure import RESULTS
from playwright.sync_api import Page, sync_playwright

import mast
from mast.commands.common import open_search
from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.encoders.load import EncoderOptions
from mast.invariance.choice import DEPTHS, InvarianceChoice
from mast.models.pretrained import DEFAULT
from mast.search.nearest import nearest

NEAREST, ROUNDS = 10, 3
CHROMIUM = os.environ.get("MAST_CHROMIUM") or shutil.which("chromium")
SWITCHED = """async ([ignored, matched]) => {
    const start = performance.now(), before = document.body.dataset.drawn;
    change({ ignored, matched });
    while (document.body.dataset.drawn === before) await new Promise((go) => setTimeout(go, 1));
    return performance.now() - start;
}"""
FOUND = """async ([queries, ignored, matched]) => {
    const found = [];
    for (const at of queries) {
        const near = await ask("nearest", at, bits(ignored), bits(matched));
        found.push(near.slice(0, 10).map(([n]) => n));
    }
    return found;
}"""


def choices(properties: list[str]) -> list[tuple[list[str], list[str]]]:
    """All sets of properties to ignore, then all to match."""
    some = [[*names] for count in range(len(properties) + 1)
            for names in combinations(properties, count)]  # fmt: skip
    return [*((names, []) for names in some), *(([], names) for names in some[1:])]


def measured(folder: str, file: Path, page: Page, queries: int) -> dict[str, Any]:
    """Size, times and agreement of one page."""
    start = time.perf_counter()
    mast.browse(folder, out=file)
    written = time.perf_counter() - start
    firsts = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_function("() => document.body.dataset.drawn")
        firsts.append(time.perf_counter() - start)
    choice = InvarianceChoice(space=DEPTHS)
    by, photos = open_search(EncoderOptions(DEFAULT), folder, choice, "cpu")
    assert by.adapted is not None
    features_NF = by.depths(photos)
    names = page.evaluate("DATA.names")
    asked = sorted(random.Random(0).sample(range(len(names)), min(queries, len(names))))
    of_page = [photos.identifiers.index(name) for name in names]
    page.evaluate("change({ query: 0 })")
    page.evaluate(SWITCHED, [[], []])
    every = choices(page.evaluate("PROPERTIES"))
    rounds = [[page.evaluate(SWITCHED, [*choice]) for choice in every] for _ in range(ROUNDS)]
    times: dict[str, list[float]] = {"ignored": [], "matched": []}
    shares: dict[str, list[float]] = {"ignored": [], "matched": []}
    for (ignored, matched), took in zip(every, zip(*rounds, strict=True), strict=True):
        kind = "matched" if matched else "ignored"
        times[kind].append(statistics.median(took))
        space = by.adapted.space(ignored, matched)
        moved_NJ = space(features_NF)[of_page]
        exact = nearest(moved_NJ, moved_NJ[asked], NEAREST + 1)[1].tolist()
        found = page.evaluate(FOUND, [asked, ignored, matched])
        own = [
            [n for n in near if n != at][:NEAREST] for at, near in zip(asked, exact, strict=True)
        ]
        same = [len({*one} & {*other}) / NEAREST for one, other in zip(own, found, strict=True)]
        shares[kind].append(statistics.mean(same))
    return {
        "photos": len(names), "megabytes": file.stat().st_size / 1e6, "seconds_to_write": written,
        "ms_to_first_view": 1000 * statistics.median(firsts),
        **{f"ms_{kind}": {"median": statistics.median(each), "most": max(each)}
           for kind, each in times.items()},
        **{f"agreement_{kind}": {"mean": statistics.mean(each), "least": min(each)}
           for kind, each in shares.items()},
        "agreement": statistics.mean(shares["ignored"] + shares["matched"]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--queries", type=int, default=20)
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for folder in given.folders:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            found[Path(folder).name] = measured(
                folder, Path(place, "page.html"), page, given.queries
            )
            print(Path(folder).name, found[Path(folder).name], flush=True)
            write_json(RESULTS / "browse.json", {"pages": found, "provenance": provenance()})
            page.close()


if __name__ == "__main__":
    main()
