"""What an analysis is: arrays first, kept in the run folder, then a figure and what to see in it.

N images, D dimensions of the embedding, K operators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from mast.analyze.figure import Figure

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A run, as the analyses look at it.

    Args:
        name: Of the run.
        operators: Names of the K operators that have a mask; empty for a method without masks.
        mask_DK: The masks as the distance uses them; None without masks.
        log: Lines of `metrics.jsonl`.
        embed: Embeddings (N, D) of the images, all changed by an operator at a magnitude from 0 to
            1 (None where it has none), or as they are; None where there are no images.
        beside: Other runs to stand beside this one, on the same images.
    """

    name: str
    operators: tuple[str, ...] = ()
    mask_DK: Tensor | None = None
    log: Sequence[Mapping[str, Any]] = ()
    embed: Callable[[tuple[str, float | None] | None], Tensor] | None = None
    beside: tuple[Subject, ...] = field(default=())


class Analysis(ABC):
    """One question to a run.

    Attributes:
        title: Heading on the page.
    """

    title: ClassVar[str]

    @abstractmethod
    def lacking(self, subject: Subject) -> str | None:
        """What the run does not have, in words; None where the analysis can be made."""

    @abstractmethod
    def compute(self, subject: Subject) -> Arrays:
        """The arrays that answer it, with the names, shapes and units of the class's docstring."""

    @abstractmethod
    def draw(self, arrays: Arrays) -> Figure:
        """The figure of these arrays."""

    @abstractmethod
    def caption(self, arrays: Arrays) -> str:
        """What to see in it, in words computed from the numbers."""
