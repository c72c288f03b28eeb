"""Which operators each task needs: the accuracy that training without one costs.

S seeds, T tasks, K operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, final

import numpy as np

from mast.analyses import figure
from mast.analyses.analysis import Arrays, Details, Grid, Subject
from mast.core.errors import UserError
from paper.analyses.base import bars, with_margin
from paper.studies.study import BASE, Study, collect, over_seeds

NEEDS, BETTER = "needs", "does better without"
COUNTED = 0.05  # percentage points: changes printed as 0.0 do not count


@final
class LeaveOneOut(Study):
    """The change of top-1 when one operator is left out of training, for any method.

    Every run has the encoder, objective, optimizer, seed, data and number of epochs of the base,
    and so sees as many images; only the operators of its views differ.

    Arrays:
        operators: (K,) names.
        tasks: (T,) set and target.
        seeds: (S,) of the runs.
        base: (T,) mean top-1 with all operators, percent.
        change: (T, K) mean over seeds of top-1 without the operator less that of the base of the
            same seed, in percentage points; negative where the task needs the operator, NaN where
            a run is not finished.
        change_low, change_high: (T, K) its 95 % interval over seeds (Student's t); NaN with fewer
            than two seeds, and where these are alike.
        change_by_seed: (S, T, K) of each seed.
        finished, planned: () numbers of runs.

    Reference:
        MAST, Figure 1.
    """

    name: ClassVar[str] = "leave_one_out"

    def plan(self, subject: Subject) -> dict[str, dict[str, Any]]:
        operators = subject.trained_with
        if len(operators) < 2:
            raise UserError("This run has one operator: without it there is nothing to learn from.")
        without = {
            f"without-{left_out}": {"operators": [name for name in operators if name != left_out]}
            for left_out in operators
        }
        return {BASE: {}, **without}

    def compute(self, subject: Subject) -> Arrays:
        measured = collect(self.trials, list(self.plan(subject)))
        accuracy_STN = measured.pop("accuracy")
        change_STK = accuracy_STN[:, :, 1:] - accuracy_STN[:, :, :1]
        change_TK, margin_TK = over_seeds(change_STK)
        return {
            "operators": np.array(subject.trained_with),
            **measured,
            "base": over_seeds(accuracy_STN[:, :, 0])[0],
            "change": change_TK,
            "change_low": change_TK - margin_TK,
            "change_high": change_TK + margin_TK,
            "change_by_seed": change_STK,
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """Bars of each task, a dot for each seed."""
        names = [figure.words(name) for name in arrays["operators"]]
        drawn, axes = figure.panels(len(arrays["tasks"]), 2, 0.8 + 0.24 * len(names), sharey=True)
        for task, axis in enumerate(axes):
            change_K, by_seed_SK = arrays["change"][task], arrays["change_by_seed"][:, task]
            inks = [figure.color(int(change > 0)) for change in change_K]
            bars(axis, names, change_K, _margin(arrays)[task], inks)
            at_SK = np.broadcast_to(range(len(names)), by_seed_SK.shape)
            axis.plot(by_seed_SK.ravel(), at_SK.ravel(), ".", color="black", markersize=4)
            axis.axvline(0, color="black", linewidth=1)
            axis.set_title(f"{arrays['tasks'][task]} (base {arrays['base'][task]:.1f} %)")
            axis.set_xlabel("change of top-1 without it (points)")
        axes[0].invert_yaxis()
        return drawn

    def finding(self, arrays: Arrays) -> str:
        """What matters most to each task, either way."""
        parts = []
        for task, title in enumerate(arrays["tasks"]):
            verdicts = [
                f"{verdict} {figure.words(arrays['operators'][at])} ({_change(arrays, task, at)})"
                for verdict, at in _extremes(arrays, task)
            ]
            parts.append(f"{title} {' and '.join(verdicts) or 'needs no single operator'}")
        return f"{'; '.join(parts)} (change of top-1 in points without it)."

    def caption(self, arrays: Arrays) -> str:
        text = self.headline(arrays)
        compared = int(np.isfinite(arrays["change_low"]).sum())
        if not any(np.isfinite(_margin(arrays)[task, at]) for task in range(len(arrays["tasks"]))
                   for _, at in _extremes(arrays, task)):  # fmt: skip
            return text
        return (
            f"{text} Margins are 95 % intervals over seeds; chance alone exceeds "
            f"{0.05 * compared:.1f} of {compared} of them."
        )

    def details(self, arrays: Arrays) -> Details:
        """The most needed operator of a task first."""
        rows: list[tuple[str | float, ...]] = [
            (
                str(title), figure.words(arrays["operators"][at]),
                *(float(arrays[key][task, at]) for key in ("change", "change_low", "change_high")),
                _verdict(arrays, task, int(at)),
            )
            for task, title in enumerate(arrays["tasks"])
            for at in arrays["change"][task].argsort(kind="stable")
        ]  # fmt: skip
        columns = ("task", "without", "change (points)", "low", "high", "the task")
        return Details(Grid(columns, tuple(rows)))


def _margin(arrays: Arrays) -> np.ndarray:
    return np.asarray(arrays["change_high"] - arrays["change"])


def _change(arrays: Arrays, task: int, at: int) -> str:
    return with_margin(arrays["change"][task, at], _margin(arrays)[task, at], "+")


def _extremes(arrays: Arrays, task: int) -> Iterator[tuple[str, int]]:
    """Of the operators that a task needs the one it needs most, and likewise the other way."""
    change_K = arrays["change"][task]
    for verdict, sign in ((NEEDS, 1), (BETTER, -1)):
        fitting = [at for at in range(len(change_K)) if _verdict(arrays, task, at) == verdict]
        if fitting:
            yield verdict, min(fitting, key=lambda at: sign * change_K[at])


def _verdict(arrays: Arrays, task: int, at: int) -> str:
    """Beyond the interval over seeds; beyond rounding where there is one seed."""
    change, margin = arrays["change"][task, at], _margin(arrays)[task, at]
    if abs(change) < max(COUNTED, np.nan_to_num(margin)):
        return "is indifferent to it"
    if not np.isfinite(change) or (len(arrays["seeds"]) > 1 and not np.isfinite(margin)):
        return "is not known yet"
    return NEEDS if change < 0 else BETTER
