"""What is done to the views of a set before an encoder sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mast.augment import OPERATORS, operators_for
from mast.core.errors import UserError
from mast.data import CanvasSet


@dataclass(frozen=True)
class Change:
    """What is done to the views of a set before the encoder sees them.

    Args:
        name: Identifies it beside the extracted features; equal names, equal changes.
        apply: From images_BCHW in [0, 1] and the positions of these images in their set, to
            images of the same shape; a pure function of both.
    """

    name: str
    apply: Callable[[Tensor, Tensor], Tensor]


def for_images(names: tuple[str, ...], images: CanvasSet) -> tuple[str, ...]:
    """Operators for a set; where all of RGB are named, all that are for its channels.

    Raises:
        UserError: One needs red, green and blue, which the images do not have.
    """
    channels = images.reading.layout.channels
    if channels != 3 and names == operators_for(3):
        return operators_for(channels)
    for name in names:
        if channels != 3 and name not in operators_for(channels):
            raise UserError(f"{name} needs red, green and blue, got images of {channels} channels")
    return names


def changed_by(
    name: str, magnitude: float | None, size: int, images: int, seed: int, share: float = 1.0
) -> Change:
    """An operator applied to every view, or to a share of them.

    Args:
        name: In `OPERATORS`.
        magnitude: From 0 to 1; None for an operator that has none, or for the parameters that
            pretraining draws.
        size: Side of the views in pixels.
        images: Images of the set; directions and places are drawn for all at once, so that they
            do not depend on batches, and are the same at every magnitude.
        seed: Of that draw.
        share: Of the images that are changed, the same ones for every operator.
    """
    operator = OPERATORS[name](size)
    generator = torch.Generator().manual_seed(seed)
    acts_N = torch.rand(images, generator=generator) < share if share < 1 else None
    parameters = operator.sample(images, generator)
    if magnitude is not None:
        parameters = operator.at_magnitude(magnitude, parameters)

    def apply(images_BCHW: Tensor, positions_B: Tensor) -> Tensor:
        parameters_B = {key: values[positions_B] for key, values in parameters.items()}
        changed_BCHW = operator.apply(images_BCHW, parameters_B)
        if acts_N is None:
            return changed_BCHW
        acts_B111 = acts_N[positions_B][:, None, None, None].to(images_BCHW.device)
        return torch.where(acts_B111, changed_BCHW, images_BCHW)

    return Change(f"{name} at {magnitude}, seed {seed}, share {share:g}", apply)
