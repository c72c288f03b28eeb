"""Soft assignments to prototypes or words, and how well one predicts another.

Shapes: B batch, P prototypes, L locations of a feature map, W words.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.arguments import checked
from mast.core.errors import UserError
from mast.losses.precision import tempered


@checked
@torch.no_grad()
def sinkhorn(score_BP: Tensor, epsilon: float, iterations: int) -> Tensor:
    """Assignments that follow the scores and use all prototypes equally.

    Args:
        score_BP: Cosines to the prototypes over the global batch, shape (B, P).
        epsilon: Weight of the assignments' entropy.
        iterations: Of Sinkhorn and Knopp's algorithm.

    Returns:
        Shape (B, P), without a gradient; each row sums to one.

    Reference:
        SwAV, Eq. 3 to 5, in the order of steps of its code: prototypes first.
    """
    # Logarithms: exponentials would leave float32's range.
    log_BP = tempered(score_BP, epsilon, "epsilon")
    for _ in range(iterations):
        log_BP = log_BP - log_BP.logsumexp(dim=0, keepdim=True)
        log_BP = log_BP - log_BP.logsumexp(dim=1, keepdim=True)
    return log_BP.softmax(dim=1)


@checked
def soft_cross_entropy(score_BP: Tensor, target_BP: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of predicted scores with soft assignments.

    Args:
        score_BP: Shape (B, P).
        target_BP: Probabilities, shape (B, P).
        temperature: By which scores are divided before the softmax.

    Returns:
        Scalar, the mean over samples.

    Reference:
        SwAV, Eq. 2; DINO, Eq. 2.
    """
    logits_BP = tempered(score_BP, temperature)
    return -(target_BP * F.log_softmax(logits_BP, dim=1)).sum(dim=1).mean()


@checked
def cross_view_entropy(
    scores: Sequence[Tensor], targets: Sequence[Tensor], temperature: float
) -> Tensor:
    """Cross-entropy of the assignments of the first views, as every other view predicts them.

    Args:
        scores: Of all views, (B, P) each.
        targets: Of the first views, probabilities, (B, P) each.
        temperature: By which scores are divided before the softmax.

    Returns:
        Scalar, the mean of `soft_cross_entropy` over pairs of a target and another view.
    """
    losses = [
        soft_cross_entropy(score_BP, target_BP, temperature)
        for view, target_BP in enumerate(targets)
        for other, score_BP in enumerate(scores)
        if other != view
    ]
    if not losses:
        raise UserError("expected a target and the scores of another view, got none")
    return torch.stack(losses).mean()
