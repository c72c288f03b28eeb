"""Studies: variants of a run that are trained and measured to answer a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from mast.commands.analyze import Insight, Insights, insights_of
from mast.commands.common import command
from mast.commands.pretrain import pretrain
from mast.core.arguments import as_list
from mast.core.errors import UserError, unknown
from mast.core.kinds import Device
from mast.core.run import RunFolder
from mast.core.table import Shown, TextTable

if TYPE_CHECKING:
    from paper.studies.engine import StudyRun


@dataclass(frozen=True, repr=False)
class StudyResult(Shown):
    """What a study did."""

    title: str
    runs: tuple[StudyRun, ...]  # all of its plan
    insight: Insight | None = None  # the answer, from the runs that are finished

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong, a line per run."""
        from paper.studies.engine import failures

        return failures(self.runs)

    def shown(self) -> Iterator[str | Text | TextTable]:
        """The plan and its state, and the answer."""
        from paper.studies.engine import table

        yield table(self.title, self.runs)
        if self.insight is not None:
            yield from Insights([self.insight]).shown()


@command
def study(
    name: str,
    run: str | Path,
    data: str | Path,
    seeds: Sequence[int] | int = 0,
    protocols: Sequence[str] | str = "linear",
    epochs: int | None = None,
    device: Device = "auto",
    threads: int | None = None,
    shard: str = "0/1",
    dry: bool = False,
) -> StudyResult:
    """Retrain variants of a run and measure them.

    Studies are leave_one_out and epochs. Except for what the study varies, all variants share the
    run's encoder, data, batch size, epochs and optimizer (except VICReg's, beside contrastive
    runs), and so see as many images; the run itself is retrained as `base` with each seed. Runs are
    in `studies/<trial>-seed<k>` of the run folder; studies reuse runs that they have in common.

    The same command continues an interrupted run and skips finished ones.

    Args:
        name: leave_one_out or epochs.
        run: The run folder to study.
        data: A labeled dataset with `train` and `test`, on which every run is evaluated.
        seeds: Seeds of the runs; an interval needs two or more.
        protocols: Protocols that measure the variants, as in `mast evaluate`.
        epochs: Epochs of all variants, to make them cheaper; those of the run by default.
        shard: `i/n`: every n-th run from the i-th, to split the runs over n processes.
        dry: Only list the runs.

    Returns:
        The runs and their states; and the answer, which is also in `analysis/` of the run. Where a
        run fails, its state says so; a base that fails is an error.
    """
    from mast.config import change, configuration_of
    from mast.core.launch import check_threads, find_device
    from mast.evaluation.protocols.run import protocol_class
    from mast.runs.subject import subject_of
    from paper.measured import labelled, measure_missing, unmeasured
    from paper.studies import STUDIES
    from paper.studies.engine import BEGUN, FINISHED, TO_DO, RunShard, carry_out, vary
    from paper.studies.study import FOR_OBJECTS, WITHOUT_TOP1, trials_in

    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    check_threads(threads)
    chosen = seeds_of(seeds)
    title, question, folder = STUDIES[name].title, STUDIES[name].kind(), RunFolder(run)
    measures = as_list(protocols)
    for protocol in measures:
        protocol_class(protocol)
    if of_objects := [name for name in measures if name in FOR_OBJECTS]:
        raise UserError(f"a study is of images with one class: leave {', '.join(of_objects)} out")
    if not {*measures} - WITHOUT_TOP1:
        raise UserError(f"a study compares top-1 accuracy, which {', '.join(measures)} lacks")
    part, studies = RunShard.parse(shard), folder.path / "studies"
    config = configuration_of(folder.require())
    if epochs is not None:
        config = change(config, {"epochs": epochs})
    target_set = labelled(str(data), folder)
    subject = subject_of(folder, None, 0, find_device("cpu"), 0)
    plan = question.plan(replace(subject, epochs=config.epochs))
    operational = {"device": device, "threads": threads}
    runs = vary(change(config, operational), plan, chosen, studies)

    def state(run: StudyRun) -> str:
        if not run.folder.config.is_file():
            return TO_DO
        missing = unmeasured(run.folder, target_set, run.seed, measures)
        return FINISHED if run.folder.encoder.is_file() and not missing else BEGUN

    def work(run: StudyRun) -> None:
        assert run.config is not None
        pretrain(run.config)
        measure_missing(run.folder, target_set, run.config.device, run.seed, measures)

    runs = [replace(run, state=state(run)) for run in runs]
    if dry:
        return StudyResult(title, tuple(runs))
    finished = carry_out(runs, work, state, part)
    done = replace(question, trials=tuple(trials_in(studies)))
    insights = insights_of(subject, {name: (title, done)}, folder.analysis)
    return StudyResult(title, finished, insights[0])


def seeds_of(seeds: Sequence[int] | int) -> list[int]:
    """Seeds of 0 or more, each once."""
    chosen = list(dict.fromkeys(as_list(seeds)))
    if not chosen or min(chosen) < 0:
        raise UserError(f"seeds must be one or more numbers of 0 or more, got {seeds}")
    return chosen
