"""Features and invariances in few axes, for a page that chooses what counts by itself.

N images, F numbers of all depths, M rows of factors, R axes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mast.augment import OPERATORS
from mast.invariance.subspaces import RIDGE, Subspaces, axes_of

AXES = 192
LARGEST = 127  # of int8


class Rounded(NamedTuple):
    """Rows (M, R) as int8, and what each column is multiplied by."""

    values_MR: Tensor
    scale_R: Tensor


class Property(NamedTuple):
    """What operators that destroy a property do to features."""

    factors: Rounded  # whose squared product is the second moment of the displacements
    trace: float  # of all axes


class Reduced(NamedTuple):
    """A set's features, as `Subspaces` compares them.

    Attributes:
        features: Centered and scaled.
        rest_N: Squared lengths of what the axes do not show.
        properties: By name.
        numbers: F.
    """

    features: Rounded
    rest_N: Tensor
    properties: Mapping[str, Property]
    numbers: int


def reduced(features_NF: Tensor, subspaces: Subspaces, axes: int = AXES) -> Reduced:
    """Features and factors along the axes that matter most to distances, whatever is ignored.

    These are the leading ones of the second moments of features as they are, and whitened by what
    each property and all of them do, each with a trace of one, and of all displacements.
    """
    level_NF = (features_NF.float() - subspaces.mean_F) / subspaces.scale_F
    of = {name: torch.cat([moves_RF for operator, moves_RF in subspaces.factors.items()
                           if OPERATORS[operator].changes == name])
          for name in subspaces.properties}  # fmt: skip
    seen = [level_NF, *of.values()]
    for moves_MF in (*of.values(), torch.cat([*of.values()])):
        value_M, axes_MF = axes_of(moves_MF)
        floor = RIDGE * float(value_M.sum()) / axes_MF.shape[1]
        shrink_M = 1 - (floor / (value_M + floor)).sqrt()
        seen.append(level_NF - ((level_NF @ axes_MF.T) * shrink_M) @ axes_MF)
    moment_FF = sum(each.T @ each / each.square().sum().clamp(min=1e-12) for each in seen)
    assert isinstance(moment_FF, Tensor)
    axes_FR = torch.linalg.eigh(moment_FF.double())[1].flip(1)[:, :axes].float()
    properties = {
        name: Property(_rounded(_squared(moves_MF @ axes_FR)), float(moves_MF.square().sum()))
        for name, moves_MF in of.items()
    }
    along_NR = level_NF @ axes_FR
    rest_N = (level_NF.square().sum(dim=1) - along_NR.square().sum(dim=1)).clamp(min=0)
    return Reduced(_rounded(along_NR), rest_N, properties, level_NF.shape[1])


def _squared(rows_MR: Tensor) -> Tensor:
    """At most R rows of the same second moment."""
    value_M, axes_MR = axes_of(rows_MR)
    return value_M.sqrt()[:, None] * axes_MR


def _rounded(rows_MR: Tensor) -> Rounded:
    scale_R = rows_MR.abs().amax(dim=0).clamp(min=1e-12) / LARGEST
    return Rounded((rows_MR / scale_R).round().to(torch.int8), scale_R)
