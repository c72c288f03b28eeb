"""How a run went: every term, the masks, the embedding, the learning rate, over its epochs.

T logged steps.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np

from mast.analyses import figure
from mast.analyses.analysis import Analysis, Arrays, Subject

PANELS = {  # heading: unit, beginnings of the metrics' names
    "Loss and its terms": ("weighted", ("loss", "term/")),
    "Masks": ("share, or cosine", ("stat/mask_",)),
    "Embedding": ("", ("stat/embedding_std", "stat/unmasked_distance", "stat/spread")),
    "Predicted uncertainty": ("", ("stat/uncertainty",)),
    "Operators predicted": ("share of variance", ("stat/predicted_by_",)),
    "kNN on its own images": ("%", ("online/knn",)),
    "Effective rank": ("dimensions", ("online/effective_rank",)),
    "Learning rate": ("", ("lr",)),
}


@final
class Curves(Analysis):
    """Everything that was logged.

    Arrays:
        epoch: (T,) of every line of the log.
        stages: (G,) names of what begins in the middle of the run.
        stage_epochs: (G,) when.
        <metric>: (T,) one array a metric, such as "loss", "term/variance", "stat/mask_mean",
            "online/knn" (percent) or "lr"; NaN where a line does not have it.
    """

    def lacking(self, subject: Subject) -> str | None:
        return None if any("loss" in line for line in subject.log) else "Nothing was logged."

    def compute(self, subject: Subject) -> Arrays:
        lines = [line for line in subject.log if "epoch" in line]
        others = {"step", "epoch", "stages", "stage_epochs", "file", "allow_pickle"}  # NumPy's two
        names = sorted({name for line in lines for name in line} - others)
        return {
            "epoch": np.array([line["epoch"] for line in lines], float),
            "stages": np.array([name for name, _ in subject.stages], str),
            "stage_epochs": np.array([epoch for _, epoch in subject.stages], float),
            **{
                name: np.array([v if isinstance(v := line.get(name), int | float) else math.nan
                                for line in lines], float)
                for name in names
            },
        }  # fmt: skip

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """A panel for each group of metrics that was logged."""
        groups = {
            heading: (unit, names)
            for heading, (unit, beginnings) in PANELS.items()
            if (names := sorted(name for name in arrays if name.startswith(beginnings)))
        }
        drawn, axes = figure.panels(len(groups), 2, 2.4)
        for axis, (heading, (unit, names)) in zip(axes, groups.items(), strict=True):
            for at, name in enumerate(names):
                known = np.isfinite(arrays[name])
                if not known.any():
                    continue
                axis.plot(
                    arrays["epoch"][known], arrays[name][known], figure.line_style(at),
                    color=figure.color(at), label=figure.words(name.rpartition("/")[2]),
                    marker="o" if known.sum() < 12 else None, markersize=3,
                )  # fmt: skip
            for epoch in arrays["stage_epochs"]:
                axis.axvline(epoch, color=figure.GRAY, linestyle="--", linewidth=1)
            axis.set_title(heading)
            axis.set_ylabel(unit)
            axis.set_xlabel("epoch")
            axis.xaxis.get_major_locator().set_params(integer=True)
            if len(names) > 1:
                figure.legend_below(axis)
        return drawn

    def caption(self, arrays: Arrays) -> str:
        loss_T = arrays["loss"][np.isfinite(arrays["loss"])]
        if len(loss_T) == 0:
            return "The loss was never finite: the run diverged."
        if len(loss_T) == 1:
            parts = [f"One step was logged, with a loss of {loss_T[0]:.2f}"]
        else:
            parts = [f"The loss went from {loss_T[0]:.2f} to {loss_T[-1]:.2f}"]
        for name, text in (
            ("online/knn", "kNN accuracy on its own images ended at {:.1f} %"),
            ("online/effective_rank", "the representation ended with {:.0f} effective dimensions"),
            ("stat/mask_active_share", "a mask covered {:.0%} of the embedding"),
        ):
            value_T = arrays.get(name, np.empty(0))
            value_T = value_T[np.isfinite(value_T)]
            if len(value_T):
                parts.append(text.format(value_T[-1]))
        lost = int(
            (~np.isfinite(arrays["loss"]) & np.isfinite(arrays.get("lr", arrays["loss"]))).sum()
        )
        if lost:
            parts.append(f"{lost} logged losses were not finite")
        for name, epoch in zip(arrays["stages"], arrays["stage_epochs"], strict=True):
            parts.append(f"{name} from epoch {epoch:g} on (dashed)")
        return "; ".join(parts) + "."
