"""Canvases by the second: from a folder, from its cache, from shards here and in a store.

    python benchmarks/shards.py [--photos FOLDER] [--size 256] [--rounds 3] [--threads 1]

Needs Linux. An entry is one epoch of batches, without views, on as many cores as there are threads.
Without a folder of photos there are generated images of `factors`, 500 pixels wide, as JPEGs.
"cold" has the files out of the system's memory before each epoch. The store is S3 as moto has it,
in a process of its own on this machine; in one entry it answers each request 50 ms later. Then a
training that takes a stated time a step and computes nothing: which share of its time it waits for
batches from shards, at 50 %, 80 % and 95 % of the speed that these reach.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from measure import alternate, report
from PIL import Image

from mast.commands.shard import shard
from mast.core.launch import cores
from mast.data import DataConfig, open_source
from mast.data.generated import Factors
from mast.data.loader import Loader, open_loader

CPU = torch.device("cpu")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y",
               "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
BATCH = 64
LATE_S = 0.05
STORE = """
import sys, time
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
store = DomainDispatcherApplication(create_backend_app)
def late(environ, start):
    if "late" in environ["PATH_INFO"] and environ["REQUEST_METHOD"] == "GET":
        time.sleep(float(sys.argv[1]))
    return store(environ, start)
server = make_server("127.0.0.1", 0, late, threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


def write_folder(folder: Path, images: int) -> Path:
    """A class of JPEGs."""
    (folder / "any").mkdir(parents=True)
    source = Factors("train", images, 375)
    for index in range(images):
        wide = source.open(index).resize((500, 375), Image.Resampling.BICUBIC)
        wide.save(folder / "any" / f"{index:05d}.jpg", quality=90)
    return folder


def epochs(feed: Loader) -> Callable[[], int]:
    """One epoch after the other; how many batches one has."""
    number = -1

    def epoch() -> int:
        nonlocal number
        number += 1
        return sum(1 for _ in feed.epoch(number))

    return epoch


def forgotten(folder: Path, work: Callable[[], int]) -> Callable[[], int]:
    """Work before which a folder's files are out of the system's memory."""

    def cold() -> int:
        os.sync()
        for file in folder.rglob("*"):
            if file.is_file():
                number = os.open(file, os.O_RDONLY)
                os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(number)
        return work()

    return cold


@contextmanager
def store() -> Iterator[None]:
    """An object store in another process, as the environment says."""
    command = [sys.executable, "-c", STORE, str(LATE_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        os.environ |= CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        yield
        server.terminate()


def waited(feed: Loader, step_s: float) -> float:
    """Share of its time that a training of so many seconds a step waits, once it is under way."""
    batches = feed.epoch(0)
    for _ in range(feed.steps_per_epoch // 4):
        next(batches)
    started, waiting = time.perf_counter(), 0.0
    while True:
        asked = time.perf_counter()
        if next(batches, None) is None:
            return waiting / (asked - started)
        waiting += time.perf_counter() - asked
        time.sleep(step_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, help="a folder of at least 64 images")
    parser.add_argument("--images", type=int, default=3000, help="that are generated")
    parser.add_argument("--size", type=int, default=256, help="side of the canvases")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    all_cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        folder = options.photos or write_folder(root / "folder", options.images)
        count = len(open_source(folder))
        written = {}
        for name, form in (("jpg", "jpg"), ("bmp", "bmp")):
            begun = time.perf_counter()
            shard(folder, root / name, size=options.size, format=form, images=100, max_broken=0)
            size = sum(file.stat().st_size for file in (root / name).glob("*.tar"))
            written[name] = {
                "images per second": count / (time.perf_counter() - begun),
                "bytes per image": size / count,
            }
        with store():
            import fsspec

            system = fsspec.filesystem("s3")
            for bucket in ("shards", "late"):
                system.mkdir(bucket)
                system.put(str(root / "jpg"), bucket, recursive=True)
            os.sched_setaffinity(0, all_cores[: options.threads])

            def feed(spec: Any, **changed: Any) -> Loader:
                config = DataConfig(
                    str(spec), canvas=options.size, cache=root / "cache", shuffle=1000, **changed
                )
                return open_loader(config, 224, BATCH, 0, rank=0, world_size=1, local=1, device=CPU)

            shards = feed(f"shards:{root / 'jpg'}")
            work = {
                "folder, its cache": epochs(feed(folder)),
                "folder, decoded for every batch": epochs(feed(folder, cache_limit_gb=0.0)),
                "shards of JPEGs": epochs(shards),
                "shards of bitmaps": epochs(feed(f"shards:{root / 'bmp'}")),
                "shards of JPEGs in a store": epochs(feed("shards:s3://shards/jpg")),
                "shards of JPEGs in a late store": epochs(feed("shards:s3://late/jpg")),
            }
            cold = {
                "folder, its cache": forgotten(root / "cache", epochs(feed(folder))),
                "folder, decoded for every batch": forgotten(
                    folder, epochs(feed(folder, cache_limit_gb=0.0))
                ),
                "shards of JPEGs": forgotten(root / "jpg", epochs(shards)),
            }
            images = count // BATCH * BATCH
            tables = {}
            for case, entries in (("warm", work), ("cold", cold)):
                seconds = alternate(entries, options.rounds, CPU)
                tables[case] = {
                    name: {key: value / images for key, value in of.items()}
                    for name, of in seconds.items()
                }
            fastest = BATCH * tables["warm"]["shards of JPEGs"]["median"]
            waits = {f"{share:.0%}": waited(shards, fastest / share) for share in (0.5, 0.8, 0.95)}
    report(
        "shards",
        CPU,
        {"images": count, "photos": options.photos is not None, "canvas": options.size,
         "threads": options.threads, "cores": cores(), "rounds": options.rounds, "late s": LATE_S},
        tables,
        "ms an image",
        "shards of JPEGs",
        written=written,
        waits=waits,
    )  # fmt: skip


if __name__ == "__main__":
    main()
