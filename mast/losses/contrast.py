"""Losses of unit vectors: cosines, contrasts with negatives, a density of directions.

Shapes: B batch, D embedding dimensions, N negatives of each sample.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.arguments import checked
from mast.losses.precision import full, product, tempered

SHORTEST = 1e-12  # share of a view's length that weights leave


@checked
def negative_cosine(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """How little two batches of embeddings point the same way.

    Args:
        first_BD: Shape (B, D), of lengths from 1e-8 to 1e19.
        second_BD: Likewise; detach it for a loss that stops the gradient.

    Returns:
        Scalar in [-1, 1], the negative mean cosine.

    Reference:
        SimSiam, Eq. 1. BYOL's squared distance of unit vectors (Eq. 2) is two more than twice it.
    """
    return -F.cosine_similarity(full(first_BD), full(second_BD), dim=1).mean()


@checked
def contrast(positive_B: Tensor, negative_BN: Tensor, temperature: float) -> Tensor:
    """InfoNCE: the similarity of a pair relative to that of a sample to its negatives.

    Args:
        positive_B: Similarity of each sample to its positive, shape (B,).
        negative_BN: To each of its negatives, shape (B, N); -inf for one that does not count.
        temperature: By which similarities are divided.

    Returns:
        Scalar, `-mean log exp(p/t) / (exp(p/t) + sum exp(n/t))`.

    Reference:
        van den Oord et al., Contrastive Predictive Coding (2018), Eq. 4; MoCo, Eq. 1.
    """
    logits = tempered(torch.cat([positive_B[:, None], negative_BN], dim=1), temperature)
    truth_B = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    return F.cross_entropy(logits, truth_B)


@checked
def nt_xent(first_BD: Tensor, second_BD: Tensor, temperature: float) -> Tensor:
    """Normalised temperature-scaled cross-entropy over both views of a batch.

    Args:
        first_BD: Embeddings of the first view, shape (B, D), of lengths from 1e-12 to 1e19.
        second_BD: Those of the second view.
        temperature: By which cosines are divided.

    Returns:
        Scalar, the mean over 2 B anchors; the negatives of each are the 2 B - 2 views of others.

    Reference:
        SimCLR, Eq. 1 and algorithm 1.
    """
    both = F.normalize(full(torch.cat([first_BD, second_BD])), dim=1)
    return _contrast_of_pairs(product(both, both.T), temperature)


@checked
def masked_nt_xent(
    first_BD: Tensor, second_BD: Tensor, weight_BD: Tensor, temperature: float
) -> Tensor:
    """`nt_xent`, where each anchor is compared in a subspace of its own.

    The similarity of anchor a to view b is the cosine under `<x, y>_a = sum_d w_ad x_d y_d`, with w
    the weights of the anchor; it does not depend on their scale.

    Args:
        first_BD: As `nt_xent`, and `second_BD` and `temperature`.
        weight_BD: How much each dimension counts for both views of an image, 0 or more.

    Returns:
        Scalar; that of `nt_xent` where all weights are equal. The cosine is 0 where either has no
        length under the weights, of an anchor without weights to all.
    """
    both_ND = F.normalize(full(torch.cat([first_BD, second_BD])), dim=1)
    weight_ND = full(weight_BD).repeat(2, 1)
    most_N1 = weight_ND.detach().amax(dim=1, keepdim=True)
    weight_ND = weight_ND / most_N1.where(most_N1 > 0, 1)
    squared_NN = product(weight_ND, both_ND.square().T)
    seen_NN = squared_NN > SHORTEST**2
    length_NN = squared_NN.where(seen_NN, 1).sqrt()
    cosine_NN = product(weight_ND * both_ND, both_ND.T) / (length_NN.diag()[:, None] * length_NN)
    cosine_NN = cosine_NN.masked_fill(~(seen_NN & seen_NN.diag()[:, None]), 0)
    return _contrast_of_pairs(cosine_NN, temperature)


def _contrast_of_pairs(cosine_NN: Tensor, temperature: float) -> Tensor:
    """The contrast of all anchors, with both views of a batch behind each other."""
    count = len(cosine_NN)
    partner = torch.arange(count, device=cosine_NN.device).roll(count // 2)
    own = torch.eye(count, dtype=torch.bool, device=cosine_NN.device)
    own = own.scatter(1, partner[:, None], True)
    positive = cosine_NN.gather(1, partner[:, None]).squeeze(1)
    return contrast(positive, cosine_NN.masked_fill(own, -torch.inf), temperature)
