"""How the two views of a pair differ in what was drawn for them: what a head can be asked to tell.

Legend: B samples, T numbers of an operator.
"""

import torch
from torch import Tensor

from mast.augment.operators import OPERATORS
from mast.augment.record import Record, Views
from mast.core.errors import UserError


def difference(views: Views, name: str) -> Tensor:
    """How an operator's effects on two views differ, from their record.

    Args:
        views: Two views of every image.
        name: One of their operators.

    Returns:
        difference_BT: In the operator's own units, on the views' device; NaN where no observer of
            both views could tell. See `Operator.difference` and `Operator.hidden`.

    Raises:
        UserError: More or fewer than two views.
    """
    if len(views.records) != 2:
        raise UserError(f"a difference is between two views, got {len(views.records)}")
    images_BCHW, aspect_B = views.images[0], views.aspect_B
    if aspect_B is None:
        aspect_B = torch.ones(len(images_BCHW), device=images_BCHW.device)
    first_BT, second_BT = (_effect(record, name, aspect_B) for record in views.records)
    difference_BT = OPERATORS[name].difference(first_BT, second_BT)
    hidden_BT = OPERATORS[name].hidden(*views.records)
    if hidden_BT is None:
        return difference_BT
    return difference_BT.masked_fill(
        hidden_BT.to(difference_BT.device, non_blocking=True), torch.nan
    )


def numbers(name: str) -> int:
    """T, how many numbers `difference` gives for an operator."""
    drawn = OPERATORS[name](size=224).sample(1, torch.Generator())
    effect_1T = OPERATORS[name].effect(drawn, torch.ones(1))
    return OPERATORS[name].difference(effect_1T, effect_1T).shape[1]


def _effect(record: Record, name: str, aspect_B: Tensor) -> Tensor:
    """What the operator did to one view, 0 where it was not applied."""
    effect_BT = OPERATORS[name].effect(record.parameters[name], aspect_B)
    effect_BT, applied_B = (
        tensor.to(aspect_B.device, torch.float32, non_blocking=True)
        for tensor in (effect_BT, record.applied(name))
    )
    return effect_BT * applied_B[:, None]
