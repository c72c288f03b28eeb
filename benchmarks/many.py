"""A million files: how long until the first step, and again after a restart.

    python benchmarks/many.py [--files 1000000] [--place /dev/shm] [--samples 100000000]

The files are hard links to a few small images, in folders of a thousand, so that what is measured
is the looking and not the disk. "scan" finds, sorts and fingerprints them; "cache" decodes each
once and writes its canvas; "again" opens the same set, scan included. Each is a process of
its own.

Then, for a hundred million images that are not there: the table of their shards, up to the order in
which the first process of 64 reads; the manifest of their canvases; and the table of what lies
where in the shards, with what a source of it needs. These are written on the disk (11 GB).
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

import numpy as np
from measure import RESULTS
from PIL import Image

from mast.core.checkpoint import write_json
from mast.core.reading import Reading
from mast.core.run import provenance
from mast.data.cache import VERSION, Manifest
from mast.data.shards.store import find_shards
from mast.data.shards.table import SampleTable, write_table

IN_SHARD = 2000
LINKS = 50_000  # to one file: a file system allows some 65,000
A_FOLDER = 1000
OPEN = "from mast.data import DataConfig, open_canvas; open_canvas(DataConfig(P, cache=C), 32)"
PARTS = {
    "nothing": "import mast.data",
    "scan": "from mast.data import open_source; open_source(P).fingerprint()",
    "cache": OPEN,
    "again": OPEN,
}
INDEX = """
from pathlib import Path
from mast.data.shards.source import Shards
from mast.data.shards.sampler import ShardSampler
shards = Shards(f"shards:{P}/shards", Path(C))
next(ShardSampler(shards.table.count_S, 4096, 8192, 0, 0).blocks())
"""
MANIFEST = "from pathlib import Path; from mast.data.cache import Manifest; "
MANIFEST += "Manifest.read(Path(P) / 'manifest.safetensors').index_N[12345678]"
SOURCE = "from mast.data import open_source; s = open_source(f'shards:{P}/shards', C); "
SOURCE += "s.fingerprint(); s.identifier(12345678)"
HUNDRED_MILLION = {"index": INDEX, "manifest": MANIFEST, "source": SOURCE}


def write_hundred_million(root: Path, samples: int) -> None:
    """What is kept of so many images, and their shards without any content."""
    folder = root / "shards"
    folder.mkdir()
    shards = []
    for number in range(samples // IN_SHARD):
        (folder / f"{number:06d}.tar").touch()
        shards.append({"url": f"{number:06d}.tar", "nsamples": IN_SHARD, "filesize": 0})
    (folder / "index.json").write_text(json.dumps({"shardlist": shards, "classes": ["a"]}))
    numbers_N, name = np.arange(samples), np.frombuffer(b"class00000/000000000.png", np.uint8)
    text, end_N = np.tile(name, samples), (numbers_N + 1) * len(name)
    float_N, number_N = np.ones(samples, np.float32), np.zeros(samples, np.uint32)
    size_N2 = np.full((samples, 2), 32, np.int32)
    Manifest([VERSION], "", numbers_N, size_N2, float_N, number_N, {}, (), Reading()).write(
        root / "manifest.safetensors"
    )
    count_S = np.full(len(shards), IN_SHARD)
    label_N = np.zeros(samples, np.int64)
    table = SampleTable(count_S, numbers_N, label_N, label_N.copy(), float_N, end_N, text)
    write_table(folder, find_shards(str(folder)), table)


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
    """Seconds of a process, and its memory at most and without mapped files at the end.

    Its start and imports are among them.
    """
    whole = f"P, C = {str(place)!r}, {str(cache)!r}\n{code}\n"
    whole += "import re; found = re.findall(r'(VmHWM|RssAnon):\\s+(\\d+)', "
    whole += "open('/proc/self/status').read()); print(*(size for _, size in found))"
    started = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", whole], capture_output=True, text=True, check=True
    )
    seconds, (most, own) = time.perf_counter() - started, map(int, ended.stdout.split())
    return {"seconds": seconds, "MB": most / 1e3, "own MB": own / 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=100_000_000)
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
    kept = {"nothing": found["nothing"]}
    with tempfile.TemporaryDirectory() as place:
        write_hundred_million(Path(place), options.samples)
        for name, code in HUNDRED_MILLION.items():
            kept[name] = timed(code, Path(place), Path(place) / "cache")
            print(name, json.dumps(kept[name]), flush=True)
    write_json(
        RESULTS / "many.json",
        {"files": options.files, "parts": found, "samples": options.samples, "kept": kept,
         "provenance": provenance()},
    )  # fmt: skip


if __name__ == "__main__":
    main()
