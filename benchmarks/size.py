"""How large the house is: lines, words, options, circles, and the files that an image passes.

python benchmarks/size.py
"""

import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import grimp
import networkx
import numpy as np
from PIL import Image

import mast
from mast.cli.verbs import VERBS
from mast.cli.words import options_of

ROOT = Path(__file__).parent.parent
WRITTEN = {"index.md", "reference.md"}  # whole, by docs/generate.py
# What issue after issue may not exceed: lower a number when the house becomes smaller.
BOUNDS = {
    "lines in mast/": 34_600,
    "lines in tests/": 23_540,
    "words in docs/ and README, written by hand": 9_800,
    "words of all Markdown": 15_000,
    "options of the command that has the most": 18,
    "files that an image passes in a step": 33,
    "circles of imports inside a room": 0,
}


def lines(folder: str) -> int:
    """Of all Python files below a folder."""
    return sum(len(file.read_text().splitlines()) for file in (ROOT / folder).rglob("*.py"))


def words() -> int:
    """Of the README and the documents, without code and what programs write between two marks."""
    files = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    texts = [file.read_text() for file in files if file.name not in WRITTEN]
    code = r"<!-- (\w+) -->.*?<!-- /\1 -->|```.*?```"
    return sum(len(re.sub(code, "", text, flags=re.DOTALL).split()) for text in texts)


def markdown() -> int:
    """Words of every Markdown file that git knows, as `wc -w` counts them."""
    files = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return sum(len((ROOT / file).read_text().split()) for file in files)


@cache
def imports() -> grimp.ImportGraph:
    """Which module of the package imports which."""
    return grimp.build_graph("mast", cache_dir=None)


def circles() -> int:
    """Groups of modules of one room that import each other."""
    arrows = networkx.DiGraph()
    for module in imports().modules:
        room = module.split(".")[:2]
        for other in imports().find_modules_directly_imported_by(module):
            if other.split(".")[:2] == room:
                arrows.add_edge(module, other)
    return sum(len(group) > 1 for group in networkx.strongly_connected_components(arrows))


def passed() -> list[str]:
    """The files of which a function runs between the losses of two steps, on images of a folder."""
    between: list[set[str]] = [set()]
    inside = str(ROOT / "mast") + "/"

    def seen(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(inside):
            between[-1].add(file.removeprefix(inside))
        if event == "return" and frame.f_code.co_qualname == "MastC.step":
            between.append(set())

    with tempfile.TemporaryDirectory() as folder:
        pixels = np.random.default_rng(0).integers(0, 256, (32, 40, 40, 3), np.uint8)
        Path(folder, "images").mkdir()
        for at, pixels_HWC in enumerate(pixels):
            Image.fromarray(pixels_HWC).save(f"{folder}/images/{at}.png")
        config = mast.configure(
            "mast_c5_small", f"{folder}/images", size=32, epochs=1, batch_size=8,
            out=f"{folder}/run", device="cpu", encoder={"name": "timm:test_resnet"},
        )  # fmt: skip
        threading.setprofile(seen)
        sys.setprofile(seen)
        try:
            mast.pretrain(config)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return sorted(min(between, key=len))  # in others it is set up, logged or saved, too


def measured() -> Mapping[str, int]:
    """The numbers that `BOUNDS` bounds."""
    options = max(len({*options_of(verb)} - {*verb.words, "changes"}) for verb in VERBS.values())
    numbers = (lines("mast"), lines("tests"), words(), markdown(), options, len(passed()),
               circles())  # fmt: skip
    return dict(zip(BOUNDS, numbers, strict=True))


if __name__ == "__main__":
    for what, number in measured().items():
        print(f"{number:>8,}  {what} (at most {BOUNDS[what]:,})")
    print("\n".join(["", "An image passes:", *passed()]))
