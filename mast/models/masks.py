"""Masks: one non-negative column per operator, which selects that operator's subspace.

Shapes: D embedding dimensions, K operators, G groups of operators.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.core.transfer import numbers

MaskKind = Literal["learned", "handcrafted", "none"]
COMMON = 0.75  # share of the dimensions that start in every subspace


class Masks(nn.Module):
    """K masks over a D-dimensional embedding, `M = relu(U)`.

    Args:
        dim: D.
        count: K.
        kind: "learned"; "handcrafted": fixed disjoint blocks of ones; "none": fixed ones.
        printed: Whether they are the paper's: each learned column draws its block of D/K dimensions
            from N(1, 0.1) and adds noise N(0.2, 0.1) everywhere. Otherwise every column starts at
            N(1, 0.1), except on its own block, at N(0.2, 0.1): three quarters of the dimensions are
            asked for every invariance, the others, in K blocks, for all but one. Columns are then
            used with a mean square of 1, so that no distance falls by shrinking a mask.
        seed: Seed of the start.

    Reference:
        MAST, sections 3.1 and A ("Mask learning").
    """

    def __init__(
        self,
        dim: int,
        count: int,
        kind: MaskKind = "learned",
        printed: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if count > dim:
            raise UserError(f"{count} masks need at least {count} embedding dimensions, got {dim}")
        self.printed = printed
        if kind == "learned":
            generator = torch.Generator().manual_seed(seed)
            self.logits_DK = nn.Parameter(_start(dim, count, printed, generator))
        else:
            fixed_DK = blocks(dim, count) if kind == "handcrafted" else torch.ones(dim, count)
            self.register_buffer("logits_DK", fixed_DK)

    def forward(self) -> Tensor:
        """The masks as the loss uses them, shape (D, K), non-negative."""
        mask_DK = self.logits_DK.relu()
        if self.printed:
            return mask_DK
        scale_K = mask_DK.square().mean(dim=0).sqrt()
        return mask_DK / scale_K.clamp(min=1e-6)

    @torch.no_grad()
    def statistics(self) -> dict[str, float]:
        """What a run logs of its masks, before normalisation.

        Returns:
            The "mean" of all entries; the share of them that is "zero"; the mean "cosine" over
            pairs of masks (0 where K is 1); the "active_share", the mean participation ratio
            `(sum m)^2 / (D sum m^2)` of a mask: the share of dimensions that it effectively
            selects.
        """
        mask_DK = self.logits_DK.relu().float()
        dim, count = mask_DK.shape
        unit_DK = mask_DK / mask_DK.norm(dim=0).clamp(min=1e-12)
        cosine_KK = unit_DK.T @ unit_DK
        pairs = count * (count - 1)
        off_diagonal = (cosine_KK.sum() - cosine_KK.diagonal().sum()) / max(pairs, 1)
        share_K = mask_DK.sum(dim=0).square() / (dim * mask_DK.square().sum(dim=0).clamp(min=1e-12))
        values = {
            "mean": mask_DK.mean(),
            "zero": (mask_DK == 0).float().mean(),
            "cosine": off_diagonal,
            "active_share": share_K.mean(),
        }
        return dict(zip(values, numbers(values.values()), strict=True))


class ExemptBlocks(nn.Module):
    """Masks of ones, but for a block of dimensions that is exempt from a group's invariances.

    Group g is exempt in the g-th block of `share` D dimensions.

    Args:
        dim: D.
        groups: Of each operator, the index of its group, 0 to G - 1, or None: exempt nowhere.
        share: Of the dimensions that each group gets.

    Attributes:
        count: G.
    """

    def __init__(self, dim: int, groups: Sequence[int | None], share: float) -> None:
        super().__init__()
        self.count = count = 1 + max((group for group in groups if group is not None), default=-1)
        size = round(share * dim)
        if count and not (size and count * size < dim):  # else all would be compared
            raise UserError(
                f"exempt_share {share:g} of {dim} dimensions is {size} for each of {count} groups; "
                f"expected {1 / dim:.2g} to below {1 / count:.2g}"
            )
        mask_DK = torch.ones(dim, len(groups))
        for column, group in enumerate(groups):
            if group is not None:
                mask_DK[group * size : (group + 1) * size, column] = 0.0
        self.mask_DK: Tensor
        self.register_buffer("mask_DK", mask_DK)

    def forward(self) -> Tensor:
        """The masks as the loss uses them, shape (D, K), 0 or 1."""
        return self.mask_DK


def blocks(dim: int, count: int) -> Tensor:
    """Disjoint masks: column k is 1 on the k-th of `count` blocks of dimensions, 0 elsewhere."""
    mask_DK = torch.zeros(dim, count)
    for column, block in enumerate(torch.arange(dim).tensor_split(count)):
        mask_DK[block, column] = 1.0
    return mask_DK


def _start(dim: int, count: int, printed: bool, generator: torch.Generator) -> Tensor:
    noise_DK = 0.2 + 0.1 * torch.randn(dim, count, generator=generator)
    if not printed:
        inside_DK = torch.ones(dim, count)
        first = int(COMMON * dim)
        inside_DK[first:] -= blocks(dim - first, count)
        return noise_DK + 0.8 * inside_DK
    own_DK = 1.0 + 0.1 * torch.randn(dim, count, generator=generator)
    return blocks(dim, count) * own_DK + noise_DK
