"""Which dimensions of an embedding are invariant to an operator, and which are exempt from it.

An invariance is chosen when the embedding is used, not when it is trained.

Shapes: D dimensions of the embedding, K operators, U distinct masks.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mast.core.errors import UserError, unknown

NOTHING = 1e-6  # weights below this are rounding errors


def relative(mask_DK: Tensor) -> Tensor:
    """How invariant each dimension is to each operator, in [0, 1]: each mask over its maximum."""
    return mask_DK / mask_DK.amax(dim=0).clamp(min=torch.finfo(mask_DK.dtype).tiny)


def exempt_blocks(mask_DK: Tensor, operators: Sequence[str]) -> dict[str, Tensor]:
    """How exempt each dimension is from the operators of each distinct mask.

    Args:
        mask_DK: Masks as the distance uses them.
        operators: Names of the K operators.

    Returns:
        exempt_D in [0, 1], 1 where a dimension is not invariant at all, by the names of the
        operators that share the mask, joined with "+". An operator has no block if no dimension is
        exempt from it, or if its mask died, so that none is invariant to it.
    """
    columns_DU, column_K = relative(mask_DK).unique(dim=1, return_inverse=True)
    sharing: dict[int, list[str]] = {}
    for operator, column in zip(operators, column_K.tolist(), strict=True):
        sharing.setdefault(column, []).append(operator)
    blocks = {"+".join(names): 1 - columns_DU[:, column] for column, names in sharing.items()}
    return {
        name: exempt_D
        for name, exempt_D in blocks.items()
        if exempt_D.max() > NOTHING and exempt_D.min() < 1
    }


def selection(
    mask_DK: Tensor,
    operators: Sequence[str],
    ignore: Sequence[str] = (),
    match: Sequence[str] = (),
) -> Tensor:
    """The weight of each dimension when some operators are ignored and others are matched.

    With r_dk = m_dk / max_d m_dk, dimension d weighs the product of r_dk over the operators to
    ignore, times one minus the product of r_dk over those to match; operators that share a mask
    count once. A dimension counts if it is invariant to every ignored operator and exempt from at
    least one matched operator.

    Args:
        mask_DK: Masks as the distance uses them, non-negative; `operators` names the K.
        ignore: Operators to which the dimensions must be invariant.
        match: Operators; dimensions that are exempt from at least one of them are selected, so
            that neighbors agree in what these operators change.

    Returns:
        weight_D in [0, 1]; ones where nothing is chosen.

    Raises:
        UserError: An operator has no mask, its mask died, it is both ignored and matched, no
            dimension is left, or masks are not finite.
    """
    if not bool(mask_DK.isfinite().all()):
        raise UserError("the masks are not finite: the run diverged")
    for name in (*ignore, *match):
        if name not in operators:
            raise unknown("operator", name, operators)
    if both := [name for name in ignore if name in match]:
        raise UserError(f"match: expected operators that are not ignored, got {both[0]}")
    invariant_DK = relative(mask_DK)
    for name in (*ignore, *match):
        if not bool(invariant_DK[:, operators.index(name)].any()):
            raise UserError(f"expected operators whose mask did not die, got {name}")
    exempt_K = (1 - invariant_DK.amin(dim=0)) > NOTHING
    exempt = [name for name, some in zip(operators, exempt_K.tolist(), strict=True) if some]
    for name in match:
        if name not in exempt:
            raise UserError(
                f"match: expected operators from which this run exempts some dimensions "
                f"({', '.join(exempt) or 'none'}), got {name}: all dimensions are invariant to it"
            )
    ignored_DU, matched_DU = (
        invariant_DK[:, [operators.index(name) for name in names]].unique(dim=1)
        for names in (ignore, match)
    )
    weight_D = ignored_DU.prod(dim=1)
    if match:
        weight_D = weight_D * (1 - matched_DU.prod(dim=1))
    if weight_D.max() <= NOTHING:
        chosen = [f"ignore {' '.join(ignore)}"] if ignore else []
        chosen += [f"match {' '.join(match)}"] if match else []
        raise UserError(
            f"{' and '.join(chosen)}: expected operators whose subspaces share a dimension, got "
            "some that share none; choose fewer"
        )
    return weight_D
