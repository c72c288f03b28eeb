"""Saying what the operators did: heads that predict how the views of a pair were transformed.

A part that any method of two views can take. What must be told cannot be forgotten: to tell by how
much the hue was turned between two views, both must show the hue.

Shapes: B batch of this process, D dimensions of what is predicted from, T numbers of an operator,
H hidden units of a head.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mast.augment import PROPERTIES, Views, difference, numbers
from mast.core.collectives import gather
from mast.core.errors import UserError, unknown
from mast.losses import unexplained
from mast.methods.base import Given
from mast.methods.collapse import PREDICTED
from mast.models import pair_head

ASKED = "difference_of_"  # how what a head is to tell is called


@dataclass
class PredictionConfig:
    """What is predicted of the operators, and how strongly.

    Attributes:
        weight: Of each operator's prediction; 0 for none at all.
        hidden: Width of a head's hidden layer.
    """

    weight: float = 0.5
    hidden: int = 128

    def check(self) -> None:
        """Refuse values that cannot be."""
        if not 0.0 <= self.weight < math.inf:
            raise UserError(
                f"objective.prediction.weight must be 0 or more and finite, got {self.weight}"
            )
        if self.hidden < 1:
            raise UserError(f"objective.prediction.hidden must be 1 or more, got {self.hidden}")


class OperatorPrediction(nn.Module):
    """One head an operator, over the outputs of both views.

    Args:
        config: Weight and width.
        dim: D.
        operators: Those whose effects are predicted.

    Reference:
        AugSelf (Lee et al., NeurIPS 2021): there from the representation of any method.
    """

    def __init__(self, config: PredictionConfig, dim: int, operators: Sequence[str]) -> None:
        super().__init__()
        self.weight = config.weight
        self.heads = nn.ModuleDict(
            {name: pair_head(dim, config.hidden, numbers(name)) for name in operators}
        )

    def asked(self, views: Views) -> dict[str, Tensor]:
        """What the heads are to tell of two views, on the CPU."""
        return {
            f"{ASKED}{name}": difference(views, name, torch.device("cpu")) for name in self.heads
        }

    def forward(
        self,
        first_BD: Tensor,
        second_BD: Tensor,
        given: Given,
        part_DP: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """How much of what was drawn stays unexplained.

        Args:
            first_BD: Of the first view.
            second_BD: Of the second view.
            given: What `asked` says, on the device.
            part_DP: Of each operator predicted, in the order of `heads`, how much of every
                dimension its head sees, in [0, 1]; by default all of it.

        Returns:
            By operator, a scalar: 1 where the head says no more than the mean, 0 where it knows.
        """
        shares: dict[str, Tensor] = {}
        for index, (name, head) in enumerate(self.heads.items()):
            target_BT = given[f"{ASKED}{name}"]
            pair = (first_BD, second_BD)
            if part_DP is not None:
                pair = (first_BD * part_DP[:, index], second_BD * part_DP[:, index])
            predicted_BT = head(torch.cat(pair, dim=1))
            shares[name] = unexplained(predicted_BT, target_BT, gather(target_BT))
        return shares

    def add_to(
        self, output: dict[str, Tensor], unexplained: Mapping[str, Tensor], source: str
    ) -> dict[str, Tensor]:
        """What a method's `forward` returns, with the prediction beside its other terms.

        Args:
            output: Loss, terms and statistics without it.
            unexplained: What calling this module gave.
            source: What was predicted from, for the name of the term.
        """
        term = self.weight * sum(unexplained.values(), output["loss"].new_zeros(()))
        return {
            **output,
            "loss": output["loss"] + term,
            f"term/prediction_by_{source}": term.detach(),
            **{
                f"{PREDICTED}{source}_{name}": 1 - share.detach()
                for name, share in unexplained.items()
            },
        }

    def readings(self) -> dict[str, Tensor]:
        """By operator what its head reads of the first view: its first layer's reading_HD."""
        readings = {}
        for name, head in self.heads.items():
            layer, *_ = head.children()
            assert isinstance(layer, nn.Linear)
            readings[name] = layer.weight.detach()[:, : layer.in_features // 2]
        return readings


def destroyers(operators: Sequence[str], properties: Sequence[str]) -> tuple[str, ...]:
    """The operators that destroy one of some properties of an image, in their own order."""
    check_properties(properties)
    destroying = {name for destroyed in properties for name in PROPERTIES[destroyed]}
    return tuple(name for name in operators if name in destroying)


def check_properties(properties: Sequence[str]) -> None:
    """Refuse what no operator destroys, and what is named twice."""
    for name in properties:
        if name not in PROPERTIES:
            raise unknown("property that operators destroy", name, PROPERTIES)
    if len(set(properties)) < len(properties):
        raise UserError(f"a property is named twice: {', '.join(properties)}")
