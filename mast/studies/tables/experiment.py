"""What tables have in common: what they print besides scores, and what they cost beforehand."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from mast.analyses import Grid
from mast.config import PretrainConfig, deciding
from mast.data import canvas_size
from mast.runs.cost import REACHED, flops_a_second, flops_an_image, saved_bytes
from mast.studies.engine import FINISHED, TO_DO, StudyRun
from mast.studies.experiment import Experiment, Measured, Workplace, read_result

RESULTS = "results"
NAMES = ("recipe", "data.spec")  # of what was started from, and of the place of the images


def trained(config: PretrainConfig) -> dict[str, Any]:
    """What decides a run, wherever it and its images are, where it is not the plain default.

    So that a result stays what it is when a field is added.
    """
    plain_run = deciding(PretrainConfig(objective=type(config.objective)()))
    return {
        name: value
        for name, value in deciding(config).items()
        if name not in NAMES and plain_run.get(name) != value
    }


def digest(what: Any) -> str:
    """Sixteen digits of anything that JSON can hold, or whose text tells it from others."""
    text = json.dumps(what, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class TableExperiment(Experiment):
    """An experiment whose results are a table to print, with its differences and its budgets."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Of the table, with its source."""

    @abstractmethod
    def called(self, run: StudyRun) -> str:
        """A name for runs that cost the same: they differ in the seed or in what is tuned."""

    @abstractmethod
    def images(self, run: StudyRun) -> int:
        """How many images a run is pretrained on; they need not be there."""

    @abstractmethod
    def grids(self, measured: Mapping[str, Measured]) -> dict[str, Grid]:
        """Tables by heading, from results by the name of the run; the first has the scores."""

    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know."""

    def fingerprint(self, run: StudyRun) -> str:
        """A digest of what a run is and how it is measured, by which old results are told."""
        assert run.config is not None
        return digest([trained(run.config), run.trained, self.measures(run)])

    @abstractmethod
    def measures(self, run: StudyRun) -> Any:
        """Sets, protocols and settings by which a run is measured."""

    def state(self, run: StudyRun, out: Path) -> str:
        """How far a run is; what was measured of another configuration is to do again."""
        state = super().state(run, out)
        if state == FINISHED:
            measured = self.measured([run], out)[run.name]
            return state if measured.get("fingerprint") == self.fingerprint(run) else TO_DO
        return state

    def everything(self, workplace: Workplace) -> dict[str, Measured]:
        """Results of all seeds that were measured, by the name of the run; without old ones."""
        files = (workplace.out / self.results).rglob("*.json")
        found = [read_result(file).get("seed") for file in files]
        seeds = sorted({seed for seed in found if isinstance(seed, int)})  # others are no runs
        finished = [
            run for run in self.plan(workplace, seeds) if self.state(run, workplace.out) == FINISHED
        ]
        return self.measured(finished, workplace.out)

    @final
    def table(self, measured: Mapping[str, Measured]) -> Grid:
        return next(iter(self.grids(measured).values()))


def costs(
    experiment: TableExperiment,
    workplace: Workplace,
    runs: Sequence[StudyRun],
    gpu: float | None,
) -> Grid:
    """What is left of a table to train, and what that takes.

    Args:
        experiment: The table.
        workplace: Where; a few steps are trained there if there is no GPU to compute for.
        runs: Its plan.
        gpu: On which hours are computed; None: they are measured here, by a few steps of the first
            run, and computed for the others from their operations.
    """
    alike: dict[str, list[PretrainConfig]] = {}  # by name, as they differ in the seed alone
    images: dict[str, int] = {}
    folders = set()
    for run in runs:
        done = run.state == FINISHED or not run.trained or run.folder.encoder.is_file()
        if done or run.folder.path in folders or run.config is None:
            continue
        folders.add(run.folder.path)
        name = experiment.called(run)
        alike.setdefault(name, []).append(run.config)
        images.setdefault(name, experiment.images(run))
    columns = ("runs of", "runs", "images seen", "PFLOP", "hours", "disk, GB")
    if not alike:
        return Grid(columns, ())
    firsts = {name: configs[0] for name, configs in alike.items()}
    speed = flops_a_second(list(firsts.values()), gpu, workplace.pretrain)
    rows: list[tuple[Any, ...]] = []
    canvases: dict[str, float] = {}
    for name, config in firsts.items():
        count, batches = len(alike[name]), images[name] // config.batch_size
        seen = count * config.epochs * batches * config.batch_size
        flops, (weights, state) = seen * flops_an_image(config), saved_bytes(config)
        disk = count * (3 * weights + 2 * state)  # two checkpoints and the encoder
        rows.append((name, count, seen, flops, flops / speed, disk))
        side = config.data.canvas or canvas_size(config.size)
        resized = images[name] * side**2 * 3
        if resized <= config.data.cache_limit_gb * 1e9:
            canvases[f"{config.data.spec}@{side}"] = resized
    rows.append(("resized images", 0, 0, 0.0, 0.0, sum(canvases.values())))
    rows.append(("all", *map(sum, list(zip(*rows, strict=True))[1:])))
    shown = (
        (*counts, *(float(f"{value:.3g}") for value in (flops / 1e15, seconds / 3600, disk / 1e9)))
        for *counts, flops, seconds, disk in rows
    )
    return Grid(columns, tuple(shown))


def assumed(gpu: str | None) -> str:
    """What the hours of `costs` are taken to be, in a sentence."""
    if gpu is None:
        return "Hours are of this machine, without measuring what was trained."
    return (
        f"Hours are of one {gpu} at {REACHED:.0%} of its peak in bfloat16, without measuring what "
        "was trained; none has been timed yet."
    )
