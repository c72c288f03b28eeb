"""Augmentation subspaces of a frozen encoder, in closed form.

Operator k displaces features by y(t_k(x)) - y(x), modeled as a Gaussian with second moment W_k.
Ignoring operators whitens by the sum of their W_k; matching operators ignores all others, then
projects onto the axes that the matched ones move most. This is a linear form of MAST's masked
distance divided by its uncertainty, and needs no training.

N images, P pairs, F features of all stages of an encoder, R axes of an operator, M axes of several
operators, J axes of a projection, K properties including the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mast.augment import OPERATORS
from mast.core.errors import UserError

AXES = 64  # axes to store per operator
RIDGE = 0.3  # ridge of `ignore`, relative to the mean eigenvalue
RIDGE_TO_MATCH = 0.1  # ridge of `match`, for the operators it ignores
MATCHED = 32  # axes that `match` projects onto
REST = "rest"  # the part that no operator moves
LEAST = 1e-4  # smallest weight of the rest, so that the other weights stay finite
ROUNDING = 3e-5  # relative variation of a constant stage, such as an instance-normalized mean
STILL = 1e-4  # share of the features' variance below which an operator has no effect

Weights = Mapping[str, float]  # weight of each property and of `REST`


class Space(nn.Module):
    """A linear map to the space in which to compare by cosine: (B, F) to (B, F or J)."""

    mean_F: Tensor
    scale_F: Tensor  # divisor of each feature
    axes_MF: Tensor  # orthonormal axes along which ignored operators move images
    shrink_M: Tensor  # share by which features shrink along them
    kept_JF: Tensor | None  # orthonormal axes of the projection; None for no projection

    def __init__(
        self,
        mean_F: Tensor,
        scale_F: Tensor,
        axes_MF: Tensor,
        shrink_M: Tensor,
        kept_JF: Tensor | None = None,
    ) -> None:
        super().__init__()
        for name, values in (
            ("mean_F", mean_F), ("scale_F", scale_F), ("axes_MF", axes_MF),
            ("shrink_M", shrink_M), ("kept_JF", kept_JF),
        ):  # fmt: skip
            self.register_buffer(name, values)

    def forward(self, features_BF: Tensor) -> Tensor:
        """Map features of all stages to this space, in float32."""
        return self.moved((features_BF.float() - self.mean_F) / self.scale_F)

    def moved(self, level_BF: Tensor) -> Tensor:
        """Map centered and scaled features, or their differences."""
        level_BF = level_BF - ((level_BF @ self.axes_MF.T) * self.shrink_M) @ self.axes_MF
        return level_BF if self.kept_JF is None else level_BF @ self.kept_JF.T

    def before(self, head: nn.Linear) -> nn.Linear:
        """A linear layer on features that equals this one on mapped features."""
        zero_F = torch.zeros_like(self.mean_F)
        with torch.no_grad():
            bias_C = head(self(zero_F[None]))[0]
        weight_CF = torch.autograd.functional.jacobian(
            lambda of_F: head(self(of_F[None]))[0], zero_F
        )
        folded = nn.Linear(len(zero_F), len(bias_C), device=bias_C.device)
        folded.load_state_dict({"weight": weight_CF, "bias": bias_C})
        return folded


@dataclass(frozen=True)
class Subspaces:
    """How operators move the features of an encoder."""

    mean_F: Tensor  # mean of the features of unchanged images
    scale_F: Tensor  # standard deviation of each stage, the same for all of its features
    # For each operator M (R, F): W_k = MᵀM is the second moment of its displacements of centered
    # and scaled features.
    factors: Mapping[str, Tensor]

    @classmethod
    def of(
        cls,
        features_NF: Tensor,
        changed: Mapping[str, Tensor],
        widths: Sequence[int],
        still: float = STILL,
    ) -> Subspaces:
        """Subspaces from features of images and of one changed copy per image and operator.

        Each stage, with sizes in `widths`, is centered and scaled to the same total variance.
        Operators that move features by less than the share `still` of the variance are left out.
        """
        mean_F = features_NF.mean(dim=0)
        variances = (features_NF - mean_F).double().square().mean(dim=0).split(list(widths))
        scale_F = torch.cat([depth.sum().sqrt().float().expand(len(depth)) for depth in variances])
        scale_F = scale_F.where(scale_F > 0, 1)
        moves = dict[str, Tensor]()
        for name, changed_NF in changed.items():
            moved_NF = (changed_NF - features_NF) / scale_F / len(features_NF) ** 0.5
            if float(moved_NF.square().sum()) >= still * len(widths):
                moves[name] = _leading(moved_NF, AXES)
        return cls(mean_F, scale_F, moves)

    def _check(self, operators: Sequence[str]) -> None:
        if missing := [name for name in operators if name not in self.factors]:
            raise UserError(
                f"ignore, match: {missing[0]} was not measured, or did not change the images; "
                f"choose from: {', '.join(self.factors)}"
            )

    def ignoring(self, operators: Sequence[str], ridge: float = RIDGE) -> Space:
        """The space that ignores operators: whitened by the sum of their second moments.

        `ridge` is added to the sum, as a share of its mean eigenvalue.
        """
        self._check(operators)
        nothing = self.mean_F.new_zeros(0, len(self.mean_F)), self.mean_F.new_zeros(0)
        if not operators:
            return Space(self.mean_F, self.scale_F, *nothing)
        value_M, axes_MF = axes_of(torch.cat([self.factors[name] for name in operators]))
        floor = ridge * float(value_M.sum()) / axes_MF.shape[1]
        shrink_M = 1 - (floor / (value_M + floor)).sqrt()
        return Space(self.mean_F, self.scale_F, axes_MF, shrink_M)

    def matching(
        self,
        operators: Sequence[str],
        ignored: Sequence[str] = (),
        axes: int = MATCHED,
    ) -> Space:
        """The space that matches operators: the axes that they move most, once others are ignored.

        Operators that change the same property as one of these are not ignored.
        """
        if both := [name for name in operators if name in ignored]:
            raise UserError(
                f"ignore, match: {both[0]} is in both; match already ignores all other properties"
            )
        self._check(operators)
        changed = {OPERATORS[name].changes for name in operators}
        others = [
            name
            for name in self.factors
            if name in ignored or OPERATORS[name].changes not in changed
        ]
        rest = self.ignoring(others, RIDGE_TO_MATCH)
        seen_RF = torch.cat([rest.moved(self.factors[name]) for name in operators])
        return Space(rest.mean_F, rest.scale_F, rest.axes_MF, rest.shrink_M,
                     axes_of(seen_RF)[1][:axes].clone())  # fmt: skip

    @property
    def properties(self) -> tuple[str, ...]:
        """The properties that the operators change."""
        return tuple(dict.fromkeys(OPERATORS[name].changes for name in sorted(self.factors)))

    @functools.cached_property
    def parts(self) -> Parts:
        """The terms of a squared distance."""
        return Parts(self)

    def weighted(self, weights: Weights) -> Space:
        """The space whose squared distance is a weighted sum over properties.

        Weights of `properties` and `REST` are 0 or more; 0 ignores a property, 1 is neutral.
        """
        parts = self.parts
        scale = max(weights.values())
        rest = max(weights[REST] / scale, LEAST)
        metric_MM = rest * parts.left_M.diag()
        for name, rows_RM in parts.rows.items():
            metric_MM += weights[name] / scale * rows_RM.T @ rows_RM
        value_M, turn_MM = torch.linalg.eigh(metric_MM.double())
        axes_MF = turn_MM.T.to(parts.axes_MF.dtype) @ parts.axes_MF
        shrink_M = (1 - (value_M.clamp(min=0) / rest).sqrt()).to(axes_MF.dtype)
        return Space(self.mean_F, self.scale_F, axes_MF, shrink_M)


def is_steady(part_NC: Tensor, size_BC: Tensor) -> bool:
    """Whether a stage is constant over images, up to rounding."""
    sizes = [float(of.double().norm(dim=1).mean()) for of in (part_NC, size_BC)]
    return float(part_NC.double().std(dim=0).norm()) <= ROUNDING * max(sizes)


class Parts:
    """The terms of a squared distance: one per property, and the rest, which remains if all
    operators are ignored.

    Whitened by W = Σ W_k + floor I, operator k has the share W^-½ W_k W^-½; these shares and the
    floor's add up to the identity. `left_M` is the rest along each of `axes_MF`; the squared
    product with `rows`, in these axes, is a property's term.
    """

    def __init__(self, subspaces: Subspaces) -> None:
        self._scale_F = subspaces.scale_F
        value_M, self.axes_MF = axes_of(torch.cat([*subspaces.factors.values()]))
        floor = RIDGE * float(value_M.sum()) / self.axes_MF.shape[1]
        self.left_M = floor / (value_M + floor)
        onto_FM = self.axes_MF.T * (value_M + floor).rsqrt()
        self.rows = {
            each: torch.cat([moves_RF for name, moves_RF in subspaces.factors.items()
                             if OPERATORS[name].changes == each]) @ onto_FM
            for each in subspaces.properties
        }  # fmt: skip

    def __call__(self, difference_PF: Tensor) -> Tensor:
        """The terms (P, K) of squared feature differences, the last for `REST`."""
        level_PF = difference_PF / self._scale_F
        along_PM = level_PF @ self.axes_MF.T
        parts = [(along_PM @ rows_RM.T).square().sum(dim=1) for rows_RM in self.rows.values()]
        rest_P = level_PF.square().sum(dim=1) - sum(parts)
        return torch.stack([*parts, rest_P.clamp(min=0)], dim=1)


def axes_of(rows_MF: Tensor) -> tuple[Tensor, Tensor]:
    """Squared singular values, largest first, and right singular vectors of a wide matrix."""
    gram_MM = (rows_MF @ rows_MF.T).double()
    value_M, left_MM = torch.linalg.eigh(gram_MM)
    value_M, left_MM = value_M.flip(0), left_MM.flip(1)
    count = min(int((value_M > 1e-9 * value_M[:1].sum()).sum()), rows_MF.shape[1])
    value_M, left_MM = value_M[:count], left_MM[:, :count]
    axes_MF = (left_MM / value_M.sqrt()).T.to(rows_MF.dtype) @ rows_MF
    return value_M.to(rows_MF.dtype), axes_MF


def _leading(rows_NF: Tensor, count: int) -> Tensor:
    """Fewer rows with nearly the same second moment: the leading axes, scaled."""
    value_M, axes_MF = axes_of(rows_NF)
    return value_M[:count].sqrt()[:, None] * axes_MF[:count]
