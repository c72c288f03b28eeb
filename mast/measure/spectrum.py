"""How many dimensions a set of representations really uses.

N images, D dimensions.
"""

import torch
from torch import Tensor


def effective_rank(features_ND: Tensor) -> float:
    """The exponential of the entropy of the normalised singular values (RankMe).

    One dimension collapsed onto gives 1, D equally strong orthogonal dimensions give D. As in
    the reference the features are not centred, so a constant representation counts as one.

    Args:
        features_ND: Representations, any floating dtype, any scale.

    Returns:
        The effective rank, between 1 and min(N, D); 0 where every feature is zero.

    Reference:
        Garrido et al., RankMe: Assessing the Downstream Performance of Pretrained Self-Supervised
        Representations by Their Rank, ICML 2023, eq. 1.
    """
    if features_ND.ndim != 2 or features_ND.numel() == 0:
        raise ValueError(f"expected features of shape (N, D), got {tuple(features_ND.shape)}")
    if not torch.isfinite(features_ND).all():
        raise ValueError("expected finite features, got NaN or infinity")
    x_ND = features_ND.detach().double()
    x_ND = x_ND / x_ND.abs().amax().clamp(min=torch.finfo(torch.float64).tiny)
    n, d = x_ND.shape
    # The smaller Gram matrix in float64 keeps singular values down to 1e-8 of the largest, more
    # than the float32 features hold, at a fraction of the cost of a decomposition of (N, D).
    gram = x_ND.T @ x_ND if d <= n else x_ND @ x_ND.T
    eigenvalues = torch.linalg.eigvalsh(gram)
    # Below this the square root would turn rounding of the Gram matrix into singular values.
    rounding = eigenvalues[-1] * torch.finfo(torch.float64).eps * max(n, d)
    singular = eigenvalues[eigenvalues > rounding].sqrt()
    if len(singular) == 0:
        return 0.0
    share = singular / singular.sum()
    return float(torch.special.entr(share).sum().exp())
