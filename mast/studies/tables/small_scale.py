"""What small runs are of: some images of CIFAR-10, and a narrow encoder."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mast.data import CanvasSet
from mast.studies.experiment import Workplace


def narrow(*channels: int) -> dict[str, Any]:
    """A ResNet-10 of these channels."""
    options = {"layers": [1, 1, 1, 1], "channels": list(channels)}
    stem = {"stem_type": "deep", "stem_width": 16}
    return {"name": "timm:resnet18", "options": {**options, **stem}}


NARROW = narrow(32, 64, 128, 256)
CIFAR = "cifar10-10k"  # images of CIFAR-10 without labels
IMAGES = 10_000
SIZE = 32


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


def link_cifar(
    workplace: Workplace, images: int = IMAGES, name: str = CIFAR, flat: bool = True
) -> CanvasSet:
    """Make a set of CIFAR-10's training images, flat without labels; all are returned."""
    everything = workplace.open("cifar10/train", SIZE)
    index_N = drawn_positions(len(everything), images)
    link(
        everything,
        workplace.sets / "cifar10" / "train",
        index_N,
        workplace.derived(name),
        flat=flat,
    )
    return everything
