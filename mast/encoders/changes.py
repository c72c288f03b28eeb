"""Changes to the views of a set before encoding."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mast.augment import OPERATORS, Preset
from mast.core.errors import UserError

_log = logging.getLogger("mast")


@dataclass(frozen=True)
class Change:
    """A change to the views of a set before encoding.

    `apply` maps images_BCHW in [0, 1] and their positions in the set to images of the same shape;
    equal names mean equal changes.
    """

    name: str
    apply: Callable[[Tensor, Tensor], Tensor]


def acting_on(operators: Sequence[str], channels: int) -> tuple[str, ...]:
    """Operators for images with this number of channels; logs those left out."""
    possible = tuple(dict.fromkeys(Preset(tuple(operators)).of_channels(channels).operators))
    if left_out := [name for name in operators if name not in possible]:
        _log.warning(
            "images of %d channels: %s need red, green and blue and are left out%s",
            channels, ", ".join(left_out), ", for band_jitter" * ("band_jitter" in possible),
        )  # fmt: skip
    if operators and not possible:
        raise UserError(f"none of the operators acts on images of {channels} channels")
    return possible


def changed_by(
    name: str,
    magnitude: float | None,
    size: int,
    images: int,
    seed: int,
    share: float = 1.0,
    **drawn: Any,
) -> Change:
    """Apply an operator to every view, or to a share of views, equal for all operators.

    The magnitude is from 0 to 1; None for an operator without one, or to draw parameters as in
    pretraining, with changed fields of the operator (`drawn`). Parameters are drawn for the whole
    set at once, so they do not depend on batches, and are the same at every magnitude.
    """
    operator = OPERATORS[name](size, **drawn)
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

    others = "".join(f", {field} {value}" for field, value in drawn.items())
    return Change(f"{name} at {magnitude}, seed {seed}, share {share:g}{others}", apply)
