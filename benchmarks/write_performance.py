"""Write the CSV files that docs/performance.md links from the result files.

python benchmarks/write_performance.py
"""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from measure import RESULTS

from mast.core.checkpoint import write_text

ROOT = RESULTS.parent.parent
MAST5, MAST15, MAST19 = (f"mast{k}, 375 × 500 to 224 pixels" for k in (5, 15, 19))
SMALL = "mast5, 152 × 203 to 64 pixels"
PAIRS, LARGE_PAIRS = (
    f"mast5, pairs of {size} pixels from JPEGs of 375 × 500" for size in (64, 224)
)
# (what, area, case, numerator, denominator, at least or at most, target: None where none was set)
TARGETS = (
    ("MAST-5 views of 224 pixels, over torchvision on PIL images", "augment", MAST5,
     "torchvision, PIL", "mast", ">=", 12.0),
    ("… over kornia", "augment", MAST5, "kornia", "mast", ">=", 5.0),
    ("… over AlbumentationsX", "augment", MAST5, "albumentationsx", "mast", ">=", 4.0),
    ("MAST-15 views of 224 pixels, over torchvision on PIL images", "augment", MAST15,
     "torchvision, PIL", "mast", ">=", 8.0),
    ("… over kornia", "augment", MAST15, "kornia", "mast", ">=", 4.0),
    ("MAST-19 views of 224 pixels, over torchvision on PIL images", "augment", MAST19,
     "torchvision, PIL", "mast", ">=", 8.0),
    ("… over kornia", "augment", MAST19, "kornia", "mast", ">=", 4.0),
    ("MAST-5 views of 64 pixels, over torchvision on PIL images", "augment", SMALL,
     "torchvision, PIL", "mast", ">=", 8.0),
    ("… over kornia", "augment", SMALL, "kornia", "mast", ">=", 4.0),
    ("whole step over the encoder alone", "train", None, "mast_c5_small, from memory",
     "encoder alone", "<=", 1.2),
    ("… over the step in which nothing is predicted", "train", None,
     "mast_c5_small, from memory", "mast_c5_small, nothing predicted", "<=", 1.03),
    ("training from a folder over the encoder alone", "train", None,
     "mast_c5_small, from a folder", "encoder alone", "<=", 1.25),
    ("MAST-C, n=256, d=1024, K=15, over lightly's NTXentLoss", "loss", None,
     "mast_c", "lightly NTXentLoss", "<=", 1.3),
    ("MAST-C over VICReg's distance, over lightly's VICRegLoss", "loss", None, "mast_c, distance",
     "lightly VICRegLoss", "<=", 1.3),
    ("… Eq. 7 as printed", "loss", None, "mast, as printed", "lightly VICRegLoss", "<=", 1.3),
    ("pairs of 64 pixels from a folder, over ImageFolder and torchvision", "data", PAIRS,
     "ImageFolder, torchvision", "mast", ">=", 10.0),
    ("an ImageFolder loop with our views of 64 pixels, over torchvision's", "data", PAIRS,
     "ImageFolder, torchvision", "ImageFolder, our views", ">=", None),
    ("… of 224 pixels", "data", LARGE_PAIRS,
     "ImageFolder, torchvision", "ImageFolder, our views", ">=", None),
)  # fmt: skip
# (what, area, the beginning of a case, entry, at most so many seconds)
SECONDS = (
    ("`mast analyze` of a run on 1,024 generated images", "insight", "mast analyze",
     "all of it", 60),
    ("`retained`: 10,000 × 512 features, ten tasks, five operators", "insight", "retained",
     "all of it", 120),
)  # fmt: skip


def read(area: str, device: str = "cpu") -> dict[str, Any]:
    """A result file."""
    return json.loads((RESULTS / f"{area}-{device}.json").read_text())


def targets() -> Iterator[tuple[str, ...]]:
    """Every target beside what was measured."""
    yield "what", "target", "measured"
    for what, area, case, numerator, denominator, sense, target in TARGETS:
        cases = read(area)["cases"]
        entries = cases[case] if case else next(iter(cases.values()))
        ratio = entries[numerator]["median"] / entries[denominator]["median"]
        measured = f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.1f}×"
        if target is not None and (ratio < target if sense == ">=" else ratio > target):
            measured += " (missed)"
        wanted = "–" if target is None else f"{'≥' if sense == '>=' else '≤'} {target:g}×"
        yield what, wanted, measured
    for what, area, case, entry, limit in SECONDS:
        (entries,) = [of for name, of in read(area)["cases"].items() if name.startswith(case)]
        seconds = entries[entry]["median"]
        yield what, f"≤ {limit} s", f"{seconds:.0f} s{' (missed)' if seconds > limit else ''}"
    for name, peaks in read("loss")["peak_bytes"].items():
        if "K=19" in peaks:
            ratio = peaks["K=19"] / peaks["K=5"]
            missed = "" if ratio <= 1.1 else " (missed)"
            yield f"memory at K=19 over K=5: {name}", "≤ 1.1×", f"{ratio:.3f}×{missed}"


def on_gpu() -> Iterator[tuple[str, ...]]:
    """Milliseconds on a GPU: views, the objective, training steps."""
    views, loss, train = (read(area, "cuda") for area in ("augment", "loss", "train"))
    yield f"on one {views['provenance']['cuda']}", "ms", "reference", "ms"
    for case, entries in views["cases"].items():
        ours, theirs = (1e3 * entries[name]["median"] for name in ("mast", "kornia"))
        yield f"a view of {case}", f"{ours:.4f}", "kornia", f"{theirs:.3f}"
    ((case, entries),) = loss["cases"].items()
    ours, theirs = (
        1e3 * entries[name]["median"] for name in ("mast_c, distance", "lightly VICRegLoss")
    )
    what = f"objective, {case}, not compiled"
    yield what, f"{ours:.1f}", "lightly's VICRegLoss", f"{theirs:.1f}"
    ((case, entries),) = train["cases"].items()
    step, folder = (entries[f"mast_c15_small, from {place}"] for place in ("memory", "a folder"))
    silent, alone = entries["mast_c15_small, nothing predicted"], entries["encoder alone"]
    for what, of, beside, other in (
        (f"step of mast_c15_small, {case}", step, "encoder alone", alone),
        ("… where nothing is predicted", silent, "encoder alone", alone),
        ("… from a folder", folder, "ImageFolder, torchvision, no workers",
         entries["ImageFolder, no workers"]),
    ):  # fmt: skip
        ours, theirs = (f"{1e3 * each['median']:,.1f}" for each in (of, other))
        yield what, ours, beside, theirs


AREAS = ("augment", "channels", "loss", "probes", "insight", "data", "train")


def times() -> Iterator[tuple[str, ...]]:
    """Milliseconds of every entry of every area."""
    yield "area", "case", "entry", "median ms", "min ms", "max ms", "over the reference"
    for area in AREAS:
        for case, entries in read(area)["cases"].items():
            for name, seconds in entries.items():
                each = (f"{1e3 * seconds[key]:.4g}" for key in ("median", "min", "max"))
                yield area, case, name, *each, f"{seconds['ratio']:.2f}"


def operators() -> Iterator[tuple[str, ...]]:
    """One row per operator: milliseconds before, after, and of a copy."""
    yield "operator", "PyTorch", "compiled", "copy"
    for case, entries in read("operators")["cases"].items():
        yield case, *(f"{1e3 * entries[key]['median']:.4g}"
                      for key in ("PyTorch", "compiled", "copy"))  # fmt: skip


def fused(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """What views would launch and move on a GPU, by PyTorch's kernels and by Triton's."""
    yield "views", "kernels", "launches", "copies", "waits", "GB"
    for preset, entries in result["views"].items():
        for name, of in entries.items():
            numbers = (str(of[key]) for key in ("launches", "copies", "waits"))
            yield preset, name, *numbers, f"{of['GB']:.1f}"


def kernels(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """What a compiler made of every kernel, by generation."""
    generations = result["kernels"]
    yield "kernel", *(f"{kind} ({at})" for at in generations
                      for kind in ("registers", "stack", "shared"))  # fmt: skip
    for name in next(iter(generations.values())):
        yield name, *(str(value) for of in generations.values() for value in of[name].values())


def machines() -> Iterator[tuple[str, ...]]:
    """Where the results come from, and what they were measured with."""
    yield "of", "by"
    for area in (*AREAS, "operators"):
        result = read(area)
        origin, threads = result["provenance"], result["setting"].get("threads", 1)
        where = origin["cuda"] or origin["processor"]
        yield area, f"{where}, {threads} thread(s), {origin['git_revision']}"
    origin = read("augment")["provenance"]
    yield from (origin["versions"] | origin["peers"]).items()


def main() -> None:
    counted = json.loads((RESULTS / "fused.json").read_text())
    whole = {
        "performance": times(), "targets": targets(), "machines": machines(),
        "operators": operators(), "fused": fused(counted), "kernels": kernels(counted),
        "gpu": on_gpu(),
    }  # fmt: skip
    for name, rows in whole.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        write_text(ROOT / "docs" / "tables" / f"{name}.csv", text.getvalue())


if __name__ == "__main__":
    main()
