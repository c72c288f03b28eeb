"""Figures. The only module that imports matplotlib."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from mast.core.checkpoint import write_atomically


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
