"""Figures. The only module that imports matplotlib.

Colours are those of Okabe and Ito, which people of any colour vision tell apart, and cividis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from mast.core.checkpoint import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure  # noqa: PLC0414  # for the analyses

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
STYLES = ("-", "--", ":", "-.")
WIDTH = 8.4  # inches
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
}
CURVES = {  # panels of the training curves: heading, unit, beginnings of the metrics' names
    "Loss and its terms": ("weighted", ("loss", "term/")),
    "Masks": ("share, or cosine", ("stat/mask_",)),
    "Embedding": ("", ("stat/embedding_std", "stat/unmasked_distance", "stat/uncertainty")),
    "kNN on its own images": ("%", ("online/knn",)),
    "Effective rank": ("dimensions", ("online/effective_rank",)),
    "Learning rate": ("", ("lr",)),
}


def save(figure: Figure, file: Path) -> None:
    """Write a figure beside its arrays, as .png and .svg of the same name."""
    for kind in ("png", "svg"):

        def write(partial: Path, kind: str = kind) -> None:
            figure.savefig(partial, dpi=150, format=kind)

        write_atomically(file.with_suffix(f".{kind}"), write)


def words(name: str) -> str:
    """An operator's name for people: "random resized crop"."""
    return name.replace("_", " ")


def masks(
    operators: Sequence[str],
    mask_KD: np.ndarray,
    correlation_KK: np.ndarray,
    order_K: np.ndarray,
    linkage: np.ndarray,
) -> Figure:
    """The mask matrix above, below it the correlation of the masks beside its dendrogram."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    count = len(operators)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 2.2 + 0.32 * count + 2.6), layout="constrained")
        heights = (1.2 + 0.2 * count, 2.2 + 0.2 * count)
        parts: Any = figure.subfigures(2, 1, height_ratios=heights)
        above, below = parts
        axis = above.subplots()
        image = axis.imshow(mask_KD, aspect="auto", cmap="cividis", interpolation="nearest")
        axis.set_yticks(range(count), [words(name) for name in operators])
        axis.set_xlabel("dimension of the embedding, ordered by the operator that holds most of it")
        axis.grid(visible=False)
        above.colorbar(image, ax=axis, label="mask")
        tree, matrix = below.subplots(1, 2, width_ratios=(1, 3))
        if count > 1:
            _dendrogram(tree, linkage)
        tree.set_axis_off()
        ordered = correlation_KK[np.ix_(order_K, order_K)]
        image = matrix.imshow(ordered, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        names = [words(operators[at]) for at in order_K]
        matrix.set_yticks(range(count), names)
        matrix.set_xticks(range(count), names, rotation=45, ha="right", rotation_mode="anchor")
        matrix.yaxis.tick_right()
        matrix.spines.left.set_visible(False)
        matrix.grid(visible=False)
        if count <= 10:
            for row, column in np.ndindex(count, count):
                value = ordered[row, column]
                colour = "black" if value > 0.6 else "white"
                matrix.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour)
        below.colorbar(image, ax=matrix, label="cosine of two masks")
    return figure


def _dendrogram(axis: Any, linkage: np.ndarray) -> None:
    from scipy.cluster.hierarchy import dendrogram

    dendrogram(
        linkage,
        ax=axis,
        orientation="left",
        no_labels=True,
        link_color_func=lambda _: "#555555",
    )
    axis.invert_yaxis()


def curves(arrays: Mapping[str, np.ndarray]) -> Figure:
    """A panel for each group of metrics that was logged, over the epochs."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = {
        heading: (unit, [name for name in arrays if name.startswith(beginnings)])
        for heading, (unit, beginnings) in CURVES.items()
    }
    panels = {heading: panel for heading, panel in panels.items() if panel[1]}
    rows = -(-len(panels) // 2)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 2.3 * rows), layout="constrained")
        axes = list(figure.subplots(rows, 2, squeeze=False).flat)
        for axis, (heading, (unit, names)) in zip(axes, panels.items(), strict=False):
            for at, name in enumerate(sorted(names)):
                known = np.isfinite(arrays[name])
                axis.plot(
                    arrays["epoch"][known],
                    arrays[name][known],
                    STYLES[at // len(COLORS) % len(STYLES)],
                    color=COLORS[at % len(COLORS)],
                    label=name.rpartition("/")[2].replace("_", " "),
                    marker="o" if known.sum() < 12 else None,
                    markersize=3,
                )
            axis.set_title(heading, loc="left", fontsize=9, fontweight="bold")
            axis.set_ylabel(unit)
            axis.set_xlabel("epoch")
            if len(names) > 1:
                axis.legend(frameon=False, fontsize=7, ncols=2)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
    return figure


def invariance(arrays: Mapping[str, np.ndarray]) -> Figure:
    """A panel for each operator: the similarity in each subspace against the magnitude."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    operators, subspaces = list(arrays["operators"]), list(arrays["subspaces"])
    columns = min(3, len(operators))
    rows = -(-len(operators) // columns)
    magnitude_S = arrays["magnitudes"]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 2.4 * rows + 0.9), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for row, name in enumerate(operators):
            axis = axes.flat[row]
            for at, subspace in enumerate(subspaces):
                own = subspace == name
                mean_S, margin_S = arrays["similarity"][row, at], arrays["margin"][row, at]
                last = at == len(subspaces) - 1
                colour = "black" if last else COLORS[at % (len(COLORS) - 2)]
                axis.plot(
                    magnitude_S, mean_S, "--" if last else "-", color=colour,
                    linewidth=2.5 if own else 1.0, label=words(subspace),
                )  # fmt: skip
                if own or last:
                    axis.fill_between(
                        magnitude_S, mean_S - margin_S, mean_S + margin_S, color=colour, alpha=0.2,
                        linewidth=0,
                    )  # fmt: skip
            for at, other in enumerate(arrays["beside"]):
                axis.plot(
                    magnitude_S, arrays["similarity_beside"][at, row], ":", color="#7F7F7F",
                    linewidth=2, label=str(other),
                )  # fmt: skip
            axis.set_title(words(name), loc="left", fontsize=9, fontweight="bold")
            axis.set_xlabel("magnitude")
            axis.set_ylim(bottom=min(axis.get_ylim()[0], 0.9), top=1.005)  # no drama over 1e-5
        for axis in axes.flat[len(operators) :]:
            axis.set_axis_off()
        for axis in axes[:, 0]:
            axis.set_ylabel("cosine similarity")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def views_grid(
    originals_BCHW: Tensor,
    views: tuple[Tensor, Tensor],
    captions: Sequence[tuple[str, str]],
    path: Path,
) -> None:
    """Draw images beside their two views, captioned with what was applied.

    Args:
        originals_BCHW: Unaugmented images in [0, 1].
        views: Two tensors of augmented images, of the same shape.
        captions: One text for each view of each image.
        path: PNG to write.
    """
    from matplotlib.figure import Figure

    rows = len(originals_BCHW)
    figure = Figure(figsize=(8.4, 2.45 * rows), layout="constrained")
    axes = figure.subplots(rows, 3, squeeze=False)
    for row in range(rows):
        columns = (originals_BCHW[row], views[0][row], views[1][row])
        texts = ("image", *captions[row])
        for axis, image_CHW, text in zip(axes[row], columns, texts, strict=True):
            axis.imshow(image_CHW.float().permute(1, 2, 0).numpy(), interpolation="nearest")
            axis.set_title(_wrap(text), fontsize=8)
            axis.set_axis_off()
    write_atomically(path, lambda partial: figure.savefig(partial, dpi=110, format="png"))


def _wrap(text: str, width: int = 38) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))
