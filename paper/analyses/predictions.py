"""Which subspaces a task uses: what each alone says of the true class.

T tasks, K operators with a mask.
"""

from __future__ import annotations

from typing import final

import numpy as np

from mast.analyses import figure
from mast.analyses.analysis import Arrays, Details, Grid, Subject
from paper.analyses.base import PaperAnalysis, bars
from paper.analyses.scores import Score, measures_by_task

PROTOCOL = "embedding"
MORE, LESS = "more", "less"


@final
class Predictions(PaperAnalysis):
    """The probability of the true class that a probe on the embedding gives in each subspace.

    `python -m paper evaluate --protocols embedding` measures it on the test images that the probe
    classifies correctly. A subspace keeps more, or less, of what the task needs where the
    probability differs from the mean of all subspaces beyond the 95 % interval over images. A wider
    or more even subspace keeps more of every task: compare tasks before subspaces; `advice` does
    not depend on masks.

    Arrays:
        tasks: (T,) names.
        operators: (K,) names.
        accuracy: (T,) top-1 of the probe, percent.
        prediction: (T, K) mean probability of the true class, percent.
        prediction_low, prediction_high: (T, K) its 95 % interval.
        advantage: (T, K) its difference from the mean over subspaces, in percentage points.
        advantage_low, advantage_high: (T, K) the paired 95 % interval of that.

    Reference:
        MAST, Figure 6.
    """

    def lacking(self, subject: Subject) -> str | None:
        if subject.mask_DK is None:
            return "This run has no masks: its method learns none."
        if not _tasks(subject):
            return (
                "No labelled set has been probed by subspace: mast evaluate RUN --data SET "
                "--protocols embedding, where SET has train and test images with labels."
            )
        return None

    def compute(self, subject: Subject) -> Arrays:
        tasks = _tasks(subject)
        arrays: Arrays = {
            "tasks": np.array(list(tasks)),
            "operators": np.array(subject.operators),
            "accuracy": np.array([measures["top1"].value for measures in tasks.values()]),
        }
        for measure in ("prediction", "advantage"):
            score_TK3 = np.array([
                [[score.value, score.low, score.high] for name in subject.operators
                 if (score := measures[f"{measure}_{name}"])] for measures in tasks.values()
            ], np.float64)  # fmt: skip
            for at, end in enumerate(("", "_low", "_high")):
                arrays[f"{measure}{end}"] = score_TK3[..., at]
        return arrays

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """Bars of each task."""
        names = [figure.words(name) for name in arrays["operators"]]
        drawn, axes = figure.panels(len(arrays["tasks"]), 2, 0.95 + 0.22 * len(names), sharey=True)
        for task, axis in enumerate(axes):
            value_K = arrays["prediction"][task]
            low_K, high_K = arrays["prediction_low"][task], arrays["prediction_high"][task]
            error = [value_K - low_K, high_K - value_K]
            bars(axis, names, value_K, error, [*map(figure.color, range(len(names)))])
            axis.axvline(value_K.mean(), color="black", linestyle=":", linewidth=1)
            axis.set_title(f"{arrays['tasks'][task]} (accuracy {arrays['accuracy'][task]:.0f} %)")
            axis.set_xlabel("probability of the true class (%), dotted: mean")
        axes[0].invert_yaxis()
        return drawn

    def caption(self, arrays: Arrays) -> str:
        parts = []
        for task, title in enumerate(arrays["tasks"]):
            clauses = []
            for verdict, word, sign in ((MORE, "most", 1), (LESS, "least", -1)):
                fitting = [
                    at for at in range(len(arrays["operators"]))
                    if _verdict(arrays, task, at) == verdict
                ]  # fmt: skip
                if fitting:
                    at = fitting[int((sign * arrays["advantage"][task, fitting]).argmax())]
                    clauses.append(f"{word} in {figure.words(arrays['operators'][at])}")
            parts.append(f"of {title} {' and '.join(clauses) or 'alike in all'}")
        return (
            f"{_strongest(arrays)}Subspaces keep the true class's probability {'; '.join(parts)} "
            "(differences from their mean beyond 95 % intervals)."
        )

    def details(self, arrays: Arrays) -> Details:
        """Task by task, the subspace that keeps most first."""
        rows = [
            (
                str(title), figure.words(arrays["operators"][at]),
                float(arrays["prediction"][task, at]), float(arrays["advantage"][task, at]),
                float(arrays["advantage_low"][task, at]), float(arrays["advantage_high"][task, at]),
                _verdict(arrays, task, int(at)),
            )
            for task, title in enumerate(arrays["tasks"])
            for at in arrays["advantage"][task].argsort(kind="stable")[::-1]
        ]  # fmt: skip
        columns = ("task", "subspace of", "true class (%)", "from mean", "low", "high", "it keeps")
        return Details(Grid(columns, tuple(rows)))


def _tasks(subject: Subject) -> dict[str, dict[str, Score]]:
    """The measures of the probe by task, where every subspace has one."""
    required = {
        f"{kind}_{name}" for name in subject.operators for kind in ("prediction", "advantage")
    }
    return {
        task: measures
        for task, measures in measures_by_task(subject, PROTOCOL).items()
        if required <= measures.keys()
    }


def _strongest(arrays: Arrays) -> str:
    """Where a task's interval lies furthest below the mean of the other tasks' intervals."""
    if len(arrays["tasks"]) == 1:
        return ""
    beyond_TK = arrays["advantage"] - _mean_of_other_tasks(arrays["advantage"])
    clear_TK = arrays["advantage_high"] < _mean_of_other_tasks(arrays["advantage_low"])
    if not clear_TK.any():
        return ""
    least = int(np.where(clear_TK, beyond_TK, 0).argmin())
    task, at = divmod(least, beyond_TK.shape[1])
    return (
        f"Compared with other tasks, {arrays['tasks'][task]} keeps least in the subspace of "
        f"{figure.words(arrays['operators'][at])} ({beyond_TK[task, at]:+.0f} points). "
    )


def _mean_of_other_tasks(value_TK: np.ndarray) -> np.ndarray:
    mean_TK: np.ndarray = (value_TK.sum(axis=0) - value_TK) / (len(value_TK) - 1)
    return mean_TK


def _verdict(arrays: Arrays, task: int, operator: int) -> str:
    if arrays["advantage_low"][task, operator] > 0:
        return MORE
    return LESS if arrays["advantage_high"][task, operator] < 0 else "average"
