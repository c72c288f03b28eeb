"""Masks: one non-negative column per operator, which selects that operator's subspace.

Shapes: D embedding dimensions, K operators, G groups of operators.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.core.transfer import numbers

MaskKind = Literal["learned", "handcrafted", "none"]
BlockKind = Literal["exempt", "budgeted"]
MaskStart = Literal["block", "leave_one_out"]
MaskNorm = Literal["none", "l2"]
TEMPERATURE = 0.25  # of learned blocks; the lower, the closer to 0 and 1


class Masks(nn.Module):
    """K masks over a D-dimensional embedding, `M = relu(U)`.

    Args:
        dim: D.
        count: K.
        kind: "learned"; "handcrafted": fixed disjoint blocks of ones; "none": fixed ones.
        start: Start of learned masks. "block": each column draws its block of D/K dimensions
            from N(1, 0.1) and adds noise N(0.2, 0.1) everywhere; "leave_one_out": every column
            starts at N(1, 0.1), except on its own block, which starts at N(0.2, 0.1): a share
            `common` of the dimensions is asked for every invariance, the others, in K blocks,
            for all but one.
        normalize: Scale of a column before use. "none"; "l2": norm sqrt(D), so that the mean
            square is 1 and the distance cannot fall by shrinking the mask.
        common: Share of the dimensions that "leave_one_out" starts in every subspace, in [0, 1].
        seed: Seed of the start.

    Reference:
        MAST, sections 3.1 and A ("Mask learning").
    """

    def __init__(
        self,
        dim: int,
        count: int,
        kind: MaskKind = "learned",
        start: MaskStart = "block",
        normalize: MaskNorm = "none",
        common: float = 0.75,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if count > dim:
            raise UserError(f"{count} masks need at least {count} embedding dimensions, got {dim}")
        self.normalize = normalize
        generator = torch.Generator().manual_seed(seed)
        if kind == "learned":
            self.logits_DK = nn.Parameter(_start(dim, count, start, common, generator))
        else:
            fixed_DK = blocks(dim, count) if kind == "handcrafted" else torch.ones(dim, count)
            self.register_buffer("logits_DK", fixed_DK)

    def forward(self) -> Tensor:
        """The masks as the loss uses them, shape (D, K), non-negative."""
        mask_DK = self.logits_DK.relu()
        if self.normalize == "none":
            return mask_DK
        scale_K = mask_DK.square().mean(dim=0).sqrt()
        return mask_DK / scale_K.clamp(min=1e-6)

    @torch.no_grad()
    def statistics(self) -> dict[str, float]:
        """Summarise the masks (before normalisation) for the log."""
        return _statistics(self.logits_DK.relu().float())


class ExemptBlocks(nn.Module):
    """Masks of ones, but for a block of dimensions that is exempt from a group's invariances.

    Fixed, group g is exempt in the g-th block of `share` D dimensions. Learned, the exempt part is
    `sigmoid((u - tau) / T)` of a column u, with tau such that its mean is `share`: a budget, which
    can neither fall nor rise and that no weight has to hold.

    Args:
        dim: D.
        groups: Of each operator, the index of its group, 0 to G - 1, or None: exempt nowhere.
        share: Of the dimensions that each group gets.
        learned: Whether the blocks are learned.
        seed: Seed of the start of learned blocks, u ~ N(0, 1).

    Attributes:
        count: G.
    """

    def __init__(
        self,
        dim: int,
        groups: Sequence[int | None],
        share: float = 0.05,
        learned: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        count = 1 + max((group for group in groups if group is not None), default=-1)
        size = round(share * dim)
        if count and not (size and count * size < dim):  # else all would be compared
            raise UserError(
                f"exempt_share {share:g} of {dim} dimensions is {size} for each of {count} groups; "
                f"expected {1 / dim:.2g} to below {1 / count:.2g}"
            )
        self.learned, self.count, self.share = learned, count, share
        self.column_K: Tensor
        self.logits_DG: Tensor
        column_K = torch.tensor([count if group is None else group for group in groups])
        self.register_buffer("column_K", column_K, persistent=False)
        if learned:
            generator = torch.Generator().manual_seed(seed)
            self.logits_DG = nn.Parameter(torch.randn(dim, count, generator=generator))
        else:
            block_DG = torch.zeros(dim, count)
            for group in range(count):
                block_DG[group * size : (group + 1) * size, group] = 1.0
            self.register_buffer("logits_DG", block_DG)

    def forward(self) -> Tensor:
        """The masks as the loss uses them, one minus the exempt part: shape (D, K), in [0, 1]."""
        part_DG = self.logits_DG
        if self.learned:
            part_DG = budgeted(part_DG, self.share, TEMPERATURE)
        nowhere_D1 = part_DG.new_zeros(len(part_DG), 1)
        return 1.0 - torch.cat([part_DG, nowhere_D1], dim=1)[:, self.column_K]

    @torch.no_grad()
    def statistics(self) -> dict[str, float]:
        """Summarise the masks for the log."""
        return _statistics(self().float())


def budgeted(logits_DG: Tensor, share: float, temperature: float) -> Tensor:
    """`sigmoid((u - tau) / T)` whose mean over D is the same for every column.

    The gradient of tau is that of the implicit function: with s the sigmoid's derivative,
    `d tau / d u_j = s_j / sum s`.

    Args:
        logits_DG: u, shape (D, G).
        share: The mean, in (0, 1).
        temperature: T, positive.

    Returns:
        Shape (D, G), in (0, 1).
    """
    scaled_DG = logits_DG / temperature
    with torch.no_grad():
        tau_G = _threshold(scaled_DG, share)
        part_DG = (scaled_DG - tau_G).sigmoid()
        slope_DG = part_DG * (1 - part_DG)
        slope_DG = slope_DG / slope_DG.sum(dim=0).clamp(min=1e-12)
    moved_G = (slope_DG * (scaled_DG - scaled_DG.detach())).sum(dim=0)  # 0, but for its gradient
    return (scaled_DG - tau_G - moved_G).sigmoid()


def _threshold(scaled_DG: Tensor, share: float) -> Tensor:
    """tau of every column, (G,): each round looks at 33 values and keeps one of 32 parts."""
    margin = math.log(share / (1 - share))
    low_G, high_G = scaled_DG.amin(dim=0) - margin, scaled_DG.amax(dim=0) - margin
    steps_S1 = torch.linspace(0, 1, 33, device=scaled_DG.device)[:, None]
    for _ in range(4):
        tau_SG = low_G + (high_G - low_G) * steps_S1
        mean_SG = (scaled_DG - tau_SG[:, None]).sigmoid().mean(dim=1)
        below_1G = (mean_SG > share).sum(dim=0, keepdim=True).clamp(1, 32)
        low_G = tau_SG.gather(0, below_1G - 1).squeeze(0)
        high_G = tau_SG.gather(0, below_1G).squeeze(0)
    return (low_G + high_G) / 2


def _statistics(mask_DK: Tensor) -> dict[str, float]:
    """What a run logs of its masks.

    Returns:
        The "mean" of all entries; the share of them that is "zero"; the mean "cosine" over pairs of
        masks (0 where K is 1); the "active_share", the mean participation ratio
        `(sum m)^2 / (D sum m^2)` of a mask: the share of dimensions that it effectively selects.
    """
    dim, count = mask_DK.shape
    unit_DK = mask_DK / mask_DK.norm(dim=0).clamp(min=1e-12)
    cosine_KK = unit_DK.T @ unit_DK
    pairs = count * (count - 1)
    off_diagonal = (cosine_KK.sum() - cosine_KK.diagonal().sum()) / max(pairs, 1)
    share_K = mask_DK.sum(dim=0).square() / (dim * mask_DK.square().sum(dim=0).clamp(min=1e-12))
    zero = (mask_DK == 0).float().mean()
    values = {
        "mean": mask_DK.mean(),
        "zero": zero,
        "cosine": off_diagonal,
        "active_share": share_K.mean(),
    }
    return dict(zip(values, numbers(values.values()), strict=True))


def blocks(dim: int, count: int) -> Tensor:
    """Disjoint masks: column k is 1 on the k-th of `count` blocks of dimensions, 0 elsewhere."""
    mask_DK = torch.zeros(dim, count)
    for column, block in enumerate(torch.arange(dim).tensor_split(count)):
        mask_DK[block, column] = 1.0
    return mask_DK


def _start(
    dim: int, count: int, start: MaskStart, common: float, generator: torch.Generator
) -> Tensor:
    noise_DK = 0.2 + 0.1 * torch.randn(dim, count, generator=generator)
    if start == "leave_one_out":
        inside_DK = torch.ones(dim, count)
        first = int(common * dim)
        inside_DK[first:] -= blocks(dim - first, count)
        return noise_DK + 0.8 * inside_DK
    own_DK = 1.0 + 0.1 * torch.randn(dim, count, generator=generator)
    return blocks(dim, count) * own_DK + noise_DK
