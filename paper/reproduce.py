"""The paper's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.text import Text

from mast.commands.common import command
from mast.commands.evaluate import evaluate
from mast.commands.pretrain import pretrain
from mast.core.arguments import as_list
from mast.core.errors import UserError, one_line
from mast.core.files import out_folder
from mast.core.kinds import Device
from mast.core.table import Shown, TextTable, literal
from paper.study import seeds_of

if TYPE_CHECKING:
    from mast.analyses import Grid
    from paper.experiment import Workplace
    from paper.studies.engine import RunShard, StudyRun
    from paper.tables import TableExperiment


ScaleName = Literal["small", "paper"]
GpuName = Literal["H200", "H100", "A100", "RTX4090"]
LARGE: GpuName = "H100"  # on which hours at the paper's scale are computed


@dataclass(frozen=True, repr=False)
class Reproduced(Shown):
    """A table, as far as it is trained and measured."""

    title: str
    runs: tuple[StudyRun, ...]  # all of its plan, with their states
    grids: Mapping[str, Grid]  # by heading: scores, differences, budgets, or what it costs
    notes: tuple[str, ...]  # what a reader of the numbers has to know
    files: tuple[Path, ...] = ()  # where the table was written

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong, a line per run."""
        from paper.studies.engine import failures

        return failures(self.runs)

    @property
    def state(self) -> str:
        """How much of it is done."""
        from paper.studies.engine import FINISHED, WAITING

        done = sum(run.state == FINISHED for run in self.runs)
        waiting = sum(run.state == WAITING for run in self.runs)
        text = f"{done} of {len(self.runs)} runs are trained and measured"
        return f"{text}, {waiting} wait for the trials of their row" if waiting else text

    def shown(self) -> tuple[str | Text | TextTable, ...]:
        """The tables, the notes, how much is done, and where it was written."""
        tables = (fitted(grid, heading) for heading, grid in self.grids.items())
        files = map(one_line, map(str, self.files))
        return literal(self.title, "bold"), *tables, *self.notes, self.state, *files


@command
def reproduce(
    table: str,
    data: str | Path | None = None,
    out: str | Path | None = None,
    scale: ScaleName = "small",
    epochs: int | None = None,
    seeds: Sequence[int] | int = 0,
    only: Sequence[str] | str = (),
    gpu: GpuName | None = None,
    device: Device = "auto",
    threads: int | None = None,
    shard: str = "0/1",
    dry: bool = False,
) -> Reproduced:
    """Train and measure a table of the paper, and print the paper's numbers next to it.

    Tables are `table1` to `table10`, `figure4b` and `figure8`; notes below each say what the scale
    changes and where the paper contradicts itself.

    The same command continues an interrupted run and skips finished ones. Tables share common runs.
    Each call prints and writes all results so far as Markdown, CSV and LaTeX.

    Args:
        table: Name of the table.
        data: Folder with the datasets that the table needs, each in a subfolder of that name.
        out: Output folder: runs, results and the table.
        scale: "small" takes minutes per run on a CPU; "paper" trains what the paper trains.
        epochs: Epochs of a full-length run, in place of the scale's.
        seeds: Seeds of the runs; use at least three: intervals cover test images, not seeds.
        only: Patterns of run names to train, such as `flowers17-mast5-*`; all by default.
        gpu: The GPU for which `dry` estimates hours; by default an H100 at the paper's scale; at
            the small scale a few steps are timed on this machine.
        shard: `i/n`: every n-th run from the i-th, to split the runs over n processes.
        dry: Only print what is left to train, and its cost.

    Returns:
        The runs with their states, and the table.
    """
    from paper.studies.engine import RunShard
    from paper.tables import experiment

    kind = experiment(table, scale, epochs)
    if dry and gpu is None and scale == "paper":
        gpu = LARGE
    place = workplace_of(table, data, out, device, threads)
    return reproduced(kind, place, seeds_of(seeds), as_list(only), RunShard.parse(shard), dry, gpu)


def reproduced(
    kind: TableExperiment,
    place: Workplace,
    seeds: Sequence[int],
    only: Sequence[str],
    part: RunShard,
    dry: bool,
    gpu: GpuName | None,
) -> Reproduced:
    """What `reproduce` returns, of any experiment that is a table; `part` is for this process."""
    from paper.experiment import perform
    from paper.tables import assumed, costs
    from paper.tables.flops import GPUS
    from paper.tables.printed import refuse_something_else, write

    refuse_something_else(place.out / kind.results, kind.title)
    runs, _ = perform(kind, place, seeds, only, part, dry)
    if dry:
        own = [run for run, is_own in zip(runs, part.selects(runs), strict=True) if is_own]
        left = costs(kind, place, own, GPUS[gpu] if gpu is not None else None)
        return Reproduced(kind.title, runs, {"what is left to train": left}, (assumed(gpu),))
    measured = kind.everything(place)
    try:
        grids = kind.grids(measured) if measured else {}
    except (KeyError, TypeError) as error:
        raise UserError(
            f"a result in {place.out / kind.results} was written by another version "
            f"({type(error).__name__}: {error}): delete it to have it measured again"
        ) from error
    files = write(place.out / kind.results, kind.title, grids, kind.notes()) if measured else ()
    return Reproduced(kind.title, runs, grids, kind.notes(), files)


def fitted(grid: Grid, title: str | None = None) -> TextTable:
    """A grid for a rich console."""
    rendered = TextTable(title=title)
    for column in grid.columns:
        rendered.add_column(column)
    for row in grid.rows:
        rendered.add_row(*map(str, row))
    return rendered


def workplace_of(
    name: str,
    data: str | Path | None,
    out: str | Path | None,
    device: Device,
    threads: int | None,
) -> Workplace:
    """What an experiment works with; its arguments are those of `reproduce`."""
    from mast.core.launch import check_threads
    from paper.experiment import Workplace

    if data is None:
        raise UserError(f"{name} needs images: give data, a folder of sets")
    if out is None:
        raise UserError(f"{name} makes runs and result files: give out, a folder for them")
    check_threads(threads)
    return Workplace(Path(data), out_folder(out), pretrain, evaluate, device, threads)
