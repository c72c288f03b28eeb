"""What searching and cleaning a folder is worth, as the benchmarks measured it."""

import itertools
import json
import statistics
from typing import Any

from mast.analyses import Grid
from paper.tables.printed import as_markdown
from written.result_files import ROOT, link_table

EDITED = {
    "ukbench": "UKBench", "textures": "DTD", "flowers": "Flowers-17",
    "photos": "COCO",
}  # fmt: skip
FOLDER = ROOT / "benchmarks" / "results"


def search() -> str:
    """Seconds of a search, of reading the features and of comparing all pairs, by their numbers."""
    result = _read("search-cpu")
    cases = dict(result["cases"])
    pairs, reading = cases.pop("all pairs"), cases.pop("reading")
    counts = [case.removesuffix(" queries") for case in cases]
    rows = [
        (size, *(_seconds(of[size]["median"]) for of in (reading, *cases.values())))
        for size in _first(cases)
    ]
    heads = (f"{count} quer{'y' if count == '1' else 'ies'}" for count in counts)
    table = link_table("search", Grid(("searched", "read", *heads), tuple(rows)))
    compared = ", ".join(
        f"{seconds['median']:.2g} s for {size.removesuffix(' images')}"
        for size, seconds in pairs.items()
    )
    largest, most = rows[-1][0], counts[-1].replace(",", "")
    found = _read("search-copies")
    query = 1000 * cases[f"{counts[-1]} queries"][largest]["median"] / int(most)
    return (
        f"Among {largest}, a batched query takes {query:.2g} ms after {rows[-1][1]} s to read "
        f"the features. Comparing all pairs takes {compared} (one thread, "
        f"{result['setting']['dimensions']} dimensions; {table}). The index finds "
        f"{100 * found['found']:.0f} % of the planted copies among {found['images']:,} images in "
        f"{found['seconds'] / 60:.0f} minutes and {found['gigabytes']:.1f} GB "
        f"({found['threads']} threads)."
    )


def photos_measured() -> str:
    """What is lost where operators are measured on fewer photos."""
    keys, sets = ("copies", "class of 10", "color of 10"), _read("photos_measured")
    rows = {each["setting"]["set"]: each["rows"] for each in sets["measured"]}
    counts = [count for count in next(iter(rows.values())) if count.endswith("photos")]
    columns = [f"{name}: {key}" for name in rows for key in keys]
    grid = [(count.split()[0], *(f"{of[count][key]:.1f}" for of in rows.values() for key in keys))
            for count in counts]  # fmt: skip
    table = link_table("photos-measured", Grid(("photos", *columns), tuple(grid)))
    lost = ", ".join(
        f"{of['150 photos']['copies'] - of['300 photos']['copies']:+.1f} ({name})"
        for name, of in rows.items()
    )
    return f"With 150 instead of 300 photos, rank-1 recall changes by {lost} points ({table})."


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 100 else f"{seconds:,.0f}"


def label_errors() -> str:
    """What each method takes for wrong labels, and how much of it is."""
    result = _read("label_errors")
    rows = []
    for labels, group in itertools.groupby(result["rows"], key=lambda row: row["labels"]):
        seeds = [*group]
        for method in seeds[0]["flagged"]:
            each = [seed["flagged"][method] for seed in seeds]
            images = f"{statistics.mean(one['images'] for one in each):,.0f}"
            shares = (_range(one[name] for one in each) for name in ("precision", "recall"))
            rows.append((labels, method, images, *shares))
        for name in seeds[0]["first"]:  # as many as are wrong: precision and recall are the same
            share = _range(seed["first"][name] for seed in seeds)
            taken = f"{seeds[0]['wrong']:,}"
            rows.append((labels, f"mast: the first by {name}", taken, share, share))
    heads = ("labels", "flagged", "images", "precision", "recall")
    table = link_table("label-errors", Grid(heads, tuple(rows)), "all methods and labels")
    of = {(row[0], row[1]): row[2:] for row in rows}
    ours, theirs = of["aggre_label", "mast"], of["aggre_label", "cleanlab: both"]
    return (
        f"Of {result['images']:,} CIFAR-10 labels that most of three people chose (CIFAR-10N), "
        f"{result['rows'][0]['wrong']:,} are wrong. It flags {ours[0]}, {ours[1]} % of them "
        f"wrong, and finds {ours[2]} % of the wrong ones (three draws of folds). Of cleanlab "
        f"{result['provenance']['cleanlab']}, `prune_by_class` is this rule; `both` flags "
        f"{theirs[0]}, {theirs[1]} % wrong, and finds {theirs[2]} % ({table})."
    )


def _range(values: Any) -> str:
    each = [f"{value:.0f}" for value in sorted(values)]
    return each[0] if each[0] == each[-1] else f"{each[0]} to {each[-1]}"


def _first(values: Any) -> Any:
    """The first of a list, or of a mapping's values."""
    return next(iter(values.values() if isinstance(values, dict) else values))


def edits() -> str:
    """How many edits are found, with their changes named, and how many other pairs."""
    rows = []
    for name, title in EDITED.items():
        of = edits_of(name)
        count = of["photos"] * len(of["edits"])
        found, named = (sum(row[key] for row in of["edits"].values()) for key in ("found", "named"))
        rows.append((title, f"{100 * found / count:.1f}", f"{100 * named / count:.1f}",
                     f"{of['joined']} of {of['others']}"))  # fmt: skip
    ways = len(edits_of("flowers")["edits"])
    heads = ("photos", "found (%)", "change named (%)", "other pairs merged")
    return (
        f"{as_markdown(Grid(heads, tuple(rows)))}\n\n{ways} edits of each of "
        f"{edits_of('flowers')['photos']} photos, each compared with its photo, and pairs of "
        "different photos of one class or object (COCO: any). The threshold was chosen on UKBench "
        "and DTD. The two merged pairs of flowers are real copies; the pairs of UKBench show flat "
        f"objects.\n\n{_judged()} {_tiles()}"
    )


def page() -> str:
    """How large and how fast the page is, and how well it agrees with Python."""
    rows = []
    for each in sorted(_read("browse")["pages"].values(), key=lambda page: page["photos"]):
        slow = [f"{each[kind]['median']:.0f} ({each[kind]['most']:.0f})"
                for kind in ("ms_ignored", "ms_matched")]  # fmt: skip
        rows.append((f"{each['photos']:,}", f"{each['megabytes']:.1f}",
                     f"{each['ms_to_first_view']:.0f}", *slow,
                     f"{100 * each['agreement']:.1f}"))  # fmt: skip
    heads = ("photos", "MB", "first view (ms)", "ignore (ms)", "match (ms)", "agreement (%)")
    return (
        f"{as_markdown(Grid(heads, tuple(rows)))}\n\nFrom a switch to the new neighbors: median "
        "and slowest of all choices (Chromium, two cores). Agreement: ten nearest that `mast "
        "neighbours` (`--space depths` if nothing is chosen) finds, too; numbers are rounded."
    )


def _judged() -> str:
    """What is found of the copies that people judged."""
    found = {row["tool"]: row for row in _read("judged_pairs")["rows"]}
    (ours, all_of), (theirs, _) = (found[tool]["one photo"] for tool in ("mast", "pHash"))
    return (
        f"Of {all_of} pairs in CIFAR-10 that [ciFAIR](https://cvjena.github.io/cifair/)'s authors "
        f"judged to be one photo, it finds {ours}, pHash (10 bits) {theirs}. It merges "
        f"{found['mast']['not judged']} other pairs."
    )


def _tiles() -> str:
    """How many tiles that do not overlap are grouped."""
    rows = _read("tiles")["rows"]
    counts = ", ".join(f"{row.get('near', 0) + row.get('edited', 0)} ({row['set'].split('/')[0]})"
                       for row in rows)  # fmt: skip
    return (
        f"Of {rows[0]['tiles']:,} tiles cut from photos without overlap, it merges {counts}: a "
        "photo that is there twice, repeating patterns, skies."
    )


def edits_of(name: str) -> dict[str, Any]:
    """What was measured of a set."""
    (found,) = (each["rows"] for each in _read("edits")["measured"]
                if each["setting"]["set"] == name)  # fmt: skip
    return dict(found)


def _read(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return result
