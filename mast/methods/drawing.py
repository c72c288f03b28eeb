"""What methods share that draw something for each image: what is hidden, where pieces lie.

Shapes: B images of this process, N numbers an image.
"""

import hashlib
from typing import Any

import torch
from torch import Tensor

from mast.core.collectives import processes, rank
from mast.core.errors import UserError
from mast.methods.base import Method
from mast.models import Encoder


class DrawingMethod(Method):
    """A method that draws numbers, which follow from its seed and the progress of the run.

    So several processes draw what one would, and all parts of a batch the same.
    """

    def __init__(
        self, config: Any, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self._seed = seed

    def drawn(self, count: int, numbers: int, view: int, progress: float) -> Tensor:
        """Numbers in [0, 1) for the images of a view, (B, N), on the CPU.

        Args:
            count: B.
            numbers: N.
            view: Which; others draw others.
            progress: Share of the run that is done.
        """
        text = f"{self._seed} {view} {progress!r}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        generator = torch.Generator().manual_seed(seed)
        noise = torch.rand(processes() * count, numbers, generator=generator)
        return noise[rank() * count :][:count]

    def get_extra_state(self) -> Tensor:
        """The seed: what is drawn next does not follow from weights."""
        return torch.tensor(self._seed)

    def set_extra_state(self, state: Tensor) -> None:
        """Draw what a method of this seed would."""
        self._seed = int(state)


def count_shown(hidden: float, patches: int) -> int:
    """How many patches are shown where this share is hidden."""
    shown = int(patches * (1 - hidden))
    if not 0 < shown < patches:
        raise UserError(f"objective.hidden {hidden} hides {patches - shown} of {patches} patches")
    return shown
