"""Write docs/performance.md, its CSV files and a line of the README from the result files.

    python benchmarks/write_performance.py

The text around the tables is written by hand; a table stands between `<!-- NAME -->` and
`<!-- /NAME -->`.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
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


def targets() -> str:
    """Every target beside what was measured."""
    lines = ["| what | target | measured |", "|---|---|---|"]
    for what, area, case, numerator, denominator, sense, target in TARGETS:
        cases = read(area)["cases"]
        entries = cases[case] if case else next(iter(cases.values()))
        wanted = "–" if target is None else f"{'≥' if sense == '>=' else '≤'} {target:g}×"
        if not {numerator, denominator} <= entries.keys():
            lines.append(f"| {what} | {wanted} | not measured yet |")
            continue
        ratio = entries[numerator]["median"] / entries[denominator]["median"]
        measured = f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.1f}×"
        if target is not None:
            missed = ratio < target if sense == ">=" else ratio > target
            measured += " (missed)" if missed else ""
        lines.append(f"| {what} | {wanted} | {measured} |")
    for what, area, case, entry, limit in SECONDS:
        (entries,) = [of for name, of in read(area)["cases"].items() if name.startswith(case)]
        seconds = entries[entry]["median"]
        missed = " (missed)" if seconds > limit else ""
        lines.append(f"| {what} | ≤ {limit} s | {seconds:.0f} s{missed} |")
    for name, peaks in read("loss")["peak_bytes"].items():
        if "K=19" in peaks:
            ratio = peaks["K=19"] / peaks["K=5"]
            what = f"memory of the objective at K=19 over K=5: {name}"
            lines.append(f"| {what} | ≤ 1.1× | {ratio:.3f}×{'' if ratio <= 1.1 else ' (missed)'} |")
    return "\n".join(lines)


def on_gpu() -> str:
    """Milliseconds on a GPU: views, the objective, training steps."""
    views, loss, train = (read(area, "cuda") for area in ("augment", "loss", "train"))
    lines = [f"| on one {views['provenance']['cuda']} | ms | reference | ms |", "|---|---|---|---|"]
    for case, entries in views["cases"].items():
        ours, theirs = (1e3 * entries[name]["median"] for name in ("mast", "kornia"))
        lines.append(f"| a view of {case} | {ours:.4f} | kornia | {theirs:.3f} |")
    ((case, entries),) = loss["cases"].items()
    ours, theirs = (
        1e3 * entries[name]["median"] for name in ("mast_c, distance", "lightly VICRegLoss")
    )
    lines.append(
        f"| objective, {case}, not compiled | {ours:.1f} | lightly's VICRegLoss | {theirs:.1f} |"
    )
    ((case, entries),) = train["cases"].items()
    step, folder = (entries[f"mast_c15_small, from {place}"] for place in ("memory", "a folder"))
    silent, alone = entries["mast_c15_small, nothing predicted"], entries["encoder alone"]
    for what, of, beside, other in (
        (f"step of `mast_c15_small`, {case}", step, "encoder alone", alone),
        ("… where nothing is predicted", silent, "encoder alone", alone),
        ("… from a folder", folder, "ImageFolder, torchvision, no workers",
         entries["ImageFolder, no workers"]),
    ):  # fmt: skip
        ours, theirs = (f"{1e3 * each['median']:,.1f}" for each in (of, other))
        lines.append(f"| {what} | {ours} | {beside} | {theirs} |")
    return "\n".join([*lines, "", f"Revision {train['provenance']['git_revision']}."])


def in_short() -> str:
    """What matters most, in two sentences."""
    views = read("augment")["cases"][MAST5]
    ours = views["mast"]["median"]
    peers = {"torchvision, PIL": "torchvision", "kornia": "kornia",
             "albumentationsx": "AlbumentationsX"}  # fmt: skip
    faster = [f"{views[key]['median'] / ours:.0f} times as fast as by {name}"
              for key, name in peers.items()]  # fmt: skip
    step = next(iter(read("train")["cases"].values()))["mast_c5_small, from memory"]["ratio"]
    gpu = read("augment", "cuda")
    ratios = [gpu["cases"][case]["kornia"]["ratio"] for case in (MAST5, MAST15)]
    return (
        f"On a CPU, MAST-5 views of 224 pixels are made {faster[0]}, {faster[1]} and "
        f"{faster[2]}; a training step (`mast_c5_small`) takes {step:.2f} times as long as "
        "its encoder alone. On an "
        f"{gpu['provenance']['cuda']}, in bf16 they are made {ratios[0]:.0f} (MAST-5) and "
        f"{ratios[1]:.0f} (MAST-15) times as fast as by kornia in float32."
    )


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


def fused(result: dict[str, Any]) -> str:
    """What views would launch and move on a GPU, by PyTorch's kernels and by Triton's."""
    lines = ["| views | kernels | launches | copies | waits | GB |", "|---|---|---|---|---|---|"]
    for preset, entries in result["views"].items():
        for name, of in entries.items():
            numbers = " | ".join(str(of[key]) for key in ("launches", "copies", "waits"))
            lines.append(f"| {preset} | {name} | {numbers} | {of['GB']:.1f} |")
    return "\n".join([*lines, "", f"Revision {result['provenance']['git_revision']}."])


def kernels(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """What a compiler made of every kernel, by generation."""
    generations = result["kernels"]
    yield "kernel", *(f"{kind} ({at})" for at in generations
                      for kind in ("registers", "stack", "shared"))  # fmt: skip
    for name in next(iter(generations.values())):
        yield name, *(str(value) for of in generations.values() for value in of[name].values())


def machines() -> str:
    """Where the results come from."""
    lines = []
    for area in (*AREAS, "operators"):
        result = read(area)
        origin, threads = result["provenance"], result["setting"].get("threads", 1)
        where = origin["cuda"] or origin["processor"]
        lines.append(f"{area} {where}, {threads} thread(s), {origin['git_revision']}")
    origin = read("augment")["provenance"]
    versions = origin["versions"] | origin["peers"]
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    return f"Measured on: {'; '.join(lines)}. With {named}."


def replace(document: Path, tables: dict[str, str]) -> None:
    """Put each table between its two marks."""
    text = document.read_text()
    for name, table in tables.items():
        pattern = re.compile(rf"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
        text, count = pattern.subn(
            lambda _, n=name, t=table: f"<!-- {n} -->\n{t}\n<!-- /{n} -->", text
        )
        assert count == 1, (document, name)
    write_text(document, text)


def main() -> None:
    counted = json.loads((RESULTS / "fused.json").read_text())
    replace(
        ROOT / "docs" / "performance.md",
        {
            "targets": targets(),
            "machine": machines(),
            "fused": fused(counted),
            "gpu": on_gpu(),
        },
    )
    whole = {"performance": times(), "operators": operators(), "kernels": kernels(counted)}
    for name, rows in whole.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        write_text(ROOT / "docs" / "tables" / f"{name}.csv", text.getvalue())
    replace(ROOT / "README.md", {"speed": in_short()})


if __name__ == "__main__":
    main()
