"""What the figures of the paper share: the command that makes them, colors, lines and bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mast.analyses import Analysis, figure


class PaperAnalysis(Analysis):
    """An analysis of `python -m paper analyze`."""

    command: ClassVar[str] = "python -m paper analyze {run} --data SET --analyses {name}"


def curve(
    axis: Any,
    x_S: np.ndarray,
    y_S: np.ndarray,
    ink: str,
    style: str = "-",
    width: float = 1.5,
    label: str | None = None,
    margin_S: np.ndarray | None = None,
) -> None:
    """A line with a dot at every value, with a band of `margin_S`."""
    axis.plot(x_S, y_S, style, marker="o", color=ink, linewidth=width, markersize=2 + width,
              label=label)  # fmt: skip
    if margin_S is not None:
        ends = y_S - margin_S, y_S + margin_S
        axis.fill_between(x_S, *ends, color=ink, alpha=0.15, linewidth=0)


def bars(
    axis: Any,
    names: Sequence[str],
    value_K: np.ndarray,
    error: Any,
    inks: Sequence[str],
) -> None:
    """Horizontal bars with their intervals; one whose length is not finite is left out."""
    for at in np.flatnonzero(np.isfinite(value_K)).tolist():
        axis.barh(at, value_K[at], color=inks[at], height=0.7)
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


def legend(drawn: figure.Figure, axes: Sequence[Any], ncols: int, scale: float = 1) -> None:
    """One legend below the figure for all axes, each label once, its markers `scale` as large."""
    entries: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    drawn.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=ncols,
        markerscale=scale,
    )  # fmt: skip


def palette(count: int) -> tuple[str, ...]:
    """Colors for a number of classes: the eight colors, lighter and darker ones, or a scale."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex, to_rgb

    hues = figure.COLORS[:6]
    if count <= len(figure.COLORS):
        return figure.COLORS[:count]
    if count <= 3 * len(hues):
        lighter, darker = (
            [to_hex(tuple((1 - share) * np.array(to_rgb(ink)) + share * towards)) for ink in hues]
            for towards, share in ((1.0, 0.55), (0.0, 0.5))
        )
        return (*hues, *lighter, *darker)[:count]
    return tuple(to_hex(colormaps["cividis"](at / (count - 1))) for at in range(count))


class ClassColors(NamedTuple):
    """A color for each class, and of outlines where some are as light or dark as the ground."""

    fills: tuple[str, ...]
    outline: str | None


def class_colors(names: Sequence[str]) -> ClassColors:
    """Each class in its own color where all are named like colors, otherwise those of `palette`.

    A color is what CSS calls one, drawn as the survey of xkcd has it, where that has the name:
    CSS's azure is nearly white, its violet is pink.
    """
    from matplotlib.colors import CSS4_COLORS, XKCD_COLORS, to_hex

    colors = [name.lower() for name in names]
    if any(color not in CSS4_COLORS for color in colors):
        return ClassColors(palette(len(names)), None)
    inks = [
        to_hex(XKCD_COLORS.get(f"xkcd:{color.replace('gray', 'grey')}", CSS4_COLORS[color]))
        for color in colors
    ]
    if len(set(inks)) < len(inks):  # grey and gray would be one
        return ClassColors(palette(len(names)), None)
    return ClassColors(tuple(inks), figure.GRAY)
