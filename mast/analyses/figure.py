"""Figures: the one style, and the only module of `mast` that imports matplotlib.

Colors are those of Okabe and Ito, which people of any color vision tell apart, and cividis.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from mast.core.checkpoint import write_atomically, write_text
from mast.core.errors import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure  # noqa: PLC0414  # for the analyses

P = ParamSpec("P")
R = TypeVar("R")

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
STYLES = ("-", "--", ":", "-.")
GRAY = "#7F7F7F"
WIDTH = 8.4  # inches
IN_A_NOTEBOOK = 100  # pixels an inch
BELOW = 32  # points from an axis to a legend: the numbers and the name of its scale are between
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "text.parse_math": False,  # a dollar in the name of a class is a dollar
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
}


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the one style; for the functions that return a figure."""

    @functools.wraps(draw)
    def with_style(*args: P.args, **kwargs: P.kwargs) -> R:
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return with_style


def empty(height: float) -> Figure:
    """A figure of the page's width without axes, `height` in inches; a notebook shows it."""
    return _shown()(figsize=(WIDTH, height), layout="constrained")


@functools.cache
def _shown() -> type[Figure]:
    """The class of figures that notebooks show, which otherwise show those of pyplot alone."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            png = io.BytesIO()
            self.savefig(png, dpi=IN_A_NOTEBOOK, format="png")
            return png.getvalue()

    return ShownFigure


def panels(count: int, columns: int, height: float, **options: Any) -> tuple[Figure, list[Any]]:
    """A figure with `count` axes, at most `columns` in a row of `height` inches."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = empty(height * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def color(index: int) -> str:
    """The color with a number, from 0; they repeat."""
    return COLORS[index % len(COLORS)]


def line_style(index: int) -> str:
    """The style of a line with a number, which changes where the colors repeat."""
    return STYLES[index // len(COLORS) % len(STYLES)]


def legend_below(axis: Any) -> None:
    """A legend that covers nothing: below the axis and the name of its scale, not wider than it."""
    labels = axis.get_legend_handles_labels()[1]
    if not labels:
        return
    from matplotlib.transforms import offset_copy

    ncols = max(1, min(len(labels), 54 // (6 + max(map(len, labels)))))
    # In points, as the names above it are: a share of a flat axis would be less than they need.
    below = offset_copy(axis.transAxes, axis.figure, y=-BELOW, units="points")
    axis.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below, ncols=ncols,
        columnspacing=1.2, handlelength=1.5, borderaxespad=0,
    )  # fmt: skip


def plate(axis: Any) -> None:
    """An axis without scales, for an image or for points whose places mean nothing."""
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set(visible=True, color="#BBBBBB", linewidth=0.6)


def write_cells(axis: Any, light_RC: np.ndarray, texts: Sequence[Sequence[str]]) -> None:
    """Write into the cells of an image, shown by `imshow`, of a lightness in [0, 1]."""
    for row, column in np.ndindex(*light_RC.shape):
        ink = "black" if light_RC[row, column] > 0.5 else "white"
        axis.text(column, row, texts[row][column], ha="center", va="center", color=ink)


def save(figure: Figure, file: Path) -> None:
    """Write a figure as .png and .svg, next to the file of its arrays."""
    svg = io.StringIO()
    _write(figure, svg, "svg")
    # XML has no control characters.
    write_text(file.with_suffix(".svg"), visible(svg.getvalue()))
    figure.set_layout_engine("none")  # the second is laid out as the first, which takes time
    write_atomically(file.with_suffix(".png"), lambda png: _write(figure, png, "png"))


def _write(figure: Figure, target: Path | io.StringIO, kind: str) -> None:
    from matplotlib import rc_context

    # Without a date and with a salt, the same arrays give the same file.
    nothing = {"Date": None} if kind == "svg" else {}
    with rc_context({**STYLE, "svg.hashsalt": "mast"}):
        figure.savefig(target, dpi=150, format=kind, metadata=nothing)


def words(name: str) -> str:
    """An operator's name for people: "random resized crop"."""
    return name.replace("_", " ")


def capital(text: str) -> str:
    """A text as a sentence begins."""
    return text[:1].upper() + text[1:]
