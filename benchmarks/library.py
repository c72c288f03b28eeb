"""What a second search of a large folder costs: seconds of whole commands, and bytes that are kept.

    python benchmarks/library.py [--photos 10000] [--new 10] [--known 100000]

Photos are generated, 320 × 240 pixels. `mast embed` runs in a process of its own, with a cache of
its own: on the folder, on it again, with new photos, and with all renamed. Then a store is opened
that knows many images of 512 features. An hour on two cores.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import RESULTS
from PIL import Image

from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.data.store import ImageStore, key_of

DIMENSIONS = 512


def write_photos(folder: Path, numbers: range) -> None:
    """Smooth random images, each another one."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        draw = np.random.default_rng(number)
        coarse = Image.fromarray(draw.integers(0, 256, (6, 8, 3), np.uint8))
        photo = coarse.resize((320, 240), Image.Resampling.BICUBIC)
        photo.save(folder / f"{number:06d}.jpg", quality=90)


def embed(photos: Path, place: Path) -> float:
    """Seconds of the command."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(place / "cache")}
    words = ["embed", str(photos), "--out", str(place / "features.npz")]
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "mast.cli", *words], env=environment, check=True, capture_output=True
    )
    return time.perf_counter() - begun


def opened(count: int, place: Path) -> dict[str, Any]:
    """Seconds to look up all rows of a store, and its bytes beside them."""
    store, keys = ImageStore(place), [key_of(at) for at in range(count)]
    values_ND = np.random.default_rng(0).random((count, DIMENSIONS), np.float32)
    store.add_features("encoder", keys, values_ND)
    begun = time.perf_counter()
    found_ND, known_N = store.features("encoder", keys)
    seconds = time.perf_counter() - begun
    assert known_N.all()
    assert np.array_equal(found_ND, values_ND)
    return {"images": count, "seconds": seconds, "index_bytes": store.file.stat().st_size}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--photos", type=int, default=10_000)
    parser.add_argument("--new", type=int, default=10)
    parser.add_argument("--known", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place, photos = Path(folder), Path(folder, "photos")
        write_photos(photos, range(options.photos))
        seconds = {"first": embed(photos, place), "second": embed(photos, place)}
        write_photos(photos, range(options.photos, options.photos + options.new))
        seconds["with new photos"] = embed(photos, place)
        photos.rename(place / "moved")
        seconds["moved"] = embed(place / "moved", place)
        shutil.rmtree(place / "moved")
        write_photos(place / "one", range(1))
        seconds["one photo, known"] = [embed(place / "one", place) for _ in range(2)][1]
        kept = sum(each.bytes for each in ImageStore(place / "cache" / "mast").kept())
        result = {
            "photos": options.photos, "new": options.new, "seconds": seconds,
            "feature_bytes": kept, "opened": opened(options.known, place / "store"),
        }  # fmt: skip
    write_json(RESULTS / "library.json", {**result, "provenance": provenance()})


if __name__ == "__main__":
    main()
