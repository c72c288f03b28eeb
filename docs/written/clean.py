"""What searching and cleaning a folder is worth, as the benchmarks measured it."""

import json
import statistics
from typing import Any

from mast.analyses import Grid
from written.result_files import ROOT, whole

FOLDER = ROOT / "benchmarks" / "results"


def search() -> str:
    """Seconds of an exact search, an approximate one and comparing all pairs, by their numbers."""
    result = _read("search-cpu")
    setting, cases = result["setting"], dict(result["cases"])
    pairs, counts = cases.pop("all pairs"), [case.removesuffix(" queries") for case in cases]
    rows = []
    for size in _first(cases):
        exact = [cases[f"{count} queries"][size]["median"] for count in counts]
        rows.append((size, "exact", "–", "–", *map(_seconds, exact), "100"))
        if size in result["index"]:
            rows.append(_index_row(size, result["index"][size]))
    rows += [
        _index_row(size, of) for size, of in result["index"].items() if size not in _first(cases)
    ]
    heads = (
        "searched",
        "search",
        "build",
        "open",
        *(f"{count} quer{'y' if count == '1' else 'ies'}" for count in counts),
    )
    table = whole("search", Grid((*heads, "recall"), tuple(rows)))
    compared = ", ".join(
        f"{seconds['median']:.2g} s for {size.removesuffix(' images')}"
        for size, seconds in pairs.items()
    )
    return (
        f"{_pays(result)} Comparing all pairs of images takes {compared} (one thread, "
        f"{setting['dimensions']} dimensions; {table})."
    )


def photos_measured() -> str:
    """What is lost where operators are measured on fewer photos."""
    keys, sets = ("copies", "class of 10", "color of 10", "named right"), _read("photos_measured")
    rows = {each["setting"]["set"]: each["rows"] for each in sets["measured"]}
    counts = [count for count in next(iter(rows.values())) if count.endswith("photos")]
    columns = [f"{name}: {key}" for name in rows for key in keys]
    grid = [(count.split()[0], *(f"{of[count][key]:.1f}" for of in rows.values() for key in keys))
            for count in counts]  # fmt: skip
    table = whole("photos-measured", Grid(("photos", *columns), tuple(grid)))
    lost = ", ".join(
        f"{of['150 photos']['copies'] - of['300 photos']['copies']:+.1f} ({name})"
        for name, of in rows.items()
    )
    return f"Copies found first, with 150 photos instead of 300: {lost} points ({table})."


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 100 else f"{seconds:,.0f}"


def _index_row(size: str, of: dict[str, Any]) -> tuple[str, ...]:
    """An index that was searched."""
    searched = f"{of['searched']:,} of {of['lists']:,} lists"
    seconds = (of["build"], of["open"], *(each["median"] for each in of["search"].values()))
    return size, searched, *map(_seconds, seconds), f"{100 * of['recall']:.1f}"


def _pays(result: dict[str, Any]) -> str:
    """From how many queries on an index pays, by what each query after the first hundred saves."""
    size = [name for name in result["index"] if name.endswith("images")][-1]
    of = result["index"][size]
    some, many = (int(count.replace(",", "")) for count in list(of["search"])[-2:])

    def each(seconds: dict[int, float]) -> float:
        return (seconds[many] - seconds[some]) / (many - some)

    exact = each({n: result["cases"][f"{n:,} queries"][size]["median"] for n in (some, many)})
    saved = exact - each({n: of["search"][str(n)]["median"] for n in (some, many)})
    if saved <= 0:
        return f"Among {size} the index saves nothing."
    first, later = (of[what] / saved for what in ("build", "open"))
    return (
        f"Among {size}, a batched query takes {1e3 * exact:.2g} ms, with the index "
        f"{1e3 * (exact - saved):.2g} ms; the index pays off from about "
        f"{_rounded(first)} queries, or {_rounded(later)} if already built. Reading the features "
        f"takes {_seconds(of['read'])} s in either case."
    )


def _rounded(count: float) -> str:
    """To one digit that is not zero."""
    whole = round(count)
    return f"{round(whole, 1 - len(str(whole))):,}"


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
    table = whole("label-errors", Grid(("encoder", "flagged", "images", "precision", "recall"),
                                       tuple(rows)))  # fmt: skip
    return (
        f"All methods, and cleanlab {result['provenance']['cleanlab']}: {table} "
        f"({setting['images']:,} images of CIFAR-10, {100 * setting['share']:g} % of the labels "
        f"changed at random, {setting['seeds']} seeds)."
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
