"""What methods share that hide patches of an image.

Shapes: B images of this process, L patches of an image.
"""

import hashlib
from typing import Any

import torch
from torch import Tensor

from mast.core.collectives import processes, rank
from mast.core.errors import UserError
from mast.core.transfer import pinned
from mast.methods.base import Method
from mast.models import Encoder


class HidingMethod(Method):
    """A method that hides patches, drawn for each image.

    What is hidden follows from the seed and the progress of the run: several processes hide what
    one would, and all parts of a batch hide the same.

    Args:
        config: Of the method.
        encoder: The encoder to train.
        operators: Names of the augmentations.
        seed: Of what is hidden.
    """

    def __init__(
        self, config: Any, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self._seed = seed

    def shuffled(
        self, count: int, patches: int, view: int, progress: float, device: torch.device
    ) -> Tensor:
        """The patches of each image of a view in a random order, (B, L); the last are hidden."""
        text = f"{self._seed} {view} {progress!r}"
        drawn = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        generator = torch.Generator().manual_seed(drawn)
        noise = torch.rand(processes() * count, patches, generator=generator)
        own_BL = noise[rank() * count :][:count].argsort(dim=1)
        return pinned(own_BL, device).to(device, non_blocking=True)

    def get_extra_state(self) -> Tensor:
        """The seed: what is hidden next does not follow from weights."""
        return torch.tensor(self._seed)

    def set_extra_state(self, state: Tensor) -> None:
        """Hide what a method of this seed would."""
        self._seed = int(state)


def check_hidden(hidden: float) -> None:
    """Refuse a share of hidden patches that leaves nothing to see, or nothing to tell.

    Raises:
        UserError: Saying what it is.
    """
    if not 0 < hidden < 1:
        raise UserError(f"objective.hidden must be in (0, 1), got {hidden}")


def count_shown(hidden: float, patches: int) -> int:
    """How many patches are shown where this share is hidden.

    Raises:
        UserError: None, or all of them.
    """
    shown = int(patches * (1 - hidden))
    if not 0 < shown < patches:
        raise UserError(f"objective.hidden {hidden} hides {patches - shown} of {patches} patches")
    return shown
