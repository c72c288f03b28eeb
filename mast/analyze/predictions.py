"""Which subspaces a task uses: what each alone says of the true class.

T tasks, K operators with a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from mast.analyze import figure
from mast.analyze.analysis import Analysis, Arrays, Details, Grid, Score, Subject

if TYPE_CHECKING:
    from mast.analyze.figure import Figure

PROTOCOL = "embedding"


@final
class Predictions(Analysis):
    """The probability of the true class that a probe on the embedding gives in each subspace.

    From what `mast evaluate --protocols embedding` measured on the test images that the probe
    classifies correctly. A task wants an operator, in the words used here, where the operator's
    subspace keeps more of the true class's probability than the subspaces do on average, beyond a
    95 % interval over images; it does not want it where it keeps less.

    Arrays:
        tasks: (T,) the set and the target.
        operators: (K,) names.
        accuracy: (T,) top-1 of the probe, percent.
        prediction: (T, K) mean probability of the true class, percent.
        prediction_low, prediction_high: (T, K) its 95 % interval.
        advantage: (T, K) its difference from the mean over subspaces, in percentage points.
        advantage_low, advantage_high: (T, K) the paired 95 % interval of that.

    Reference:
        MAST, Figure 6.
    """

    title: ClassVar[str] = "Which augmentations each task wants"

    def lacking(self, subject: Subject) -> str | None:
        """See `Analysis.lacking`."""
        if subject.mask_DK is None:
            return "This run has no masks: only MAST learns them."
        if not _tasks(subject):
            return (
                "No labelled set has been probed by subspace: mast advise RUN --data SET, where "
                "SET has train and test images with labels."
            )
        return None

    def compute(self, subject: Subject) -> Arrays:
        """See `Analysis.compute`."""
        tasks = _tasks(subject)
        arrays: Arrays = {
            "tasks": np.array([f"{name}, {target}" for name, target in tasks]),
            "operators": np.array(subject.operators),
            "accuracy": np.array([measures["top1"].value for measures in tasks.values()]),
        }
        for measure in ("prediction", "advantage"):
            table_TK = [
                [measures[f"{measure}_{name}"] for name in subject.operators]
                for measures in tasks.values()
            ]
            arrays[measure] = np.array([[score.value for score in row] for row in table_TK])
            for end in ("low", "high"):
                ends = [[getattr(score, end) for score in row] for row in table_TK]
                arrays[f"{measure}_{end}"] = np.array(ends, float)
        return arrays

    @figure.styled
    def draw(self, arrays: Arrays) -> Figure:
        """See `Analysis.draw`: bars of each task."""
        names = [figure.words(name) for name in arrays["operators"]]
        drawn, axes = figure.panels(len(arrays["tasks"]), 2, 0.95 + 0.22 * len(names), sharey=True)
        for task, axis in enumerate(axes):
            value_K = arrays["prediction"][task]
            low_K, high_K = arrays["prediction_low"][task], arrays["prediction_high"][task]
            for at, name in enumerate(names):
                (bar,) = axis.barh(at, value_K[at], color=figure.color(at), height=0.7)
                said = _verdict(arrays, task, at)
                figure.tip(
                    bar, f"{name}: {value_K[at]:.1f} % [{low_K[at]:.1f}, {high_K[at]:.1f}], {said}"
                )
            axis.errorbar(
                value_K, range(len(names)), xerr=[value_K - low_K, high_K - value_K], fmt="none",
                ecolor="black", elinewidth=1, capsize=2,
            )  # fmt: skip
            axis.axvline(value_K.mean(), color="black", linestyle=":", linewidth=1)
            axis.set_yticks(range(len(names)), names)
            axis.set_title(f"{arrays['tasks'][task]} (accuracy {arrays['accuracy'][task]:.0f} %)")
            axis.set_xlabel("probability of the true class (%), dotted: mean")
        axes[0].invert_yaxis()
        return drawn

    def caption(self, arrays: Arrays) -> str:
        """See `Analysis.caption`."""
        parts = []
        for task, title in enumerate(arrays["tasks"]):
            said: dict[str, list[str]] = {"wants": [], "does not want": []}
            for at in arrays["advantage"][task].argsort()[::-1]:
                verdict = _verdict(arrays, task, int(at))
                if verdict in said:
                    said[verdict].append(figure.words(arrays["operators"][at]))
            told = [f"{verdict} {', '.join(which)}" for verdict, which in said.items() if which]
            parts.append(f"{title} {' and '.join(told) or 'has no preference'}")
        return (
            f"{_most_wanted(arrays)}By the probability that each operator's subspace alone leaves "
            "the true class: "
            f"{'; '.join(parts)}. The others are within the interval of the mean."
        )

    def details(self, arrays: Arrays) -> Details:
        """See `Analysis.details`: the advice, task by task, best operator first."""
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
        columns = ("task", "operator", "true class (%)", "from mean", "low", "high", "the task")
        return Details(Grid(columns, tuple(rows)))


def _tasks(subject: Subject) -> dict[tuple[str, str], dict[str, Score]]:
    """The measures of the probe by set and target, where every subspace has one."""
    found: dict[tuple[str, str], dict[str, Score]] = {}
    for score in subject.scores:
        if score.protocol == PROTOCOL:
            found.setdefault((score.set_name, score.target), {})[score.measure] = score
    wanted = {
        f"{kind}_{name}" for name in subject.operators for kind in ("prediction", "advantage")
    }
    return {task: measures for task, measures in found.items() if wanted <= measures.keys()}


def _most_wanted(arrays: Arrays) -> str:
    """Over several tasks, the operator that most want and the one that most do not."""
    wanted_K = (arrays["advantage_low"] > 0).sum(axis=0)
    unwanted_K = (arrays["advantage_high"] < 0).sum(axis=0)
    count = len(arrays["tasks"])
    if count == 1 or not wanted_K.any() or not unwanted_K.any():
        return ""
    most, least = (
        figure.words(arrays["operators"][counts_K.argmax()]) for counts_K in (wanted_K, unwanted_K)
    )
    return (
        f"{wanted_K.max()} of {count} tasks want {most}, and {unwanted_K.max()} do not want "
        f"{least}. "
    )


def _verdict(arrays: Arrays, task: int, at: int) -> str:
    if arrays["advantage_low"][task, at] > 0:
        return "wants"
    return "does not want" if arrays["advantage_high"][task, at] < 0 else "is indifferent to"
