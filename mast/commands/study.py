"""Studies: runs that are trained and measured to answer a question."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.text import Text

from mast.analyses import Grid
from mast.commands.advise import advise
from mast.commands.analyze import Insight, analyze
from mast.commands.evaluate import evaluate, measure_missing
from mast.commands.outliers import outliers
from mast.commands.pretrain import pretrain
from mast.config import change, configuration_of
from mast.core.arguments import as_list
from mast.core.entry import entry
from mast.core.errors import UserError, one_line, unknown
from mast.core.files import out_folder
from mast.core.launch import Device, check_threads, find_device
from mast.core.run import RunFolder
from mast.core.table import FittedTable, Shown
from mast.protocols.run import protocol_class
from mast.runs.scores import LabelledSet, labelled, unmeasured
from mast.runs.subject import subject_of
from mast.studies import QUESTIONS, STUDIES, Study, Verbs, Workplace
from mast.studies.engine import (
    BEGUN,
    FINISHED,
    TO_DO,
    Shard,
    StudyRun,
    carry_out,
    failures,
    table,
    vary,
)
from mast.studies.experiment import perform


@dataclass(frozen=True, repr=False)
class StudyResult(Shown):
    """What a study did.

    Attributes:
        title: Of the study.
        runs: All of its plan.
        insight: The answer of a study of a run, from the runs that are finished.
        results: The results of an experiment, of the runs that are finished.
        files: Where they are stored.
    """

    title: str
    runs: tuple[StudyRun, ...]
    insight: Insight | None = None
    results: Grid | None = None
    files: tuple[Path, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong, a line a run."""
        return failures(self.runs)

    def table(self) -> FittedTable:
        """The plan and its state, for a rich console."""
        return table(self.title, self.runs)

    def results_table(self) -> FittedTable | None:
        """The results of an experiment, for a rich console; None without any."""
        return None if self.results is None else fitted(self.results)

    def shown(self) -> Iterator[str | Text | FittedTable]:
        """Both tables, the answer, and where the results are."""
        yield self.table()
        if (results := self.results_table()) is not None:
            yield results
        if self.insight is not None:
            yield from self.insight.shown()
        for folder in dict.fromkeys(file.parent for file in self.files):
            yield one_line(f"results in {folder}")


@entry(draws=True)
def study(
    name: str,
    run: str | Path | None = None,
    data: str | Path | None = None,
    seeds: Sequence[int] | int | None = None,
    protocols: Sequence[str] | str | None = None,
    epochs: int | None = None,
    out: str | Path | None = None,
    only: Sequence[str] | str = (),
    device: Device = "auto",
    threads: int | None = None,
    shard: str = "0/1",
    dry: bool = False,
) -> StudyResult:
    """Train runs that answer a question, and measure them.

    Studies of a run (leave_one_out, growth, sensitivity, epochs) retrain variants of it. All have
    its encoder, optimizer, data, batch size and number of epochs, and so see as many images, but
    for what the study varies; the run itself is trained again as `base`, with each seed. They are
    in `studies/<trial>-seed<k>` of the run folder; studies share the runs that they have in common.

    Experiments (does_it_help, forgetting, flowers, protocols, detectors, advice_check,
    uncertainty_check, findings) start from recipes: run folders and result files go to `out`.

    The same command continues a run that was killed and leaves finished ones alone.

    Args:
        name: Of the study.
        run: The run folder that is studied; none for an experiment.
        data: A labelled set with `train` and `test`, on which every run is measured; for an
            experiment the folder of the sets that it needs.
        seeds: Of the runs, 0 if not given; an interval needs two or more.
        protocols: By which the variants of a run are measured, as in `mast evaluate`; linear if
            not given.
        epochs: Of the base, for cheaper variants of a run; those of the run if not given.
        out: Folder of an experiment.
        only: Patterns of names of an experiment's runs, such as `validation/learned_*`; all of
            them if not given.
        device: auto, cpu or cuda.
        threads: CPU threads; PyTorch's choice if not given.
        shard: `i/n`: only every n-th of the runs, from the i-th, so that n processes share them.
        dry: Only say what would be run.

    Returns:
        The runs and their states; and the answer, which is also in `analysis/` of the run, or in
        the result files of an experiment.

    Raises:
        UserError: An unknown study, no such run or set, an argument that is missing or is for
            studies of the other kind, or a run that cannot be varied so; a base that cannot be
            trained or measured. Where another run fails, its state says so.
    """
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    title, kind = STUDIES[name].title, STUDIES[name].kind()
    if data is None:
        raise UserError(f"{name} needs images: give data")
    check_threads(threads)
    chosen = seeds_of(0 if seeds is None else seeds)
    if isinstance(kind, Study):
        _refuse(name, "a run", out=out, only=only or None)
        if run is None:
            raise UserError(f"{name} studies a run: give run, a run folder")
        measures = ["linear"] if protocols is None else as_list(protocols)
        for protocol in measures:
            protocol_class(protocol)
        return _study_run(
            title, kind, RunFolder(run), str(data), chosen, measures, epochs,
            {"device": device, "devices": 1, "nodes": 1, "threads": threads}, Shard.parse(shard),
            dry,
        )  # fmt: skip
    _refuse(name, "recipes", run=run, protocols=protocols, epochs=epochs)
    if not kind.seeded:
        _refuse(name, "runs of seed 0", seeds=seeds)
    workplace = workplace_of(name, data, out, device, threads)
    runs, measured = perform(kind, workplace, chosen, as_list(only), Shard.parse(shard), dry)
    files = tuple(file for file in kind.files(runs, workplace.out) if file.is_file())
    return StudyResult(title, runs, None, kind.table(measured) if measured else None, files)


def fitted(grid: Grid, title: str | None = None) -> FittedTable:
    """A grid for a rich console."""
    rendered = FittedTable(1, title=title)
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
    """What an experiment works with; its arguments are those of `study`.

    Raises:
        UserError: A folder is not given.
    """
    if data is None:
        raise UserError(f"{name} needs images: give data, a folder of sets")
    if out is None:
        raise UserError(f"{name} makes runs and result files: give out, a folder for them")
    check_threads(threads)
    verbs = Verbs(pretrain, evaluate, analyze, advise, outliers, study)
    return Workplace(Path(data), out_folder(out), verbs, QUESTIONS, device, threads)


def seeds_of(seeds: Sequence[int] | int) -> list[int]:
    """Seeds that were given, each once.

    Raises:
        UserError: None, or a negative one.
    """
    chosen = list(dict.fromkeys(as_list(seeds)))
    if not chosen or min(chosen) < 0:
        raise UserError(f"seeds must be one or more numbers of 0 or more, got {seeds}")
    return chosen


def _refuse(name: str, start: str, **arguments: Any) -> None:
    """Refuse arguments that a study does not use."""
    for argument, value in arguments.items():
        if value is not None:
            raise UserError(f"{name} starts from {start}: leave {argument} out")


# ------------------------------------------------------------------------------ studies of a run


def _study_run(
    title: str,
    question: Study,
    folder: RunFolder,
    data: str,
    seeds: Sequence[int],
    protocols: Sequence[str],
    epochs: int | None,
    operational: dict[str, Any],
    shard: Shard,
    dry: bool,
) -> StudyResult:
    config = configuration_of(folder.require())
    if epochs is not None:
        config = change(config, {"epochs": epochs})
    target_set = labelled(data, folder)
    subject = subject_of(folder, None, 0, find_device("cpu"), 0)
    plan = question.plan(replace(subject, epochs=config.epochs, trials=()))
    runs = vary(change(config, operational), plan, seeds, folder.studies)

    def state(run: StudyRun) -> str:
        return _state(run, target_set, protocols)

    def work(run: StudyRun) -> None:
        assert run.config is not None
        pretrain(run.config)
        measure_missing(run.folder, target_set, run.config.device, run.seed, protocols)

    runs = [replace(run, state=state(run)) for run in runs]
    if dry:
        return StudyResult(title, tuple(runs))
    finished = carry_out(runs, work, state, shard)
    insight = analyze(folder.path, analyses=question.name, device=operational["device"])[0]
    return StudyResult(title, finished, insight)


def _state(run: StudyRun, target_set: LabelledSet, protocols: Sequence[str]) -> str:
    if not run.folder.config.is_file():
        return TO_DO
    missing = unmeasured(run.folder, target_set, run.seed, protocols)
    return FINISHED if run.folder.encoder.is_file() and not missing else BEGUN
