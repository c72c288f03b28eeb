"""How long looking into a run takes, and asking ten tasks which augmentations they can afford.

    python benchmarks/insight.py [--rounds 1] [--threads 2]

`mast analyze` is run as a command, on a run of two epochs on 1,024 generated images, with and
without the probes that it makes where nothing was measured before; no feature is kept from one
round to the next. The protocols are given features: correlated, positive and badly scaled, as
pooled encoders give them; an operator takes a few directions from half of them and adds noise.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measure import alternate, report
from probes import problem
from torch import Tensor, nn

import mast
from mast.augment import PRESETS
from mast.data import CanvasSet
from mast.data.pixels import Pixels
from mast.encoders.changes import Change
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols import EVALUATORS
from paper.experiment import NARROW
from paper.protocols import register

CPU = torch.device("cpu")
DATA = "factors:1024"  # a quarter of that to validate, and to test
LEARNED = "factors@train:1024"
IMAGES, DIMENSIONS, TASKS, CLASSES, TESTED = 10_000, 512, 10, 10, 2_000
OPERATORS = PRESETS["mast5"].operators
HIDDEN, NOISE = 8, 0.1  # directions that an operator takes, and the noise in deviations
ENCODER = {**NARROW, "stem_stride": 2}
EPOCHS = 2
WHOLE = "all of it"


class Known(FrozenEncoder):
    """Features that are known, of each set and of what an operator leaves of it."""

    def __init__(self, features: dict[str, Tensor]) -> None:
        super().__init__(nn.Identity())
        self.known = features

    def extract(self, canvas_set: CanvasSet, size: int, change: Change | None = None) -> Tensor:
        """See `FrozenEncoder.extract`."""
        features_ND = self.known[canvas_set.name]
        if change is None:
            return features_ND
        operator = OPERATORS.index(change.name.partition(" ")[0])
        generator = torch.Generator().manual_seed(operator)
        taken_DH = torch.linalg.qr(torch.randn(DIMENSIONS, HIDDEN, generator=generator))[0]
        spread_D = features_ND.std(dim=0)
        noise_ND = torch.randn(features_ND.shape, generator=generator)
        left_ND = features_ND - features_ND @ taken_DH @ taken_DH.T + NOISE * spread_D * noise_ND
        acts_N1 = torch.rand(len(features_ND), 1, generator=generator) < 0.5
        return torch.where(acts_N1, left_ND, features_ND)


def labelled_features() -> tuple[Known, EvaluationData]:
    """Features and tasks to learn from and to test on."""
    torch.manual_seed(0)
    features_ND, targets = problem(IMAGES + TESTED, DIMENSIONS, TASKS, CLASSES)
    classes = {f"task {t}": tuple(map(str, range(CLASSES))) for t in range(TASKS)}
    sets = {}
    for name, rows in (("train", slice(IMAGES)), ("test", slice(IMAGES, None))):
        labels = {f"task {t}": target.labels_N[rows].numpy() for t, target in enumerate(targets)}
        count = len(features_ND[rows])
        sets[name] = CanvasSet(
            name=name,
            pixels=Pixels.of(np.zeros((count, 1, 1, 3), np.uint8)),
            aspect_N=np.ones(count, np.float32),
            targets=labels,
            classes=classes,
            identifiers=tuple(map(str, range(count))),
            fingerprint=name,
        )
    known = Known({"train": features_ND[:IMAGES], "test": features_ND[IMAGES:]})
    return known, EvaluationData(sets["train"], None, sets["test"], 32)


def measure(protocol: str, known: Known, data: EvaluationData) -> None:
    """All that a protocol yields."""
    chosen = {"operators": OPERATORS} if protocol == "retained" else {}
    for _ in EVALUATORS[protocol].kind(**chosen).run(known, data):
        pass


def analyze(run: Path, cache: Path, threads: int, *options: str) -> None:
    """The command, where nothing was measured or kept before."""
    for folder in (run / "evaluations", run / "analysis", cache / "mast" / "features"):
        shutil.rmtree(folder, ignore_errors=True)
    command = ["analyze", str(run), "--data", DATA, "--threads", str(threads), *options]
    subprocess.run(
        [sys.executable, "-m", "mast.cli", *command], check=True, capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip


def processor_time() -> float:
    """Seconds of this process and of those that it started and waited for."""
    started = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + started.ru_utime + started.ru_stime


def counted(seconds: dict[str, float], name: str, work: Callable[[], None]) -> None:
    """Do some work, and keep how long processors were busy with it."""
    started = processor_time()
    work()
    seconds[name] = round(processor_time() - started, 2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1, help="that count")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        os.environ["XDG_CACHE_HOME"] = str(cache)
        config = mast.configure(
            "mast_c5_small", LEARNED, size=32, encoder=ENCODER, epochs=EPOCHS, device="cpu",
            out=f"{folder}/run",
        )  # fmt: skip
        run = mast.pretrain(config).path
        once = partial(analyze, run, cache, options.threads)
        known = labelled_features()
        register()
        cases = {
            f"mast analyze of a run on {DATA}": {
                WHOLE: once,
                "without probes": partial(once, "--no_measure"),
            },
            f"retained, {IMAGES:,} × {DIMENSIONS}, ten tasks of {CLASSES} classes, "
            f"{len(OPERATORS)} operators": {
                WHOLE: partial(measure, "retained", *known),
                "linear, of unchanged images": partial(measure, "linear", *known),
            },
        }
        timed, busy = {}, dict[str, dict[str, float]]()
        for case, entries in cases.items():
            seconds = busy[case] = dict[str, float]()
            work = {name: partial(counted, seconds, name, do) for name, do in entries.items()}
            timed[case] = alternate(work, options.rounds, CPU)
    report("insight", CPU, vars(options), timed, "ms", WHOLE, processor_seconds=busy)


if __name__ == "__main__":
    main()
