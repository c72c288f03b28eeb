"""Sets of images that are made from others: some of the images, colour bins, folds."""

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from mast.data import CanvasSet
from mast.measure.sets import EvaluationData


def drawn_positions(total: int, count: int, part: int = 0) -> np.ndarray:
    """The `part`-th `count` positions of a set in an order drawn once, ascending."""
    order_N = np.random.default_rng(0).permutation(total)
    return np.sort(order_N[part * count : (part + 1) * count])


def link(canvases: CanvasSet, root: Path, index_N: np.ndarray, target: Path, flat: bool) -> None:
    """Make a folder of links to some images of a set, wholly or not at all.

    Args:
        canvases: The set, of a folder.
        root: That folder.
        index_N: Positions of the images.
        target: The folder; an existing one is left alone.
        flat: Without the classes' folders, so that there are no labels.
    """
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as place:
        partial = Path(place, "new")
        for index in index_N:
            identifier = canvases.identifiers[index]
            file = partial / (identifier.replace("/", "-") if flat else identifier)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.symlink_to((root / identifier).resolve())
        with suppress(OSError):  # another process that shares the runs made it in the meantime
            partial.rename(target)


def with_colours(sets: Sequence[CanvasSet]) -> tuple[CanvasSet, ...]:
    """Sets with the bin of each image's mean colour as a second target, "colour".

    There are eight bins: each channel above or below its median over the first of the sets.
    """
    threshold_C = np.median(_mean_colour(sets[0]), axis=0)
    names = tuple(f"{r}{g}{b}" for r in "rR" for g in "gG" for b in "bB")
    coloured = []
    for canvases in sets:
        above_NC = (_mean_colour(canvases) > threshold_C).astype(np.int64)
        targets = {**canvases.targets, "colour": above_NC @ np.array([4, 2, 1])}
        classes = {**canvases.classes, "colour": names}
        coloured.append(replace(canvases, targets=targets, classes=classes))
    return tuple(coloured)


def _mean_colour(canvases: CanvasSet) -> np.ndarray:
    batch = canvases.batch(np.arange(len(canvases)))
    images = (batch.image(index).numpy() for index in range(len(batch)))
    return np.stack([image_HWC.mean(axis=(0, 1), dtype=np.float64) for image_HWC in images])


def folds(canvases: CanvasSet, size: int, count: int = 3) -> list[EvaluationData]:
    """Each image scored once by a probe that learns from the other folds."""
    fold_N = np.random.default_rng(0).permutation(len(canvases)) % count
    return [
        EvaluationData(
            canvases.subset(np.flatnonzero(fold_N != fold)),
            None,
            canvases.subset(np.flatnonzero(fold_N == fold)),
            size,
        )
        for fold in range(count)
    ]
