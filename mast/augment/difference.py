"""How the two views of a pair differ in what was drawn for them: what a head can be asked to tell.

Legend: B samples, T numbers of an operator.
"""

import torch
from torch import Tensor

from mast.augment.operators import OPERATORS
from mast.augment.record import Record, Views
from mast.core.entry import entry
from mast.core.errors import UserError, unknown


@entry()
def difference(views: Views, name: str, device: torch.device | None = None) -> Tensor:
    """How an operator's effects on two views differ, from their record.

    Args:
        views: Two views of every image.
        name: One of their operators.
        device: Where it goes; that of the views if not given.

    Returns:
        difference_BT: In the operator's own units; NaN where no observer of
            both views could tell. See `Operator.difference`.

    Raises:
        UserError: More or fewer than two views, or an operator that they do not have.
    """
    if name not in views.names:
        raise unknown("operator of these views", name, views.names)
    if len(views.records) != 2:
        raise UserError(f"a difference is between two views, got {len(views.records)}")
    images_BCHW, aspect_B = views.images[0], views.aspect_B
    if aspect_B is None:
        aspect_B = torch.ones(len(images_BCHW))
    first_BT, second_BT = (_effect(record, name, aspect_B) for record in views.records)
    drawn_BT = OPERATORS[name].difference(first_BT, second_BT, *views.records)
    return drawn_BT.to(images_BCHW.device if device is None else device, non_blocking=True)


@entry()
def numbers(name: str) -> int:
    """T, how many numbers `difference` gives for an operator."""
    if name not in OPERATORS:
        raise unknown("operator", name, OPERATORS)
    parameters = {name: OPERATORS[name](size=224).sample(1, torch.Generator())}
    record = Record((name,), torch.ones(1, 1, dtype=torch.bool), parameters)
    blank = torch.empty(1, 3, 0, 0)
    return difference(Views((blank, blank), (record, record)), name).shape[1]


def _effect(record: Record, name: str, aspect_B: Tensor) -> Tensor:
    """What the operator did to one view, 0 where it was not applied."""
    effect_BT = OPERATORS[name].effect(record.parameters[name], aspect_B)
    return effect_BT.float() * record.applied(name)[:, None]
