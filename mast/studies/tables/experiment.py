"""What tables have in common: what they print besides scores, and what they cost beforehand."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

from mast.analyses import Grid
from mast.config import PretrainConfig
from mast.data import canvas_size
from mast.runs.cost import Gpu, flops_a_second, flops_an_image, kept_bytes
from mast.studies.engine import FINISHED, StudyRun
from mast.studies.experiment import Experiment, Measured, Workplace

RESULTS = "results"


class TableExperiment(Experiment):
    """An experiment whose results are a table to print, with its differences and its budgets."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Of the table, with its source."""

    @abstractmethod
    def called(self, run: StudyRun) -> str:
        """What runs that cost the same are called: all but the seed, and what is tuned."""

    @abstractmethod
    def images(self, run: StudyRun) -> int:
        """How many images a run is pretrained on; they need not be there."""

    @abstractmethod
    def grids(self, measured: Mapping[str, Measured]) -> dict[str, Grid]:
        """Tables by heading, from results by the name of the run; the first has the scores."""

    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know."""

    @final
    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """See `Experiment.table`."""
        return next(iter(self.grids(measured).values()))


class _Kind(NamedTuple):
    """Runs that differ in their seed alone."""

    name: str
    runs: int
    images: int
    config: PretrainConfig


def costs(
    experiment: TableExperiment,
    workplace: Workplace,
    runs: Sequence[StudyRun],
    gpu: Gpu | None,
) -> Grid:
    """What is left of a table to train, and what that takes; measuring it comes on top.

    Args:
        experiment: The table.
        workplace: Where; its verb trains a few steps if there is no GPU to compute for.
        runs: Its plan.
        gpu: On which hours are computed; None: they are measured here, by a few steps of the first
            run, and computed for the others from their operations.
    """
    kinds = _kinds(experiment, runs)
    if not kinds:
        return Grid(_COLUMNS, ())
    speed = flops_a_second(kinds[0].config, gpu, workplace.verbs.pretrain)
    rows: list[tuple[str | float, ...]] = []
    canvases: dict[str, float] = {}
    for kind in kinds:
        seen = kind.runs * kind.config.epochs * _of_an_epoch(kind)
        flops = seen * flops_an_image(kind.config)
        disk = kind.runs * kept_bytes(kind.config)
        side = kind.config.data.canvas or canvas_size(kind.config.size)
        spec = f"{kind.config.data.spec}@{side}"
        canvases[spec] = kind.images * side**2 * 3
        rows.append(_row(kind.name, kind.runs, seen, flops, flops / speed / 3600, disk))
    kept = _row("resized images", 0, 0, 0.0, 0.0, sum(canvases.values()))
    totals = [sum(float(row[at]) for row in (*rows, kept)) for at in range(1, len(_COLUMNS))]
    runs_in_all, seen_in_all, *others = totals
    rows += [kept, ("all", round(runs_in_all), round(seen_in_all), *map(_rounded, others))]
    return Grid(_COLUMNS, tuple(rows))


_COLUMNS = ("runs of", "runs", "images seen", "PFLOP", "hours", "disk, GB")


def _row(
    name: str, runs: int, seen: int, flops: float, hours: float, disk: float
) -> tuple[str | float, ...]:
    return name, runs, seen, _rounded(flops / 1e15), _rounded(hours), _rounded(disk / 1e9)


def _rounded(value: float) -> float:
    """To three digits."""
    return float(f"{value:.3g}")


def _kinds(experiment: TableExperiment, runs: Sequence[StudyRun]) -> list[_Kind]:
    """What is not trained yet, a run folder once, in the order of the plan."""
    folders: dict[str, StudyRun] = {}
    for run in runs:
        if run.state != FINISHED and run.trained and not run.folder.encoder.is_file():
            folders.setdefault(str(run.folder.path), run)
    kinds: dict[str, _Kind] = {}
    for run in folders.values():
        assert run.config is not None
        name = experiment.called(run)
        known = kinds.get(name, _Kind(name, 0, experiment.images(run), run.config))
        kinds[name] = known._replace(runs=known.runs + 1)
    return list(kinds.values())


def _of_an_epoch(kind: _Kind) -> int:
    return kind.images // kind.config.batch_size * kind.config.batch_size
