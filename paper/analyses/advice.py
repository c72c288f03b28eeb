"""Which augmentations a task can afford: what it loses where one acts.

T tasks, O operators.
"""

from __future__ import annotations

from typing import final

import numpy as np

from mast.analyses import figure
from mast.analyses.analysis import Arrays, Details, Grid, Subject
from paper.analyses.base import PaperAnalysis
from paper.analyses.scores import measures_by_task

PROTOCOL = "retained"
MATTERS = -2.0  # percentage points: a smaller loss may come from the change of the pixels alone

UNKNOWN = "unknown: at chance"
NEEDS = "needs what it destroys"
AFFORDS = "can afford it"
OPEN = "undecided"
UNMEASURED = "not measured"


@final
class Advice(PaperAnalysis):
    """The accuracy that a task loses where an operator acts on half of its images.

    The protocol `retained` measures it with a probe that learns from changed images
    too, so the loss is what the operator hides of the class. A task needs what an operator destroys
    where the 95 % interval over images lies below a loss of 2 points, and can afford the operator
    where it lies above. A task that the encoder knows no better than chance gets no verdict.

    Arrays:
        tasks: (T,) names.
        operators: (O,) names of what acted on the images.
        accuracy: (T,) linear top-1 on unchanged images, percent.
        chance: (T,) share of the most frequent class, percent.
        known: (T,) whether the accuracy is above chance, beyond its interval.
        change: (T, O) accuracy where the operator acts minus accuracy where it does not, in
            percentage points; NaN where it was not measured.
        change_low, change_high: (T, O) its paired 95 % interval.
    """

    def lacking(self, subject: Subject) -> str | None:
        if measures_by_task(subject, PROTOCOL):
            return None
        return (
            "No labelled set was probed where operators act: "
            "python -m paper advise RUN --data SET, where SET has train and test images with "
            "labels."
        )

    def compute(self, subject: Subject) -> Arrays:
        tasks = measures_by_task(subject, PROTOCOL)
        measured = dict.fromkeys(name for measures in tasks.values() for name in measures)
        names = [name[len("change_") :] for name in measured if name.startswith("change_")]
        change_TO3 = np.full((len(tasks), len(names), 3), np.nan)
        for row, measures in enumerate(tasks.values()):
            for column, name in enumerate(names):
                if score := measures.get(f"change_{name}"):
                    change_TO3[row, column] = score.value, score.low, score.high
        top1 = [measures["top1"] for measures in tasks.values()]
        chance_T = np.array([measures["chance"].value for measures in tasks.values()])
        return {
            "tasks": np.array(list(tasks)),
            "operators": np.array(names, str),
            "accuracy": np.array([score.value for score in top1]),
            "chance": chance_T,
            "known": np.array([score.low for score in top1], float) > chance_T,
            "change": change_TO3[..., 0],
            "change_low": change_TO3[..., 1],
            "change_high": change_TO3[..., 2],
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """The loss of each task by operator; gray where nothing is known."""
        tasks, operators = arrays["tasks"], [figure.words(name) for name in arrays["operators"]]
        drawn = figure.empty(1.9 + 0.34 * len(tasks))
        axis = drawn.subplots()
        loss_TO = np.where(arrays["known"][:, None], -arrays["change"], np.nan)
        worst = max(10.0, float(np.nanmax(loss_TO)) if np.isfinite(loss_TO).any() else 0.0)
        axis.set_facecolor("#dddddd")
        image = axis.imshow(
            np.clip(loss_TO, 0, worst), cmap="cividis_r", vmin=0, vmax=worst, aspect="auto"
        )
        rows, columns = range(len(tasks)), range(len(operators))
        texts = [[f"{c:+.0f}" if np.isfinite(c) else "" for c in c_O] for c_O in arrays["change"]]
        light_TO = 1 - np.nan_to_num(np.clip(loss_TO / worst, 0, 1))
        figure.write_cells(axis, light_TO, texts)
        axis.set_yticks(rows, [f"{tasks[row]} ({arrays['accuracy'][row]:.0f} %)" for row in rows])
        axis.set_xticks(columns, operators, rotation=35, ha="right", rotation_mode="anchor")
        axis.grid(visible=False)
        drawn.colorbar(image, ax=axis, label="points of accuracy lost")
        return drawn

    def caption(self, arrays: Arrays) -> str:
        needing, unharmed, unknown = [], [], []
        for row, task in enumerate(arrays["tasks"]):
            needs = [
                f"{figure.words(arrays['operators'][at])} ({arrays['change'][row, at]:+.0f})"
                for at in arrays["change"][row].argsort(kind="stable")
                if verdict(arrays, row, int(at)) == NEEDS
            ]
            if not arrays["known"][row]:
                unknown.append(f"{task} ({arrays['accuracy'][row]:.0f} %)")
            elif needs:
                needing.append(f"{task} needs what is destroyed by {', '.join(needs)}")
            else:
                unharmed.append(str(task))
        sentences = []
        if needing:
            sentences.append(
                f"{'; '.join(needing)}. In brackets: the change of accuracy in points where the "
                "operator acts on half of the images (95 % interval beyond -2)."
            )
        if unharmed:
            sentences.append(f"No operator is known to harm {', '.join(unharmed)}.")
        if unknown:
            sentences.append(f"No better than chance, so no verdict: {', '.join(unknown)}.")
        return " ".join(sentences)

    def details(self, arrays: Arrays) -> Details:
        """By task, first what was not measured, the greatest loss last."""
        rows = [
            (
                str(task), figure.words(arrays["operators"][at]), float(arrays["change"][row, at]),
                float(arrays["change_low"][row, at]), float(arrays["change_high"][row, at]),
                verdict(arrays, row, int(at)),
            )
            for row, task in enumerate(arrays["tasks"])
            for at in np.nan_to_num(-arrays["change"][row], nan=-np.inf).argsort(kind="stable")
        ]  # fmt: skip
        columns = ("task", "operator", "change (points)", "low", "high", "the task")
        return Details(Grid(columns, tuple(rows)))


def verdict(arrays: Arrays, task: int, operator: int) -> str:
    """What the arrays of `Advice` say of a task and an operator."""
    low, high = arrays["change_low"][task, operator], arrays["change_high"][task, operator]
    if not np.isfinite(arrays["change"][task, operator]):
        return UNMEASURED
    if not arrays["known"][task]:
        return UNKNOWN
    if high < MATTERS:
        return NEEDS
    return AFFORDS if low > MATTERS else OPEN
