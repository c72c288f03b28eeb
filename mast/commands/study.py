"""Studies of a run: the runs that answer a question to it, trained and measured one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from mast.commands.analyze import Insight, analyze
from mast.commands.evaluate import measure_missing
from mast.commands.pretrain import pretrain
from mast.config import PretrainConfig, change, read
from mast.core.display import console
from mast.core.errors import UserError, unknown
from mast.core.launch import Device, find_device
from mast.core.run import RunFolder
from mast.recipes import RECIPES
from mast.runs.scores import Labelled, labelled, unmeasured
from mast.runs.subject import subject_of
from mast.studies import STUDIES
from mast.studies.study import BASE


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
        name: Of the trial.
        changes: Fields of the configuration that differ from the studied run's, by dotted name.
        config: All of it.
        state: "finished" (trained, and measured on the set), "begun", "to do", or what went wrong.
    """

    name: str
    changes: Mapping[str, Any]
    config: PretrainConfig
    state: str = "to do"

    @property
    def folder(self) -> RunFolder:
        """Where it lies."""
        return RunFolder(self.config.folder())


@dataclass(frozen=True)
class Studied:
    """What a study did.

    Attributes:
        title: Of the study.
        runs: All of its plan.
        insight: Its answer, from the runs that are finished; None after a dry run.
    """

    title: str
    runs: tuple[StudyRun, ...]
    insight: Insight | None

    def table(self) -> Table:
        """The plan and its state, for a rich console."""
        shown = Table(title=self.title)
        for column in ("run", "seed", "what differs", "state"):
            shown.add_column(column, justify="right" if column == "seed" else "left")
        for run in self.runs:
            differs = ", ".join(f"{name}: {_short(value)}" for name, value in run.changes.items())
            shown.add_row(run.name, str(run.config.seed), differs or "nothing", run.state)
        return shown


def study(
    name: str,
    run: str | Path,
    data: str,
    seeds: Sequence[int] = (0,),
    protocols: Sequence[str] = ("linear",),
    epochs: int | None = None,
    device: Device = "auto",
    threads: int | None = None,
    shard: str = "0/1",
    dry: bool = False,
) -> Studied:
    """Answer a question to a run by training other runs, each like it but for something.

    All runs of a study have the run's encoder, optimizer, data, batch size and number of epochs,
    and so see as many images, but for what the study varies; the run itself is trained again as
    `base`, with each seed. They lie in `studies/<trial>-seed<k>` of the run folder. The same
    command continues a run that was killed and leaves finished ones alone; studies share the runs
    that they have in common.

    Args:
        name: leave_one_out, growth, sensitivity or epochs.
        run: A run folder with its checkpoint.
        data: A labelled set with `train` and `test`, on which every run is measured.
        seeds: Of the runs; an interval needs two or more.
        protocols: By which they are measured, as in `mast evaluate`.
        epochs: Of the base, for cheaper runs; those of the run if not given.
        device: auto, cpu or cuda.
        threads: CPU threads; PyTorch's choice if not given.
        shard: `i/n`: only every n-th of the runs, from the i-th, so that n processes share them.
        dry: Say what would be run, and run nothing.

    Returns:
        The runs and their states; and the answer, which also lies in `analysis/` of the run.

    Raises:
        UserError: An unknown study, no run or set there, or a run that cannot be varied so; a base
            that cannot be trained or measured. Where another run fails, its state says so.
    """
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    one, every = _shard(shard)
    folder = RunFolder(run).require()
    config = read(folder.config)
    if epochs is not None:
        config = change(config, {"epochs": epochs})
    on = labelled(data, folder)
    subject = replace(
        subject_of(folder, None, 0, find_device("cpu"), 0), epochs=config.epochs, trials=()
    )
    plan = STUDIES[name]().plan(subject)
    operational = {"device": device, "devices": 1, "nodes": 1, "threads": threads}
    config = change(config, operational)
    for base in sorted(folder.studies.glob(f"{BASE}-seed*")):
        _same_length(RunFolder(base), config)
    runs = [
        _with_state(_planned(config, trial, changes, seed, folder.studies), on, protocols)
        for seed in dict.fromkeys(seeds)
        for trial, changes in plan.items()
    ]
    if dry:
        return Studied(STUDIES[name].title, tuple(runs), None)
    done = tuple(
        _finish(planned, on, protocols) if at % every == one else planned
        for at, planned in enumerate(runs)
    )
    answer = analyze(folder.path, analyses=[name], device=device)[0]
    return Studied(STUDIES[name].title, done, answer)


def _planned(
    base: PretrainConfig,
    name: str,
    changes: Mapping[str, Any],
    seed: int,
    folder: Path,
) -> StudyRun:
    """One run of a plan, with the studied run's configuration but for the changes.

    Raises:
        UserError: Another command has trained it for longer or shorter.
    """
    if changes.get("method", base.method) != base.method:
        base = _as_vicreg(base)
    out = RunFolder(folder / f"{name}-seed{seed}")
    config = change(base, {**changes, "seed": seed, "out": str(out.path)})
    _same_length(out, config)
    return StudyRun(name, changes, config)


def _same_length(run: RunFolder, config: PretrainConfig) -> None:
    """Refuse to mix runs of a study, of one seed or of several, that differ in their epochs."""
    if run.config.is_file() and (there := read(run.config).epochs) != config.epochs:
        raise UserError(
            f"{run.path} has {there} epochs and would now have {config.epochs}; give the "
            f"same --epochs as before, or delete {run.path.parent} to begin anew"
        )


def _as_vicreg(config: PretrainConfig) -> PretrainConfig:
    """VICReg beside a run: its own objective and schedule, and all else as in the run."""
    recipe = "vicreg5_small" if config.recipe.endswith("_small") else "vicreg5"
    vicreg = RECIPES[recipe]()
    objective: Any = vicreg.objective
    sizes: Any = config.objective
    projector = replace(objective.projector, hidden=sizes.projector.hidden, dim=sizes.projector.dim)
    objective = replace(objective, projector=projector)
    return replace(
        config, recipe=recipe, method="vicreg", objective=objective, schedule=vicreg.schedule
    )


def _finish(run: StudyRun, on: Labelled, protocols: Sequence[str]) -> StudyRun:
    """Train and measure one run, as far as that was not done before."""
    config = run.config
    try:
        pretrain(config)
        measure_missing(run.folder, on, config.device, config.seed, protocols)
    except UserError as error:  # a loss or features that are not finite: the others go on
        if not run.changes:
            raise
        console.print(f"{run.folder.path}: {error}", style="yellow", highlight=False, markup=False)
        return replace(run, state=str(error))
    return _with_state(run, on, protocols)


def _with_state(run: StudyRun, on: Labelled, protocols: Sequence[str]) -> StudyRun:
    if not run.folder.config.is_file():
        return replace(run, state="to do")
    missing = unmeasured(run.folder, on, run.config.seed, protocols)
    done = run.folder.encoder.is_file() and not missing
    return replace(run, state="finished" if done else "begun")


def _shard(text: str) -> tuple[int, int]:
    one, _, every = text.partition("/")
    if not (one.isdecimal() and every.isdecimal() and int(one) < int(every)):
        raise UserError(f"expected shard as i/n with 0 <= i < n, such as 0/2, got {text!r}")
    return int(one), int(every)


def _short(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
