"""Ways to compare images with a frozen encoder, as `benchmarks/invariances.py` measured them."""

import json
import statistics
from typing import Any

from mast.analyses import Grid
from written.result_files import ROOT, link_table

FILE = ROOT / "benchmarks" / "results" / "invariances.json"
FOUND = {"rank 1": "first", "1 %": "at 1 %", "0.1 %": "at 0.1 %"}
NEIGHBOURS = ("class of 10", "color of 10", "kNN", "1 a class", "5 a class")
Measured = dict[str, list[dict[str, Any]]]
ENCODERS = {
    "timm:tf_efficientnet_lite0.in1k": "EfficientNet-Lite0",
    "timm:tf_efficientnet_lite1.in1k": "EfficientNet-Lite1",
    "timm:tf_efficientnet_lite2.in1k": "EfficientNet-Lite2",
    "akamaster:20": "ResNet-20, labels of CIFAR-10",
    "akamaster:56": "ResNet-56, labels of CIFAR-10",
    "vicreg5_small": "VICReg",
    "vicreg5_augself_small": "VICReg + AugSelf",
    "mast_c5_distance_small": "MAST-C over VICReg's distance",
    "untrained": "untrained ResNet-10",
    "imagehash": "imagehash",
}
COMPARED = {  # a column of the encoders' table: its measure and its way
    "rank-1 recall: last map": ("first", "last map"),
    "whitened depths": ("first", "all depths, whitened"),
    "ignore all": ("first", "ignore all"),
    "color: last map": ("color of 10", "last map"),
    "all depths": ("color of 10", "all depths"),
    "match color": ("color of 10", "match color"),
    "kNN: last map": ("kNN", "last map"),
    "whitened depths ": ("kNN", "all depths, whitened"),
    "ignore all ": ("kNN", "ignore all"),
}
WAYS_OF_RUNS = (
    "last map", "all depths, whitened", "trained: whole embedding", "trained: ignore color",
    "ignore color", "ignore all", "trained: match color, block", "trained: match color, heads",
    "match color",
)  # fmt: skip
OF_RUNS = {"rank 1": "first", "1 %": "at 1 %", "hue": "hue first", "gray": "gray first",
           "crop": "crop first", "color of 10": "color of 10", "kNN": "kNN"}  # fmt: skip


def ways() -> str:
    """Copies that are found, what neighbours share, and kNN by set; other encoders; runs."""
    by_encoder = _by_encoder()
    changes, by_set = _tables(next(iter(by_encoder.values()))[0])
    return f"All rows: {changes}, {by_set}, {_of_encoders(by_encoder)}, {_of_runs(by_encoder)}."


def _of_encoders(by_encoder: Measured) -> str:
    """The ways that matter, by encoder, the mean of seeds."""
    cells = []
    for name, seeds in by_encoder.items():
        names = _searched(seeds[0])
        row = []
        for key, way in COMPARED.values():
            known = [each for each in seeds if way in each["rows"][names[0]]]
            of = names if key == "first" else None
            row.append(f"{statistics.fmean(_mean(each, way, key, of) for each in known):.1f}"
                       if known else "")  # fmt: skip
        if any(row):
            cells.append((ENCODERS[name], seeds[0]["setting"]["size"], *row))
    return link_table(
        "choices-of-encoders", Grid(("encoder", "pixels", *COMPARED), tuple(cells)), "by encoder"
    )


def _of_runs(by_encoder: Measured) -> str:
    """Trained runs compared with the closed form, means over seeds."""
    cells = []
    for name, seeds in by_encoder.items():
        if seeds[0]["setting"]["encoder"] == name or "_small" not in name:
            continue
        names = _searched(seeds[0])
        for way in WAYS_OF_RUNS:
            if way not in seeds[0]["rows"][names[0]]:
                continue
            row = []
            for key in OF_RUNS.values():
                of = None if key in NEIGHBOURS else names
                values = [_mean(each, way, key, of) for each in seeds]
                spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
                row.append(f"{statistics.fmean(values):.1f}{spread}")
            cells.append((ENCODERS[name], way, *row))
    grid = Grid(("run", "features", *OF_RUNS), tuple(cells))
    return link_table("choices-of-runs", grid, "pretrained runs")


def _by_encoder() -> Measured:
    """What was measured, by encoder; runs of several seeds together."""
    found: Measured = {}
    for measured in json.loads(FILE.read_text())["measured"]:
        name = measured["setting"]["encoder"]
        found.setdefault(name if name in ENCODERS else name.partition(":")[0], []).append(measured)
    return {name: found[name] for name in ENCODERS if name in found}


def _tables(measured: dict[str, Any]) -> tuple[str, str]:
    names, rows = _searched(measured), measured["rows"]
    known = list(rows[names[0]])
    changes = [key.removesuffix(" first") for key in rows[names[0]][known[0]]
               if key.endswith(" first")]  # fmt: skip
    copies = [
        (
            way,
            *(f"{_mean(measured, way, key, names):.1f} ± {_half(measured, way, key, names):.1f}"
              for key in FOUND.values()),
            *(f"{_mean(measured, way, f'{change} first', names):.0f}" for change in changes),
        )
        for way in known
    ]  # fmt: skip
    shared = [way for way in known if all(way in each for each in rows.values())]
    said = [
        (way, *(f"{_mean(measured, way, key):.1f} ± {_half(measured, way, key):.1f}"
                for key in NEIGHBOURS))
        for way in shared
    ]  # fmt: skip
    by_set = [
        (way, *(f"{rows[name][way]['kNN'][0]:.1f} ± {rows[name][way]['kNN'][1]:.1f}"
                for name in rows))
        for way in shared
    ]  # fmt: skip
    near = {row[0]: row[1:] for row in said}
    both = [(*row, *near.get(row[0], ("",) * len(NEIGHBOURS))) for row in copies]
    columns = ("features", *FOUND, *changes, *NEIGHBOURS)
    return (
        link_table("choices", Grid(columns, tuple(both)), "by change"),
        link_table("choices-knn", Grid(("kNN", *rows), tuple(by_set)), "kNN by set"),
    )


def _searched(measured: dict[str, Any]) -> list[str]:
    """Sets that were searched for copies."""
    return [name for name, ways in measured["rows"].items() if "first" in next(iter(ways.values()))]


def _mean(measured: dict[str, Any], way: str, key: str, names: list[str] | None = None) -> float:
    rows = measured["rows"]
    return statistics.fmean(rows[name][way][key][0] for name in names or rows)


def _half(measured: dict[str, Any], way: str, key: str, names: list[str] | None = None) -> float:
    """Of the interval of a mean of sets, which are independent."""
    rows = measured["rows"]
    halves = [rows[name][way][key][1] for name in names or rows]
    return float(sum(half**2 for half in halves) ** 0.5 / len(halves))
