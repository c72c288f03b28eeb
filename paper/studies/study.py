"""What a study of a run is, and what such studies share: accuracies of runs by seed and task.

S seeds, T tasks, N runs of a plan.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from mast.analyses.analysis import (
    Analysis,
    Arrays,
    Subject,
    mean_and_margin,
)
from mast.config import read
from mast.core.errors import UserError
from mast.core.run import RunFolder
from paper.analyses.scores import Score, scores_of, task_names

BASE = "base"  # the run that is like the studied one, trained again so that budgets are equal
MEASURE = "top1"
WITHOUT_TOP1, FOR_OBJECTS = {"fewshot", "retrieval"}, {"svm", "detection", "segmentation"}


@dataclass(frozen=True)
class Trial:
    """A finished run of a `Study`: its name in the plan, seed, scores and configured epochs."""

    name: str
    seed: int
    scores: tuple[Score, ...]
    epochs: int = 0


@dataclass(frozen=True)
class Study(Analysis):
    """A question to a run that is answered by retraining variants of it, compared by top-1."""

    name: ClassVar[str]
    command: ClassVar[str] = "python -m paper study {name} {run} --data SET"
    trials: tuple[Trial, ...] = ()  # those of the run that are finished

    @abstractmethod
    def plan(self, subject: Subject) -> dict[str, dict[str, Any]]:
        """By the trial's name the fields that differ from the run's, by dotted name.

        The same name is the same run in every study. A run that cannot be varied so is an error.
        """

    @abstractmethod
    def finding(self, arrays: Arrays) -> str:
        """What the runs show, in a sentence."""

    def lacking(self, subject: Subject) -> str | None:
        """A study needs a seed with the base and another run."""
        try:
            names = list(self.plan(subject))
        except UserError as error:
            return str(error)
        accuracy_STN = collect(self.trials, names)["accuracy"]
        finished = {(trial.seed, trial.name) for trial in self.trials if trial.name in names}
        if not any(name != BASE and (seed, BASE) in finished for seed, name in finished):
            return f"Not run yet: python -m paper study {self.name} RUN --data SET."
        if accuracy_STN.size == 0:
            return "Its runs have no top-1 accuracy: measure them on a set with classes."
        return None

    @final
    def headline(self, arrays: Arrays) -> str:
        """What it found, how sure it is, how much of it is done."""
        finished, planned = int(arrays["finished"]), int(arrays["planned"])
        text = self.finding(arrays)
        if len(arrays["seeds"]) == 1:
            text += " With one seed, a difference may be chance."
        if finished < planned:
            text += f" {finished} of {planned} runs are finished."
        return text

    def caption(self, arrays: Arrays) -> str:
        return self.headline(arrays)


def over_seeds(value_SX: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`mean_and_margin` of seeds; no margin if all are equal, as with few test images."""
    mean_X, margin_X = mean_and_margin(value_SX)
    return mean_X, np.where(margin_X > 1e-9, margin_X, np.nan)


def collect(trials: Sequence[Trial], names: Sequence[str]) -> Arrays:
    """What was measured of the N runs of a plan: names of tasks, with the protocol where there are
    several; seeds, the base alone being perhaps another study's; accuracy (S, T, N), top-1 in
    percent, NaN where it is not known; the numbers of runs of these seeds, finished and planned.
    """
    trials = [trial for trial in trials if trial.name in names]
    seeds = sorted({trial.seed for trial in trials if trial.name != BASE})
    trials = [trial for trial in trials if trial.seed in seeds]
    measured = [
        (trial, (score.protocol, score.set_name, score.target), score.value)
        for trial in trials
        for score in trial.scores
        if score.measure == MEASURE
    ]
    tasks = list(dict.fromkeys(task for _, task, _ in measured))
    accuracy_STN = np.full((len(seeds), len(tasks), len(names)), np.nan)
    for trial, task, value in measured:
        at = seeds.index(trial.seed), tasks.index(task), names.index(trial.name)
        accuracy_STN[at] = value
    names_of = task_names((name, target) for _, name, target in tasks)
    several = len({protocol for protocol, *_ in tasks}) > 1
    labels = [
        f"{names_of[name, target]} ({protocol})" if several else names_of[name, target]
        for protocol, name, target in tasks
    ]
    return {
        "tasks": np.array(labels, str),
        "seeds": np.array(seeds, int),
        "accuracy": accuracy_STN,
        "finished": np.array(len({(trial.seed, trial.name) for trial in trials})),
        "planned": np.array(len(seeds) * len(names)),
    }


def trials_in(studies: Path) -> Iterator[Trial]:
    """The finished and measured runs of a folder, `<trial>-seed<N>`."""
    for path in sorted(studies.glob("*-seed*")):
        run = RunFolder(path)
        name, _, seed = path.name.rpartition("-seed")
        if not seed.isdecimal():  # a copy that somebody made
            continue
        if run.encoder.is_file() and any(run.evaluations.glob("*.json")):
            yield Trial(name, int(seed), tuple(scores_of(run)), read(run.config).epochs)
