"""Dimensions of an embedding by operator: invariant to it or exempt from it.

Which invariance is wanted is chosen when an embedding is used, not when it is trained.

Shapes: D dimensions of the embedding, K operators, U distinct masks.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mast.core.errors import UserError, unknown

NOTHING = 1e-6  # weights below this are rounding errors


def relative(mask_DK: Tensor) -> Tensor:
    """How invariant each dimension is to each operator, in [0, 1]: masks over their largest."""
    return mask_DK / mask_DK.amax(dim=0).clamp(min=torch.finfo(mask_DK.dtype).tiny)


def exempt_blocks(mask_DK: Tensor, operators: Sequence[str]) -> dict[str, Tensor]:
    """What each distinct mask, as the distance uses it, leaves out of its subspace.

    Returns:
        exempt_D in [0, 1], 1 where a dimension is not invariant at all, by the names of the
        operators that have this mask, joined with "+". Operators that are exempt nowhere have no
        block, and neither have those whose mask died: it has no subspace to be exempt from.
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
    """The weight of each dimension where some operators are to be ignored and others to be matched.

    With r_dk = m_dk / max_d m_dk, dimension d weighs the product of r_dk over the operators to
    ignore, times one minus the product of r_dk over those to match; operators that share a mask
    count once. A dimension counts if it is invariant to all that is ignored and exempt from any
    that is matched, so that neighbours agree in everything that is matched.

    Args:
        mask_DK: Masks as the distance uses them, non-negative; `operators` names the K.
        ignore: Operators to which the dimensions must be invariant.
        match: Operators from which they must be exempt, so that neighbours agree in what these
            change; of several, from any.

    Returns:
        weight_D in [0, 1]; ones where nothing is chosen.

    Raises:
        UserError: An operator without a mask, or whose mask died, one that is both ignored and
            matched, a choice that leaves no dimension, or masks that are not finite.
    """
    if not bool(mask_DK.isfinite().all()):
        raise UserError("the masks are not finite: the run diverged")
    for name in (*ignore, *match):
        if name not in operators:
            raise unknown("operator", name, operators)
    if both := [name for name in ignore if name in match]:
        raise UserError(f"{both[0]} cannot be both ignored and matched")
    invariant_DK = relative(mask_DK)
    for name in (*ignore, *match):
        if not bool(invariant_DK[:, operators.index(name)].any()):
            raise UserError(f"the mask of {name} died, so that nothing can be chosen by it")
    exempt_K = (1 - invariant_DK.amin(dim=0)) > NOTHING
    exempt = [name for name, some in zip(operators, exempt_K.tolist(), strict=True) if some]
    for name in match:
        if name not in exempt:
            raise UserError(
                f"{name} cannot be matched: this run kept no dimensions for it, all are invariant "
                f"to it. It kept some for {', '.join(exempt) or 'no operator'}."
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
            f"no dimension is left by {' and '.join(chosen)}: the subspaces of these operators "
            "have none in common. Choose fewer operators."
        )
    return weight_D
