"""What the figures of the paper share: the command that makes them, lines, bars and numbers."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from mast.analyses import Analysis, figure


class PaperAnalysis(Analysis):
    """An analysis of `python -m paper analyze`."""

    command: ClassVar[str] = "python -m paper analyze {run} --data SET --analyses {name}"


def curve(
    axis: Any,
    x_S: np.ndarray,
    y_S: np.ndarray,
    label: str,
    ink: str,
    style: str = "-",
    width: float = 1.5,
    legend_label: str | None = None,
    margin_S: np.ndarray | None = None,
) -> None:
    """A line whose finite points have `label` and value as tips, with a band of `margin_S`."""
    axis.plot(x_S, y_S, style, color=ink, linewidth=width, label=legend_label)
    for x, y in zip(x_S, y_S, strict=True):
        if np.isfinite(y):
            (point,) = axis.plot([x], [y], "o", color=ink, markersize=2 + width)
            figure.tip(point, f"{label}: {y:.3g} at {x:g}")
    if margin_S is not None:
        ends = y_S - margin_S, y_S + margin_S
        axis.fill_between(x_S, *ends, color=ink, alpha=0.15, linewidth=0)


def bars(
    axis: Any,
    names: Sequence[str],
    value_K: np.ndarray,
    error: Any,
    inks: Sequence[str],
    tips: Sequence[str],
) -> None:
    """Horizontal bars with their intervals; one whose length is not finite is left out."""
    for at in np.flatnonzero(np.isfinite(value_K)).tolist():
        (bar,) = axis.barh(at, value_K[at], color=inks[at], height=0.7)
        figure.tip(bar, tips[at])
    axis.errorbar(
        value_K, range(len(names)), xerr=error, fmt="none", ecolor="black", elinewidth=1, capsize=2
    )
    axis.set_yticks(range(len(names)), names)


def entry(name: str) -> str:
    """A name as a legend shows it: one that begins with an underscore would be left out."""
    return f" {name}" if name.startswith("_") else name


def with_margin(mean: float, margin: float, sign: str = "", places: int = 1) -> str:
    """A mean with its margin, where it has one: "+1.2 ± 0.4"."""
    text = f"{mean:{sign}.{places}f}"
    return f"{text} ± {margin:.{places}f}" if np.isfinite(margin) else text
