"""Figures: the one style, and the only module that imports matplotlib.

Colors are those of Okabe and Ito, which people of any color vision tell apart, and cividis;
classes that are named like colors have their own.
"""

from __future__ import annotations

import functools
import io
import os
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from PIL import Image
from torch import Tensor

from mast.core.checkpoint import write_atomically, write_text
from mast.core.errors import UserError, visible
from mast.core.files import signed
from mast.core.reading import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure  # noqa: PLC0414  # for the analyses

P = ParamSpec("P")
R = TypeVar("R")

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
STYLES = ("-", "--", ":", "-.")
GRAY = "#7F7F7F"
# Black and white that stay so: the page gives its own colors to what is exactly black or white.
LASTING = {"#000000": "#010101", "#ffffff": "#fefefe"}
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
OF_VIEWS = {"Software": "mast show views"}
DATELESS: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}}


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the one style; for the functions that return a figure."""

    @functools.wraps(draw)
    def with_style(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            from matplotlib import rc_context
        except ValueError as error:  # which is said when it is imported
            backend = os.environ.get("MPLBACKEND")
            raise UserError(f"matplotlib knows no MPLBACKEND={backend}: unset it") from error
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


def palette(count: int) -> tuple[str, ...]:
    """Colors for a number of classes: the eight colors, lighter and darker ones, or a scale."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex, to_rgb

    hues = COLORS[:6]
    if count <= len(COLORS):
        return COLORS[:count]
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
    return ClassColors(tuple(LASTING.get(ink, ink) for ink in inks), GRAY)


def tip(artist: Any, text: str) -> None:
    """Give an artist a tip, shown where it is pointed at, in the .svg."""
    artist.set_gid(f"tip {text}")


def legend(figure: Figure, axes: Sequence[Any], ncols: int, scale: float = 1) -> None:
    """One legend below the figure for all axes, each label once, its markers `scale` as large."""
    entries: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=ncols,
        markerscale=scale,
    )  # fmt: skip


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


def cells(
    axis: Any,
    value_RC: np.ndarray,
    texts: Sequence[Sequence[str]],
    width: float = 1,
    cell_texts: Sequence[Sequence[str]] | None = None,
) -> None:
    """Give each cell of an image, shown by `imshow`, a tip, and write into it.

    value_RC is how light each is, in [0, 1]; width that of a cell in the axis's units.
    """
    from matplotlib.patches import Rectangle

    for row, column in np.ndindex(*value_RC.shape):
        corner = (column * width - 0.5, row - 0.5)
        cell = Rectangle(corner, width, 1, facecolor="white", alpha=0.0, linewidth=0)
        tip(cell, texts[row][column])
        axis.add_patch(cell)
        if cell_texts is not None:
            # Not quite black: on a dark page black text becomes light, which this must not.
            ink = "#111111" if value_RC[row, column] > 0.5 else "white"
            axis.text(column, row, cell_texts[row][column], ha="center", va="center", color=ink)


def save(figure: Figure, file: Path) -> None:
    """Write a figure beside its arrays, as .png and .svg of the same name."""
    write_text(file.with_suffix(".svg"), signed(as_svg(figure, file.stem)))
    figure.set_layout_engine("none")  # the second is laid out as the first, which takes time
    write_atomically(file.with_suffix(".png"), lambda png: _write(figure, png, "png", file.stem))


def as_svg(figure: Figure, name: str) -> str:
    """A figure as SVG with tips; `name` keeps its ids apart from those of other figures."""
    text = io.StringIO()
    _write(figure, text, "svg", name)
    # Tips as titles, which browsers show and read aloud; other ids unique among figures.
    svg = re.sub(
        r"""<g id=(["'])tip (.*?)\1>""",
        r'<g class="tip" role="img" tabindex="0"><title>\2</title>',
        visible(text.getvalue()),  # XML has no control characters
        flags=re.DOTALL,
    )
    # An image has a hash of its pixels, so that one that is drawn twice would have one id twice.
    svg = re.sub(r'(<image\b[^>]*?)\sid="[^"]*"', r"\1", svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)


def _write(figure: Figure, target: Path | io.StringIO, kind: str, name: str) -> None:
    from matplotlib import rc_context

    with rc_context({**STYLE, "svg.hashsalt": name}):  # the same arrays give the same file
        figure.savefig(target, dpi=150, format=kind, metadata=DATELESS[kind])


def words(name: str) -> str:
    """An operator's name for people: "random resized crop"."""
    return name.replace("_", " ")


def capital(text: str) -> str:
    """A text as a sentence begins."""
    return text[:1].upper() + text[1:]


def views_grid(
    originals_BCHW: Tensor, views: Sequence[Tensor], captions: Sequence[Sequence[str]], path: Path
) -> None:
    """Draw images in [0, 1] beside their views as a PNG; captions say what was applied to each."""
    from matplotlib.figure import Figure

    rows, columns = len(originals_BCHW), 1 + len(views)
    figure = Figure(figsize=(8.4 * columns / 3, 2.45 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for row in range(rows):
        images = [shown(of_BCHW[row : row + 1])[0] for of_BCHW in (originals_BCHW, *views)]
        texts = ("image", *captions[row])
        for axis, image_CHW, text in zip(axes[row], images, texts, strict=True):
            axis.imshow(image_CHW.float().permute(1, 2, 0).numpy(), interpolation="nearest")
            axis.set_title(textwrap.fill(text, 38), fontsize=8)
            axis.set_axis_off()
    write_atomically(
        path, lambda partial: figure.savefig(partial, dpi=110, format="png", metadata=OF_VIEWS)
    )


def is_views_grid(path: Path) -> bool:
    """Whether a file is a picture of `views_grid`."""
    try:
        with Image.open(path) as image:
            return OF_VIEWS.items() <= image.info.items()
    except Exception:  # Pillow raises OSError, SyntaxError, ValueError, DecompressionBombError, …
        return False
