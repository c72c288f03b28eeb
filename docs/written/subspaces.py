"""What `mast adapt` is worth, as `benchmarks/subspaces.py` measured it."""

import json
from itertools import product
from typing import Any

from mast.analyses import Grid
from mast.search.duplicates import MARGIN
from paper.tables.printed import as_markdown
from written.result_files import ROOT, top, whole

FILE = ROOT / "benchmarks" / "results" / "subspaces.json"
COPIES, MARGINS, PAIRS, OTHER = "copies, ", " margins", "pairs, ", "another photo"
GROUPED = "grouped by "
WORDS = {
    "ignoring the same": "`--ignore` the change to be found",
    "matching the different": "`--match` the change to be rejected",
    "1 of each": "one pair of each",
    "3 of each": "three pairs of each",
}
CHOICES = {
    "ignoring the same": "`--ignore` the change in `--same` pairs",
    "matching the different": "`--match` the change in `--different` pairs",
    "1 of each": "one pair of each",
    "3 of each": "three pairs of each",
}
Sets = list[dict[str, Any]]


def found() -> str:
    """Copies among other photos, by kind and by set; how they differ; several copies."""
    sets = _sets()
    rows = sets[0]["rows"]
    ways = [way for way in rows if way.startswith(COPIES)]
    heads = [way.removeprefix(COPIES) for way in ways]
    names = ("named", "named in groups")
    changes = [kind for kind in rows["named"] if kind != OTHER]
    kinds = [
        (kind, *(_percent(sets, way, kind) for way in (*ways, *names)))
        for kind in (*changes, OTHER, "weak", "medium", "strong")
    ]
    kinds.append(("all", *(_percent(sets, way, "all") for way in ways),
                  *(_percent(sets, name, *changes) for name in names)))  # fmt: skip
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
        Grid(("copies found", *heads, "`changed_by` right", "of those found"), tuple(kinds)),
        Grid(("found / right", *heads), tuple(by_set)),
        Grid(("photos joined, of 1,000", *heads), tuple(joined)),
        Grid(("times the margin", *(f"{count} each" for count in counts)), tuple(several)),
    )
    kinds_of, sets_of, joined_of, several_of = grids
    links = ", ".join([
        f"{by}: {whole(f'copies-{name}', grid)}"
        for by, name, grid in (("by change", "by-change", kinds_of), ("joined photos", "joined",
                               joined_of), ("several copies", "several", several_of))
    ])  # fmt: skip
    return f"{as_markdown(sets_of)}\n\n{_caption(sets)} All: {links}."


def found_and_right(way: str) -> str:
    """Copies found / with the right photo of a way, over all sets."""
    sets = _sets()
    return f"{_percent(sets, COPIES + way, 'all')} / {_percent(sets, COPIES + way, 'first')}"


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
    grids = (
        Grid(("copies found first", "to be found", "to be rejected"), tuple(cells)),
        Grid(("by change", *(f"{name}, {of}" for name in (names[way] for way in ways[-2:])
                             for of in ("to be found", "to be rejected"))), tuple(by_kind)),
    )  # fmt: skip
    text = as_markdown(grids[0])
    link = whole("pairs-by-change", grids[1])
    return (
        f"{text}\n\nBy change: {link}. Percent of strongly edited copies that "
        f"find their photo first, among {_names(sets)}; {_adapted(sets)}. In "
        "brackets the lowest and highest set. A pair is a photo and its strong copy "
        "(`benchmarks/subspaces.py`)."
    )


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
        end = ", the default" if float(margin) == MARGIN else ""
        cells.append((f"{CHOICES[space]}, `--margin {margin}`{end}", *counts, joined,
                      _percent(sets, way, "precision")))  # fmt: skip
    heads = ("grouped", "wanted copies", "unwanted copies", "photos joined", "precision")
    return (
        f"{top('wanted-copies', Grid(heads, tuple(cells)), lambda row: 'default' in row[0])}\n\n"
        f"{_names(sets)}: 47 have a wanted copy, changed as in the `--same` pairs, "
        "and 47 an unwanted one, changed as in the `--different` pairs. Percent grouped "
        "with their photo; *photos joined* to another photo's group, of 1,000; *precision*: wanted "
        "copies among all images joined. "
        f"Twenty draws of pairs and copies; {_adapted(sets)} (`benchmarks/subspaces.py`)."
    )


def _caption(sets: Sets) -> str:
    return (
        f"{_names(sets)}, of which 100 have one copy each, drawn five times. *Found*: percent of "
        "copies grouped with their photo. *Right*: percent of grouped copies whose group begins "
        "with their photo. *As it is*: one orientation hashed. In the CSVs, *`changed_by` right*: "
        "percent whose changed property it names (another photo: *none*); *joined*: photos in "
        "another's group. "
        f"{_adapted(sets)} (`benchmarks/subspaces.py`)."
    )


def _names(sets: Sets) -> str:
    return ", ".join(f"{each['setting']['images']:,} photos of {each['setting']['set']}"
                     for each in sets)  # fmt: skip


def _adapted(sets: Sets) -> str:
    setting = sets[0]["setting"]
    encoder = setting["encoder"].removeprefix("timm:tf_").partition(".")[0]
    return (
        f"`{encoder}` with ImageNet weights at {setting['size']} pixels, adapted on five draws of "
        "300 ImageNet photos"
    )


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
