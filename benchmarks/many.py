"""A million files: how long until the first step, and again after a restart.

    python benchmarks/many.py [--files 1000000] [--place /dev/shm]

The files are hard links to a few small images, in folders of a thousand, so that what is measured
is the looking and not the disk. "scan" finds, sorts and fingerprints them; "cache" decodes each
once and writes its canvas; "again" opens the same set, scan included. Each is a process of
its own.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import RESULTS
from PIL import Image

from mast.core.checkpoint import write_json
from mast.core.run import provenance

LINKS = 50_000  # to one file: a file system allows some 65,000
A_FOLDER = 1000
OPEN = "from mast.data import DataConfig, open_canvas; open_canvas(DataConfig(P, cache=C), 32)"
PARTS = {
    "nothing": "import mast.data",
    "scan": "from mast.data import open_source; open_source(P).fingerprint()",
    "cache": OPEN,
    "again": OPEN,
}


def write_links(root: Path, files: int) -> None:
    """So many files, of a few contents."""
    originals = []
    for number in range(-(-files // LINKS)):
        original = root / f"original{number}.png"
        Image.new("RGB", (32, 32), (number % 256, 9, 9)).save(original)
        originals.append(original)
    for first in range(0, files, A_FOLDER):
        folder = root / "set" / f"class{first // A_FOLDER:05d}"
        folder.mkdir(parents=True)
        for index in range(first, min(first + A_FOLDER, files)):
            os.link(originals[index // LINKS], folder / f"{index:08d}.png")


def timed(code: str, place: Path, cache: Path) -> dict[str, float]:
    """Seconds and memory of a process, its start and imports among them."""
    whole = f"P, C = {str(place)!r}, {str(cache)!r}\n{code}\n"
    whole += "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    started = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", whole], capture_output=True, text=True, check=True
    )
    return {"seconds": time.perf_counter() - started, "MB": int(ended.stdout) / 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--place", default="/dev/shm")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(dir=options.place))
    try:
        write_links(root, options.files)
        found = {}
        for name, code in PARTS.items():
            found[name] = timed(code, root / "set", root / "cache")
            print(name, json.dumps(found[name]), flush=True)
    finally:
        shutil.rmtree(root)
    write_json(
        RESULTS / "many.json",
        {"files": options.files, "parts": found, "provenance": provenance()},
    )


if __name__ == "__main__":
    main()
