"""Which of several copies to keep."""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mast.core.errors import UserError
from mast.data.canvas import CanvasSet

KEEP = ("largest", "sharpest", "oldest", "newest", "first", "folder:NAME")
FOLDER = "folder:"
# Relative differences of pixel counts that matter; with borders, the count is less exact.
COARSE, FINE = 0.25, 0.02
BORDER = 0.15  # share of an image; less is a bright edge of the photo


def is_below(path: str | Path | None, folder: str | Path) -> bool:
    """Whether a path is a folder or lies in it, with links resolved."""
    return path is not None and Path(os.path.realpath(path)).is_relative_to(
        os.path.realpath(folder)
    )


def preferred(
    canvases: CanvasSet, keep: str, root: Path, reference: Path | None = None
) -> np.ndarray:
    """Positions of a set's images (N,), the preferred ones first.

    Args:
        canvases: The set, opened by `open_photos`.
        keep: One of `KEEP`. Ties go to the image with more pixels (without a plain border), then
            with the larger file, then the older one, then the first in the order of the set.
        root: The folder of the set, to find subfolders in.
        reference: A folder whose images come first.

    Raises:
        UserError: `keep` is unknown, or names a folder without images.
    """
    of_folder = keep.startswith(FOLDER)
    if keep not in KEEP[:-1] and not of_folder:
        raise UserError(f"keep: expected {', '.join(KEEP)}, got {keep!r}")
    files = [canvases.file(at) for at in range(len(canvases))]
    referred = [reference is not None and is_below(file, reference) for file in files]
    inside = [of_folder and is_below(file, root / keep.removeprefix(FOLDER)) for file in files]
    if of_folder and not any(inside):
        raise UserError(f"keep: expected a subfolder of {root} with images, got {keep!r}")
    dates = [date_of(canvases, at) for at in range(len(canvases))]
    by: dict[str, Callable[[int], float]] = {
        "sharpest": lambda at: -canvases.facts[at].sharpness,
        "oldest": lambda at: dates[at],
        "newest": lambda at: -dates[at],
        "first": lambda at: at,
    }

    def order(at: int) -> tuple[float, ...]:
        facts = canvases.facts[at]
        pixels = facts.full_height * facts.full_width
        return (
            not referred[at], not inside[at], by.get(keep, lambda _: 0)(at),
            -round(math.log(max(1, (1 - facts.border) * pixels)) / COARSE),
            int(facts.border / BORDER), -round(math.log(pixels) / FINE),
            -facts.file_bytes, dates[at], at,
        )  # fmt: skip

    return np.array(sorted(range(len(canvases)), key=order), np.int64)


def date_of(canvases: CanvasSet, position: int) -> float:
    """When a photo was taken, in seconds since 1970; without EXIF, its file's modification time."""
    taken = canvases.facts[position].taken
    try:
        return time.mktime(time.strptime(taken[:19].ljust(19), "%Y:%m:%d %H:%M:%S"))
    except (ValueError, OverflowError):
        pass
    file = canvases.file(position)
    try:
        return os.stat(file).st_mtime if file else 0.0
    except OSError:
        return 0.0
