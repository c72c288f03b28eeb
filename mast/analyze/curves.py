"""How a run went: every term, the masks, the embedding, the learning rate, over its epochs.

T logged steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from mast.analyze import figure
from mast.analyze.analysis import Analysis, Arrays, Subject

if TYPE_CHECKING:
    from mast.analyze.figure import Figure


@final
class Curves(Analysis):
    """Everything that was logged.

    Arrays:
        epoch: (T,) of every line of the log.
        <metric>: (T,) one array a metric, such as "loss", "term/variance", "stat/mask_mean",
            "online/knn" (percent) or "lr"; NaN where a line does not have it.
    """

    title: ClassVar[str] = "How the run went"

    def lacking(self, subject: Subject) -> str | None:
        """See `Analysis.lacking`."""
        return None if any("loss" in line for line in subject.log) else "Nothing was logged."

    def compute(self, subject: Subject) -> Arrays:
        """See `Analysis.compute`."""
        lines = [line for line in subject.log if "epoch" in line]
        names = sorted({name for line in lines for name in line} - {"step", "epoch"})
        return {
            "epoch": np.array([line["epoch"] for line in lines], float),
            **{
                name: np.array([_number(line.get(name)) for line in lines], float) for name in names
            },
        }

    def draw(self, arrays: Arrays) -> Figure:
        """See `Analysis.draw`."""
        return figure.curves(arrays)

    def caption(self, arrays: Arrays) -> str:
        """See `Analysis.caption`."""
        loss_T = arrays["loss"][np.isfinite(arrays["loss"])]
        if len(loss_T) == 0:
            return "The loss was never finite: the run diverged."
        parts = [f"The loss went from {loss_T[0]:.2f} to {loss_T[-1]:.2f}"]
        for name, text in (
            ("online/knn", "kNN on its own images ended at {:.1f} %"),
            ("online/effective_rank", "the representation used {:.0f} dimensions at the end"),
            ("stat/mask_active_share", "a mask used {:.0%} of the embedding"),
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
        return "; ".join(parts) + "."


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
