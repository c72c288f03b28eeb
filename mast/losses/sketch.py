"""How far embeddings are from a standard normal distribution, seen along random directions.

Shapes: B batch (over all processes), D dimensions of the embedding, S directions of unit length.
"""

import torch
from torch import Tensor

from mast.core.arguments import checked
from mast.losses.precision import full, product

FREQUENCIES, HIGHEST = 17, 3.0  # at which characteristic functions are compared


@checked
def epps_pulley(embedding_BD: Tensor, direction_DS: Tensor) -> Tensor:
    """SIGReg: the Epps-Pulley statistic of normality, averaged over directions.

    Returns:
        Scalar: B times the integral, from -3 to 3, of the squared distance between the
        characteristic functions of the embeddings and of a normal distribution, weighted by the
        latter.

    Reference:
        LeJEPA (Balestriero and LeCun, arXiv 2511.08544), algorithm 1, with the range of the
        authors' code.
    """
    along_BS = product(full(embedding_BD), full(direction_DS))
    frequency_T = torch.linspace(
        0, HIGHEST, FREQUENCIES, device=along_BS.device, dtype=along_BS.dtype
    )
    angle_BST = along_BS[:, :, None] * frequency_T
    normal_T = (-frequency_T.square() / 2).exp()
    cosine_ST, sine_ST = angle_BST.cos().mean(dim=0), angle_BST.sin().mean(dim=0)
    apart_ST = (cosine_ST - normal_T).square() + sine_ST.square()
    integral_S = 2 * torch.trapezoid(normal_T * apart_ST, dx=HIGHEST / (FREQUENCIES - 1))
    return len(along_BS) * integral_S.mean()


@checked
def normal_moments(embedding_BD: Tensor) -> tuple[Tensor, Tensor]:
    """How far means are from 0, and standard deviations from 1: squares, averaged over D.

    Reference:
        VISReg (Wu et al., arXiv 2606.02572), Eq. 6 and 1.
    """
    embedding_BD = full(embedding_BD)
    deviation_D = embedding_BD.std(dim=0, correction=0)
    return embedding_BD.mean(dim=0).square().mean(), (deviation_D - 1).square().mean()


@checked
def sliced_wasserstein(embedding_BD: Tensor, direction_DS: Tensor, eps: float = 1e-4) -> Tensor:
    """Squared Wasserstein distance of standardized embeddings from a normal distribution.

    The gradient does not change standard deviations.

    Returns:
        Scalar, the mean over directions and over B quantiles.

    Reference:
        VISReg, Eq. 4.
    """
    embedding_BD = full(embedding_BD)
    deviation_D = embedding_BD.detach().std(dim=0, correction=0) + eps
    standard_BD = (embedding_BD - embedding_BD.mean(dim=0)) / deviation_D
    sorted_BS = product(standard_BD, full(direction_DS)).sort(dim=0).values
    rank_B = torch.arange(1, len(sorted_BS) + 1, device=sorted_BS.device)
    share_B = rank_B.to(sorted_BS.dtype) / (len(sorted_BS) + 1)
    return (sorted_BS - torch.special.ndtri(share_B)[:, None]).square().mean()
