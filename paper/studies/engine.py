"""The engine of every study: its runs are planned, shared among processes, trained and measured.

What is done already is left alone, and a run that fails does not stop the others. How a run is
trained and measured is passed in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from mast.config import PretrainConfig, change, read
from mast.core.display import doing, say
from mast.core.errors import UserError, counted
from mast.core.run import RunFolder
from mast.core.table import TextTable
from paper.studies.rival import rival

TO_DO, BEGUN, WAITING, FINISHED = "to do", "begun", "waits for others", "finished"


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
        name: Of the trial, or of the result where a study writes one for each run.
        changes: How it differs from the other runs; where a run is varied, the fields of the
            configuration that change, by dotted name.
        config: Its whole configuration; None where there is nothing to configure.
        seed: Of the run.
        trained: Whether it is trained; otherwise its encoder is measured as it starts.
        needed: Whether the study ends where it fails, as nothing can be compared without it.
        waits: Whether its configuration depends on other runs that are not measured yet.
        together: Runs of the same word go to one process, as do those of one run folder.
        state: One of the four above, or what went wrong.
    """

    name: str
    changes: Mapping[str, Any]
    config: PretrainConfig | None = None
    seed: int = 0
    trained: bool = True
    needed: bool = False
    waits: bool = False
    together: str = ""
    state: str = TO_DO

    @property
    def folder(self) -> RunFolder:
        """Where it is."""
        assert self.config is not None, f"{self.name} has no configuration"
        return RunFolder(self.config.folder())


def vary(
    config: PretrainConfig,
    plan: Mapping[str, Mapping[str, Any]],
    seeds: Iterable[int],
    folder: Path,
) -> list[StudyRun]:
    """The runs of a plan: each like a run but for its changes, with every seed.

    A plan has by the trial's name what differs, by dotted name; another "method" stands for the
    recipe that the run is compared with. They are in the folder as `<trial>-seed<N>`; those of
    other lengths there are refused.
    """
    for base in (name for name, changes in plan.items() if not changes):
        for path in sorted(folder.glob(f"{base}-seed*")):  # another seed's is compared with these
            _refuse_other_length(RunFolder(path), config)
    runs = []
    for seed in dict.fromkeys(seeds):
        for name, changes in plan.items():
            fields = {**changes, "seed": seed, "out": str(folder / f"{name}-seed{seed}")}
            base_config = config
            if fields.pop("method", config.method) != config.method:
                base_config = rival(config)
            varied = change(base_config, fields)
            varied.check_trainable()
            runs.append(StudyRun(name, changes, varied, seed, needed=not changes))
            _refuse_other_length(runs[-1].folder, varied)
    return runs


def _refuse_other_length(run: RunFolder, config: PretrainConfig) -> None:
    if run.config.is_file() and (before := read(run.config).epochs) != config.epochs:
        raise UserError(
            f"{run.path} has {counted(before, 'epoch')} and would now have {config.epochs}; give "
            f"the same epochs as before, or delete {run.path.parent} to begin anew"
        )


class RunShard(NamedTuple):
    """The part of the runs that one of several processes takes: every n-th, from the i-th."""

    first: int
    every: int

    @classmethod
    def parse(cls, text: str) -> "RunShard":
        """From "i/n"."""
        first, _, every = text.partition("/")
        if not (first.isdecimal() and every.isdecimal() and int(first) < int(every)):
            raise UserError(f"expected shard as i/n with 0 <= i < n, such as 0/2, got {text!r}")
        return cls(int(first), int(every))

    def selects(self, runs: Sequence[StudyRun]) -> list[bool]:
        """Whether each run is this process's; those in one run folder go to one process."""
        places = [
            run.together or (str(run.folder.path) if run.config is not None else run.name)
            for run in runs
        ]
        order = list(dict.fromkeys(places))
        return [order.index(place) % self.every == self.first for place in places]


ALL = RunShard(0, 1)


def carry_out(
    runs: Sequence[StudyRun],
    work: Callable[[StudyRun], object],
    state: Callable[[StudyRun], str],
    shard: RunShard,
) -> tuple[StudyRun, ...]:
    """Train and measure the runs of a shard that are to do or were begun; all with their states.

    `work` trains and measures one and leaves alone what is done; `state` says how far one is. A run
    that fails without which nothing can be compared is an error.
    """
    own = shard.selects(runs)
    outcomes = list(runs)
    to_do = [at for at, run in enumerate(runs) if own[at] and run.state in (TO_DO, BEGUN)]
    with doing("", len(to_do), "runs") as shown:
        for at in to_do:
            run = runs[at]
            try:
                with doing(run.name):
                    work(run)
                reached = state(run)
            except UserError as error:  # a loss or features that are not finite: the others go on
                if run.needed:
                    raise
                place = run.name if run.config is None else run.folder.path
                say(f"{place}: {error}", style="yellow")
                reached = str(error)
            outcomes[at] = replace(run, state=reached)
            shown.advance(1)
    return tuple(outcomes)


def failures(runs: Sequence[StudyRun]) -> tuple[str, ...]:
    """What went wrong, a line per run."""
    known = (TO_DO, BEGUN, WAITING, FINISHED)
    return tuple(
        f"{run.name}, seed {run.seed}: {run.state}" for run in runs if run.state not in known
    )


def table(title: str, runs: Sequence[StudyRun]) -> TextTable:
    """The runs and their states, for a rich console."""
    rows = TextTable(title=title)
    for column in ("run", "seed", "what differs", "state"):
        rows.add_column(column, justify="right" if column == "seed" else "left")
    for run in runs:
        differs = ", ".join(
            f"{name}: {', '.join(value) if isinstance(value, list) else value}"
            for name, value in run.changes.items()
        )
        rows.add_row(run.name, str(run.seed), differs or "nothing", run.state)
    return rows
