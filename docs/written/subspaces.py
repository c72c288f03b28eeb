"""What `mast adapt` is worth, as `benchmarks/subspaces.py` measured it."""

import json
from itertools import product
from typing import Any

from mast.analyses import Grid
from mast.search.duplicates import MARGIN
from written.result_files import ROOT, link_table

FILE = ROOT / "benchmarks" / "results" / "subspaces.json"
COPIES, MARGINS, PAIRS = "copies, ", " margins", "pairs, "
COUNTED = ("all", "first", "joined", "weak", "medium", "strong")  # beside the kinds of changes
GROUPED = "grouped by "
WORDS = {
    "ignoring the same": "`--ignore` the wanted change",
    "matching the different": "`--match` the unwanted change",
    "1 of each": "one pair of each",
    "3 of each": "three pairs of each",
}
CHOICES = {
    "ignoring the same": "`--ignore` the change in `--same` pairs",
    "matching the different": "`--match` the change in `--different` pairs",
    "1 of each": "one pair of each",
    "3 of each": "three pairs of each",
}
TITLES = {  # of the ways that `mast duplicates` decides
    "output, above 0.99": "cosine",
    "output, above 0.99, or pHash": "cosine or pHash",
    "ignoring all": "`--ignore all`, cosine",
    "ignoring all, or pHash as it is": "`--ignore all`, cosine or unrotated pHash",
    "ignoring all, or pHash": "`--ignore all`",
}
Sets = list[dict[str, Any]]


def found() -> str:
    """Copies among other photos, by kind and by set; several copies."""
    sets = _sets()
    rows = sets[0]["rows"]
    ways = [way for way in rows if way.startswith(COPIES)]
    heads = [TITLES.get(way.removeprefix(COPIES), way.removeprefix(COPIES)) for way in ways]
    changes = sorted(kind for kind in rows[ways[0]] if kind not in COUNTED)
    kinds = [
        (kind, *(_percent(sets, way, kind) for way in ways))
        for kind in (*changes, "weak", "medium", "strong", "all")
    ]
    each_set = [*((each["setting"]["set"], [each]) for each in sets), ("all", sets)]
    by_set = [
        (name, *(f"{_percent(some, way, 'all')} / {_percent(some, way, 'first')}" for way in ways))
        for name, some in each_set
    ]
    joined = [
        (name, *(_percent(some, way, "joined", scale=1000) for way in ways))
        for name, some in each_set
    ]
    clear = [way.partition(COPIES)[2] for way in rows if way.endswith(MARGINS)]
    counts = [way.partition(" ")[0] for way in rows if way.endswith(clear[0])]
    several = [
        (each.removesuffix(MARGINS),
         *(f"{_percent(sets, f'{count} {COPIES}{each}', 'all')} / "
           f"{_percent(sets, f'{count} {COPIES}{each}', 'first')}" for count in counts))
        for each in dict.fromkeys(clear)
    ]  # fmt: skip
    grids = (
        Grid(("copies found", *heads), tuple(kinds)),
        Grid(("recall / precision", *heads), tuple(by_set)),
        Grid(("photos merged, of 1,000", *heads), tuple(joined)),
        Grid(("times the margin", *(f"{count} each" for count in counts)), tuple(several)),
    )
    names = {"by-change": "by change", "by-set": "by set", "joined": "false merges",
             "several": "several copies per photo"}  # fmt: skip
    links = (link_table(f"copies-{name}", grid, text)
             for (name, text), grid in zip(names.items(), grids, strict=True))  # fmt: skip
    return f"All rows: {', '.join(links)}."


def pairs() -> str:
    """What is found in spaces that words choose, and pairs."""
    sets = [each for each in _sets() if any(way.startswith(PAIRS) for way in each["rows"])]
    ways = [way for way in sets[0]["rows"] if way.startswith(PAIRS)]
    kinds = [end.removeprefix("same, ") for end in sets[0]["rows"][ways[0]] if "same, " in end]
    ends = ("same", "different")
    names = {way: WORDS.get(way.removeprefix(PAIRS), way.removeprefix(PAIRS)) for way in ways}
    cells = [
        (names[way],
         *(f"{_percent(sets, way, end)} ({_range(sets, way, end)})" for end in ends))
        for way in ways
    ]  # fmt: skip
    by_kind = [
        (kind, *(_percent(sets, way, f"{end}, {kind}") for way in ways[-2:] for end in ends))
        for kind in kinds
    ]
    names = [names[way] for way in ways[-2:]]
    columns = [f"{name}, {of}" for name in names for of in ("should match", "should not")]
    found = link_table(
        "pairs", Grid(("rank-1 recall", "should match", "should not match"), tuple(cells)), "recall"
    )
    by_change = link_table(
        "pairs-by-change", Grid(("by change", *columns), tuple(by_kind)), "by change"
    )
    return f"All rows: {found}, {by_change}, {wanted()}."


def wanted() -> str:
    """What is grouped where words or pairs say which copies are wanted."""
    sets = [each for each in _sets() if any(way.startswith(GROUPED) for way in each["rows"])]
    ways = [way for way in sets[0]["rows"] if way.startswith(GROUPED)]
    spaces = dict.fromkeys(way.partition(", ")[2] for way in ways)
    margins = dict.fromkeys(way.partition(", ")[0].removeprefix(GROUPED) for way in ways)
    cells = []
    for space, margin in product(spaces, margins):
        way = f"{GROUPED}{margin}, {space}"
        counts = (_percent(sets, way, measure) for measure in ("same", "different"))
        joined = _percent(sets, way, "joined", scale=1000)
        end = ", as in `similar`" if float(margin) == MARGIN else ""
        cells.append((f"{CHOICES[space]}, `--margin {margin}`{end}", *counts, joined,
                      _percent(sets, way, "precision")))  # fmt: skip
    heads = ("grouped by", "wanted copies", "unwanted copies", "merged, of 1,000", "precision")
    return link_table("wanted-copies", Grid(heads, tuple(cells)), "duplicates")


def _range(sets: Sets, way: str, measure: str) -> str:
    """The least and the most of a set."""
    each = sorted(_share([one], way, measure) or 0.0 for one in sets)
    return f"{100 * each[0]:.0f} to {100 * each[-1]:.0f}"


def _sets() -> Sets:
    sets: Sets = json.loads(FILE.read_text())["measured"]
    return sets


def _share(sets: Sets, way: str, *measures: str) -> float | None:
    """How many were right, of all sets; None: there were none."""
    counts = [each["rows"][way].get(measure, (0, 0)) for each in sets for measure in measures]
    of = sum(each for _, each in counts)
    return sum(hits for hits, _ in counts) / of if of else None


def _percent(sets: Sets, way: str, *measures: str, scale: int = 100) -> str:
    share = _share(sets, way, *measures)
    return "–" if share is None else f"{scale * share:.0f}"
