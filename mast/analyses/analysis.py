"""What an analysis is: arrays first, saved in the run folder, then a figure and its caption.

N images, P side of a thumbnail in pixels, D dimensions of the embedding, K operators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.data.groups import groups_of
from mast.data.pieces import file_of

if TYPE_CHECKING:
    from mast.analyses.figure import Figure

Arrays: TypeAlias = dict[str, np.ndarray]
# What is done to images: an operator at a magnitude from 0 to 1 (None where it has none).
ChangeBy: TypeAlias = tuple[str, float | None]
NO_MASKS = "This run has no masks: its method learns none."
NO_IMAGES = "It needs images: analyze with --data SET."  # the command fills names in
QUANTILE = 0.975  # of Student's t, at either end


# ------------------------------------------------------------------------------ what is analysed


@dataclass(frozen=True)
class Images:
    """The images that a run is analysed with.

    Args:
        names: Paths or indices.
        thumbnails_NPP3: What they look like, uint8.
        labels: Class indices (N,) by task; empty where there are none.
        classes: Class names by task.
        units: What each belongs to, where that is not its file alone.
    """

    names: tuple[str, ...]
    thumbnails_NPP3: np.ndarray
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Sequence[str] = ()


@dataclass(frozen=True)
class Subject:
    """A run, as the analyses see it.

    Args:
        name: Of the run.
        method: Its name in the registry of methods.
        trained_with: Names of the operators of its views.
        operators: Names of the K operators that have a mask; empty for a method without masks.
        mask_DK: The masks as the distance uses them; None without masks.
        epochs: Of its configuration.
        stages: What begins at which epoch, such as ("operators compose", 50.0).
        log: Lines of `metrics.jsonl`.
        images: What it is analysed with, if anything.
        embed: Embeddings (N, D) of the images, all changed by an operator, or as they are (None).
        extras: What `mast.runs.subject.EXTRAS` adds, by name.
        folder: Of the run, for what else it holds.
        beside: Other runs to compare with this one, on the same images.
    """

    name: str
    method: str = ""
    trained_with: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    mask_DK: Tensor | None = None
    epochs: int = 0
    stages: tuple[tuple[str, float], ...] = ()
    log: Sequence[Mapping[str, Any]] = ()
    images: Images | None = None
    embed: Callable[[ChangeBy | None], Tensor] | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    beside: tuple[Subject, ...] = ()


def files_of(images: Images) -> Tensor | None:
    """Numbers (N,) of the files of images; None where each has its own, or all have one."""
    groups_N = groups_of(images.units or [*map(file_of, images.names)])
    return torch.from_numpy(groups_N) if groups_N is not None and groups_N.max() > 0 else None


def lacking_images(subject: Subject, fewest: int = 1) -> str | None:
    """Why the embeddings of the images cannot be looked at; None where they can."""
    if subject.images is None or subject.embed is None:
        return NO_IMAGES
    if (count := len(subject.images.names)) < fewest:
        return f"It needs {fewest} images or more, got {count}."
    return None


def mean_and_margin(value_NX: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean without NaN along the first axis, and half of its 95 % interval (Student's t).

    Args:
        value_NX: (N, ...) with NaN for missing values.

    Returns:
        Both (...); the mean is NaN where all is missing, the margin with fewer than two values.
    """
    from scipy.special import stdtrit

    there_NX = np.isfinite(value_NX)
    count_X = there_NX.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_X = np.where(there_NX, value_NX, 0).sum(axis=0) / count_X
        squared_X = (np.where(there_NX, value_NX - mean_X, 0) ** 2).sum(axis=0)
        error_X = np.sqrt(squared_X / (count_X - 1) / count_X)
        return mean_X, stdtrit(count_X - 1, QUANTILE) * error_X


# -------------------------------------------------------------------------------- what is shown


@dataclass(frozen=True)
class Grid:
    """A table of the numbers in a figure; they stay numbers, so that the page can sort by them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


class Gallery(NamedTuple):
    """Images to look at, uint8, each with a caption; as many in a row as fit, or `columns`."""

    title: str
    pictures_NPP3: np.ndarray
    captions: tuple[str, ...]
    columns: int | None = None


class Details(NamedTuple):
    """What the page shows of an analysis below its figure."""

    grid: Grid | None = None
    galleries: tuple[Gallery, ...] = ()


class Analysis(ABC):
    """One question to a run.

    Attributes:
        command: What makes it, with the places {name} and {run}.
    """

    command: ClassVar[str] = "mast analyze {run} --data SET --analyses {name}"

    @abstractmethod
    def lacking(self, subject: Subject) -> str | None:
        """What the run does not have, in words; None where the analysis can be computed."""

    @abstractmethod
    def compute(self, subject: Subject) -> Arrays:
        """The arrays that answer it, with the names, shapes and units of the class's docstring."""

    @abstractmethod
    def draw(self, arrays: Arrays) -> Figure:
        """The figure of these arrays."""

    @abstractmethod
    def caption(self, arrays: Arrays) -> str:
        """What to see in it, in words computed from the numbers: first the finding."""

    def details(self, arrays: Arrays) -> Details:
        """The numbers of the figure as a table, and images to look at, where there are some."""
        return Details()


# ------------------------------------------------------------------------------- files of arrays


@contextmanager
def understood(file: Path) -> Iterator[None]:
    """Turn any error over the content of a file of arrays into a `UserError` that names it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # whatever damaged arrays lead to
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UserError(
            f"{file} is damaged, or of another version ({what}): make it again with `mast analyze`."
        ) from error


def read_arrays(file: Path) -> Arrays:
    """The arrays of a finished analysis, whose checksums are verified."""
    # NumPy would leave a damaged file open.
    with understood(file), file.open("rb") as content, np.load(content) as archive:
        return dict(archive)
