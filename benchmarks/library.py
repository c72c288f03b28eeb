"""What a second search of a large folder costs: seconds of whole commands, bytes of the cache.

    python benchmarks/library.py [--photos 10000] [--new 10] [--known 100000]
    python benchmarks/library.py --sets /data/flowers17     # the speed of encoding alone
    python benchmarks/library.py --others PYTHON            # against fastdup, czkawka, imagededup

Photos are generated, 320 × 240 pixels. `mast embed` runs in its own process, with its own cache: on
the folder, again, with new photos, and with all renamed. Then a store with many images of 512
features is opened. An hour on two cores.

With --sets, 300 photos of a folder go through the default encoder in three ways in turn: by `mast`
with an empty cache; as tensors in memory; and by torchvision's `ImageFolder` with a `DataLoader`.
The breakdown of `mast` is in milliseconds of its threads.

With --others, `mast duplicates` and each program of `other_finders.py`, installed for that
interpreter, find copies among the generated photos twice, with their defaults: seconds and peak
memory of each command. A program may keep its own cache below its home.
"""

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import timm
import torch
from measure import RESULTS, alternate
from other_finders import FINDERS
from PIL import Image
from torchvision import transforms
from torchvision.datasets import ImageFolder

from mast.core.checkpoint import write_json
from mast.core.compute import Compute
from mast.core.launch import cores
from mast.core.run import provenance
from mast.data import photos
from mast.data.source import Source
from mast.data.store import ImageStore, key_of
from mast.encoders.frozen import FrozenEncoder
from mast.encoders.load import frozen, load
from mast.models.pretrained import DEFAULT, DEFAULT_IN_TIMM

DIMENSIONS = 512
SIZE, BATCH, ROUNDS = 224, 64, 3
PARTS = {
    "decoding": [(Source, "look")],
    "hashing": [(photos, "perceptual_hashes"), (photos, "pixel_digest")],
    "encoding": [(FrozenEncoder, "see")],
    "store": [(ImageStore, each) for each in ("digests", "facts", "add_facts", "add_features")],
}


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


def against_others(photos: Path, place: Path, interpreter: Path) -> dict[str, Any]:
    """Seconds and gigabytes of each finder of copies, first and again."""
    other = [str(interpreter), str(Path(__file__).parent / "other_finders.py")]
    mast = [sys.executable, "-m", "mast.cli", "duplicates", str(photos)]
    commands = {"mast duplicates": mast, "mast duplicates --ignore all": [*mast, "--ignore", "all"]}
    commands |= {name: [*other, name, str(photos), str(place / "found.json")] for name in FINDERS}
    found = {}
    for at, (name, words) in enumerate(commands.items()):
        home = place / f"home{at}"
        home.mkdir()
        environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
        found[name] = [_measured(words, environment) for _ in ("first", "again")]
    return found


def _measured(words: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Seconds of a command and the most gigabytes that it or a child of it held."""
    # A new process counts the memory of the one that forked it: a small one does.
    counted = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
    counted += "stdout=2); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    begun = time.perf_counter()
    words = [sys.executable, "-c", counted, *words]
    done = subprocess.run(words, check=False, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr[-2000:]}")
    return {"seconds": time.perf_counter() - begun, "gigabytes": int(done.stdout) / 2**20}


def opened(count: int, place: Path) -> dict[str, Any]:
    """Seconds to look up all rows of a store, and the size of the store."""
    store, keys = ImageStore(place), [key_of(at) for at in range(count)]
    values_ND = np.random.default_rng(0).random((count, DIMENSIONS), np.float32)
    store.add_features("encoder", keys, values_ND)
    begun = time.perf_counter()
    found_ND, known_N = store.features("encoder", keys)
    seconds = time.perf_counter() - begun
    assert known_N.all()
    assert np.array_equal(found_ND, values_ND)
    return {"images": count, "seconds": seconds, "index_bytes": store.file.stat().st_size}


def encoded(photos_of: Path, count: int) -> dict[str, Any]:
    """Milliseconds an image of three ways to the features of new photos, and of parts of ours."""
    spent = Counter[str]()

    def timed(part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter if part in ("encoding", "store") else time.thread_time

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            begun = clock()
            found = method(*args, **kwargs)
            spent[part] += clock() - begun
            return found

        return call

    network = timm.create_model(DEFAULT_IN_TIMM.removeprefix("timm:"), num_classes=0).eval()
    steps = [transforms.Resize(256), transforms.CenterCrop(SIZE), transforms.ToTensor()]
    folder = tempfile.TemporaryDirectory()
    place = Path(folder.name, "photos", "all")
    place.mkdir(parents=True)
    for at, file in enumerate(sorted(photos_of.rglob("*.jpg"))[:count]):
        shutil.copy(file, place / f"{at:04d}.jpg")
    images = ImageFolder(str(place.parent), transforms.Compose(steps))
    loader = torch.utils.data.DataLoader(images, BATCH, num_workers=cores())
    batches = [images_BCHW for images_BCHW, _ in loader]
    loaded = load(DEFAULT)

    def ours() -> None:
        with (
            tempfile.TemporaryDirectory() as cache,
            mock.patch.dict(os.environ, XDG_CACHE_HOME=cache),
        ):
            encoder = frozen(loaded, DEFAULT, Compute())
            opened = photos.open_photos(place, loaded.size, loaded.module, see=encoder.see)
            encoder.features(opened, loaded.size)

    @torch.inference_mode()
    def alone() -> None:
        for images_BCHW in batches:
            network(images_BCHW)

    @torch.inference_mode()
    def theirs() -> None:
        for images_BCHW, _ in loader:
            network(images_BCHW)

    ways = {"mast": ours, "network alone": alone, "ImageFolder, DataLoader": theirs}
    seconds = alternate(ways, ROUNDS, torch.device("cpu"))
    with ExitStack() as patched:
        for part, methods in PARTS.items():
            for holder, name in methods:
                patched.enter_context(
                    mock.patch.object(holder, name, timed(part, getattr(holder, name)))
                )
        begun = time.perf_counter()
        ours()
        total = time.perf_counter() - begun
    folder.cleanup()
    # The smallest: whatever else a machine does only adds to it.
    milliseconds = {name: 1e3 * each["min"] / len(images) for name, each in seconds.items()}
    return {
        "photos": len(images),
        "ms": milliseconds,
        "times mast": {name: each / milliseconds["mast"] for name, each in milliseconds.items()},
        "parts of mast, ms": {part: 1e3 * spent[part] / len(images) for part in PARTS},
        "all of mast then, ms": 1e3 * total / len(images),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--photos", type=int, default=10_000)
    parser.add_argument("--new", type=int, default=10)
    parser.add_argument("--known", type=int, default=100_000)
    parser.add_argument("--sets", type=Path, help="a folder of photos: the speed of encoding alone")
    parser.add_argument("--others", type=Path, help="an interpreter that has other finders")
    options = parser.parse_args()
    if options.others is not None:
        with tempfile.TemporaryDirectory() as folder:
            write_photos(Path(folder, "photos"), range(options.photos))
            rows = against_others(Path(folder, "photos"), Path(folder), options.others)
        result = {"photos": options.photos, "finders": rows, "provenance": provenance()}
        write_json(RESULTS / "finders.json", result)
        return
    if options.sets is not None:
        result = {**encoded(options.sets, min(options.photos, 300)), "provenance": provenance()}
        print(json.dumps(result, indent=1))
        write_json(RESULTS / "encoding.json", result)
        return
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
