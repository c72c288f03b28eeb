"""What an experiment is: a study that starts from recipes and writes result files.

Sets of images come from one folder, which is never written into; run folders, sets that are made of
others, and results go to another one.
"""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch

from mast.analyses import Grid
from mast.config import PretrainConfig, build_method
from mast.core.checkpoint import write_json
from mast.core.compute import Compute
from mast.core.errors import DivergedError, UserError, unknown
from mast.core.files import read_json
from mast.core.kinds import Device
from mast.core.launch import find_device
from mast.core.run import RunFolder, provenance
from mast.core.tensors import DIGEST, digest
from mast.data import CanvasSet, open_canvas
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.result import Result
from mast.models import Encoder, load_encoder
from mast.recipes import configure
from mast.runs.load import load_representation
from mast.runs.start import start, with_architecture
from paper import register
from paper.studies.engine import (
    ALL,
    BEGUN,
    FINISHED,
    TO_DO,
    WAITING,
    RunShard,
    StudyRun,
    carry_out,
)

Measured = dict[str, Any]  # a result file

# What small runs are of.
CIFAR = "cifar10-10k"  # images of CIFAR-10 without labels
IMAGES, SIZE = 10_000, 32


def narrow(*channels: int) -> dict[str, Any]:
    """A ResNet-10 of these channels."""
    options = {"layers": [1, 1, 1, 1], "channels": list(channels)}
    return {"name": "timm:resnet18", "options": {**options, "stem_type": "deep", "stem_width": 16}}


NARROW = narrow(32, 64, 128, 256)


@dataclass(frozen=True)
class Workplace:
    """What an experiment works with.

    Args:
        sets: Folder of image sets.
        out: Folder of run folders (`runs/`), of sets that are made (`sets/`) and of results.
        pretrain: `mast.pretrain`.
        evaluate: `mast.evaluate`.
        device: auto, cpu or cuda.
        threads: CPU threads; PyTorch's choice if None.
    """

    sets: Path
    out: Path
    pretrain: Callable[[PretrainConfig], RunFolder]
    evaluate: Callable[..., list[Result]]
    device: Device = "auto"
    threads: int | None = None

    def derived(self, name: str) -> Path:
        """The place of a set that an experiment makes from others."""
        return self.out / "sets" / name

    def open(self, name: str, size: int) -> CanvasSet:
        """A set of the folder, such as "flowers17/test", for views of `size` pixels."""
        if not (self.sets / name).is_dir():
            raise UserError(f"{self.sets} has no {name}; give a folder of sets that has it")
        return open_canvas(str(self.sets / name), size)

    def configure(
        self, name: str, recipe: str, data: str | Path, /, **changes: Any
    ) -> PretrainConfig:
        """The run `name` of a recipe, with changes as `mast.configure` takes them."""
        own = {"out": str(self.out / "runs" / name), "device": self.device, "threads": self.threads}
        return configure(recipe, str(data), **changes, **own)

    def frozen(self, run: StudyRun) -> FrozenEncoder:
        """The encoder of a run as protocols receive it, with the embedding of one that learned."""

        def representation(name: str) -> FrozenEncoder:
            return FrozenEncoder(load_representation(run.folder.path, name).module, compute)

        compute = Compute(find_device(self.device))
        representations = representation if run.trained else None
        return FrozenEncoder(self.encoder(run), compute, representations=representations)

    def encoder(self, run: StudyRun) -> Encoder:
        """The encoder of a run: what it learned, or as it starts for one that is not trained."""
        assert run.config is not None
        encoder = load_encoder(run.folder.path) if run.trained else _untrained(run.config)
        return encoder.to(find_device(self.device))


class Experiment(ABC):
    """A study that starts from recipes, or trains nothing; a frozen dataclass of its scale.

    Attributes:
        results: Where its results go, below the folder of results: `<results>/<run>.json`, and
            what is concluded from all of them, if anything is, `<results>.json`.
        seeded: Whether its runs may have other seeds than 0.
    """

    results: ClassVar[str]
    seeded: ClassVar[bool] = False

    @abstractmethod
    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        """The runs, always of the same names, the most useful first; nothing is written.

        A run whose configuration depends on the results of others waits for them and is `together`
        with them.
        """

    def prepare(self, workplace: Workplace) -> None:  # noqa: B027  # most have nothing to prepare
        """Make the sets that it needs from those in the folder."""

    def check(self, run: StudyRun, workplace: Workplace) -> None:  # noqa: B027  # most check all sets
        """Refuse a run that could not be measured, before it is trained."""

    @abstractmethod
    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """The result of a run, as JSON has it; its provenance is added."""

    def diverged(self, run: StudyRun, reason: str) -> Measured | None:
        """The result of a run whose training stopped; None: it has none and fails."""
        return None

    def conclude(self, measured: Mapping[str, Measured], workplace: Workplace) -> Measured | None:
        """What follows from the results of all runs, by name; None: nothing is written."""
        return None

    @abstractmethod
    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """Results of runs, by name, as a table."""

    def measured(self, runs: Iterable[StudyRun], out: Path) -> dict[str, Measured]:
        """Results of those runs that have one, by name."""
        files = {run.name: self.file(run, out) for run in runs}
        return {name: read_result(file) for name, file in files.items() if file.is_file()}

    def file(self, run: StudyRun, out: Path) -> Path:
        """The result of a run."""
        return out / self.results / f"{run.name}.json"

    def conclusion(self, out: Path) -> Path:
        """What is concluded from all runs."""
        return out / f"{self.results}.json"

    def state(self, run: StudyRun, out: Path) -> str:
        """How far a run is."""
        if run.waits:
            return WAITING
        if self.file(run, out).is_file() or self.conclusion(out).is_file():
            return FINISHED
        begun = run.config is not None and run.trained and run.folder.config.is_file()
        return BEGUN if begun else TO_DO


def matching(runs: Sequence[StudyRun], only: Sequence[str]) -> list[StudyRun]:
    """The runs whose name fits one of some patterns, such as "validation/*"; all without any."""
    names = [run.name for run in runs]
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise unknown("run", pattern, names)
    return [run for run in runs if not only or any(fnmatchcase(run.name, each) for each in only)]


def perform(
    experiment: Experiment,
    workplace: Workplace,
    seeds: Sequence[int],
    only: Sequence[str] = (),
    shard: RunShard = ALL,
    dry: bool = False,
) -> tuple[tuple[StudyRun, ...], dict[str, Measured]]:
    """Train and measure the runs of an experiment that have no results yet, and conclude.

    Args:
        experiment: What is planned.
        workplace: What it works with.
        seeds: Of the runs.
        only: Patterns of the names of the runs to take; all of them without any.
        shard: Which of them are this process's.
        dry: Only list the runs.

    Returns:
        The runs with their states, and by name the results that there are.
    """
    register()
    plan = experiment.plan(workplace, seeds)

    def state(run: StudyRun) -> str:
        return experiment.state(run, workplace.out)

    def work(run: StudyRun) -> None:
        if state(run) == FINISHED:  # by another process, meanwhile
            return
        experiment.check(run, workplace)
        try:
            if run.config is not None and run.trained:
                workplace.pretrain(run.config)
            result = experiment.measure(run, workplace)
        except DivergedError as error:
            if (failed := experiment.diverged(run, str(error))) is None:
                raise
            result = failed
        whole = json.loads(json.dumps({**result, "provenance": provenance()}))
        write_json(experiment.file(run, workplace.out), {**whole, DIGEST: digest({}, whole)})

    runs = tuple(replace(run, state=state(run)) for run in matching(plan, only))
    unfinished = any(run.state != FINISHED for run in runs)
    if not dry and workplace.threads is not None:
        torch.set_num_threads(workplace.threads)
    if not dry and unfinished:
        experiment.prepare(workplace)
        while any(run.state in (TO_DO, BEGUN) for run in runs):
            carried_out = carry_out(runs, work, state, shard)
            plan = experiment.plan(workplace, seeds)
            now = {run.name: replace(run, state=state(run)) for run in plan}
            runs = tuple(now[run.name] if run.waits else run for run in carried_out)
            if [run.waits for run in runs] == [run.waits for run in carried_out]:
                break
    if not dry and (unfinished or not experiment.conclusion(workplace.out).is_file()):
        measured = experiment.measured(plan, workplace.out)
        if (
            len(measured) == len(plan)
            and (conclusion := experiment.conclude(measured, workplace)) is not None
        ):
            whole = {**conclusion, "provenance": provenance()}
            write_json(experiment.conclusion(workplace.out), whole)
    return runs, experiment.measured(runs, workplace.out)


def read_result(file: Path) -> Measured:
    """The result of a run, whose digest is compared where it has one."""
    found = read_json(file)
    if not isinstance(found, dict) or found.pop(DIGEST, None) not in (None, digest({}, found)):
        raise UserError(f"{file} is not a valid result: delete it to have the run measured again")
    return cast(Measured, found)


def last_metrics(folder: RunFolder) -> dict[str, Any]:
    """Loss terms and statistics at the end of a run; empty for one that was not trained."""
    lines = [line for line in folder.read_metrics() if "loss" in line]
    return lines[-1] if lines else {}


# ------------------------------------------------------------------------ sets made of others


def drawn_positions(total: int, count: int, part: int = 0) -> np.ndarray:
    """The `part`-th `count` positions of a set in an order drawn once, ascending."""
    order_N = np.random.default_rng(0).permutation(total)
    return np.sort(order_N[part * count : (part + 1) * count])


def link(canvases: CanvasSet, root: Path, index_N: np.ndarray, target: Path, flat: bool) -> None:
    """Make a folder of links to some images of a set, wholly or not at all.

    Args:
        canvases: The set, of a folder.
        root: That folder.
        index_N: Positions of the images.
        target: The folder; an existing one is left alone.
        flat: Without the classes' folders, so that there are no labels.
    """
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as place:
        partial = Path(place, "new")
        for index in index_N:
            identifier = canvases.identifiers[index]
            file = partial / (identifier.replace("/", "-") if flat else identifier)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.symlink_to((root / identifier).resolve())
        with suppress(OSError):  # another process that shares the runs made it in the meantime
            partial.rename(target)


def link_cifar(
    workplace: Workplace, images: int = IMAGES, name: str = CIFAR, flat: bool = True
) -> None:
    """Make a set of some of CIFAR-10's training images, flat without labels."""
    everything = workplace.open("cifar10/train", SIZE)
    root, index_N = workplace.sets / "cifar10/train", drawn_positions(len(everything), images)
    link(everything, root, index_N, workplace.derived(name), flat)


def _untrained(config: PretrainConfig) -> Encoder:
    """The encoder of a run before its first step, in evaluation mode."""
    config = with_architecture(config)
    method = build_method(config)
    start(method, config)
    return method.encoder.eval()
