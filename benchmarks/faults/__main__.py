"""Attack every command for a stated time, and count what must not be.

    python -m faults --seconds 1800        # in benchmarks/
    python -m faults --kinds lies names    # some of them alone
    python -m faults --case 1234           # one of them again, of the same kinds

A case is a function of its number, the seed and the kinds. Everything happens below a folder of its
own: pipes, devices, links and full disks are made there. The last line is
`cases N, code run N, tracebacks N, hangs N, wrong N, kills N byte-equal`.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import pkgutil
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import mast
from faults import ambient, disks, files, hostile, kills, lies, names, options, stores, writers
from faults.case import FAULTS, Case
from faults.world import World
from mast.core import run as core_run

Attack = Callable[[World, random.Random], Case]
# How many of 44 cases are of each kind.
TURNS: dict[str, tuple[int, Attack]] = {
    "kills": (4, kills.attack),
    "disks": (2, disks.attack),
    "files": (6, files.attack),
    "options": (9, options.attack),
    "lies": (8, lies.attack),
    "names": (4, names.attack),
    "ambient": (3, ambient.attack),
    "writers": (2, writers.attack),
    "hostile": (2, hostile.attack),
    "stores": (4, stores.attack),
}
# What commands import when they need it, and slowly.
HEAVY = (
    "docstring_parser", "fsspec.implementations.local", "jinja2",
    "lightning_fabric", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg",
    "numba", "rich._emoji_codes", "scipy.cluster.hierarchy", "tensorboard.compat.proto.event_pb2",
    "tensorboard.summary.writer.record_writer", "timm", "torchvision",
)  # fmt: skip


def main() -> int:
    arguments = _arguments()
    _import_everything()
    folder = (
        Path(tempfile.mkdtemp(prefix="faults-")) if arguments.folder is None else arguments.folder
    )
    if arguments.case is not None:
        case = attack(World(folder), arguments.seed, arguments.case, arguments.kinds)
        print(json.dumps(asdict(case), indent=1))
        return 0
    until = time.time() + arguments.seconds
    jobs = [
        multiprocessing.get_context("fork").Process(
            target=_work, args=(folder / f"job{job}", arguments, job, until)
        )
        for job in range(arguments.jobs)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    lines = [
        line
        for job in range(arguments.jobs)
        for line in (folder / f"job{job}.jsonl").read_text().splitlines()
    ]
    cases = sorted((json.loads(line) for line in lines), key=lambda case: case["number"])
    if any(job.exitcode for job in jobs):
        print("a job ended before its time", file=sys.stderr)
        return 1
    return _report(cases, arguments)


def _arguments() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m faults", description=__doc__, formatter_class=form)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=TURNS, default=[*TURNS])
    parser.add_argument("--case", type=int, help="one case by its number")
    parser.add_argument("--folder", type=Path, help="a new one if not given")
    parser.add_argument("--out", type=Path, help="where the figures are written")
    return parser.parse_args()


def _import_everything() -> None:
    """What a command imports, so that the processes of the cases start at once."""
    torch.set_num_threads(1)
    for name in HEAVY:
        importlib.import_module(name)
    Image.init()
    for module in pkgutil.walk_packages(mast.__path__, "mast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    revision = core_run._git_revision()  # in files that are compared: a commit changes no answer
    core_run._git_revision = lambda: revision


def _work(folder: Path, arguments: argparse.Namespace, job: int, until: float) -> None:
    """Every so many-th case until it is time."""
    world = World(folder)
    number = job
    with folder.with_suffix(".jsonl").open("w") as log:
        while time.time() < until:
            case = attack(world, arguments.seed, number, arguments.kinds)
            print(json.dumps({"number": number, **asdict(case)}), file=log, flush=True)
            if case.verdict in FAULTS:
                line = f"{number} {case.verdict}: {case.words} | {case.attack} | {case.said}"
                print(line.encode("unicode_escape").decode(), flush=True)
            number += arguments.jobs


def attack(world: World, seed: int, number: int, kinds: Sequence[str]) -> Case:
    """One case; what ran code is a fault, whatever it answered."""
    draw = random.Random(f"{seed} {number}")
    shares = [TURNS[kind][0] for kind in kinds]
    case = TURNS[draw.choices(kinds, shares)[0]][1](world, draw)
    return replace(case, verdict="code") if world.ran_code else case


def _report(cases: list[dict[str, Any]], arguments: argparse.Namespace) -> int:
    kinds = sorted({case["kind"] for case in cases})
    counts = {kind: Counter(c["verdict"] for c in cases if c["kind"] == kind) for kind in kinds}
    for kind in kinds:
        print(
            f"{kind}: " + ", ".join(f"{n} {verdict}" for verdict, n in counts[kind].most_common())
        )
    total = Counter(case["verdict"] for case in cases)
    if arguments.out is not None:
        from mast.core.checkpoint import write_json
        from mast.core.run import provenance

        facts = {"seconds": arguments.seconds, "jobs": arguments.jobs, "seed": arguments.seed}
        write_json(arguments.out, {**facts, "counts": counts, "provenance": provenance()})
    print(
        f"cases {len(cases)}, code run {total['code']}, tracebacks {total['traceback']}, "
        f"hangs {total['hang']}, wrong {total['wrong']}, "
        f"kills {counts.get('kill', Counter())['equal']} byte-equal"
    )
    return 1 if any(total[fault] for fault in FAULTS) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
