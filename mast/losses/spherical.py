"""A distribution of directions.

Shapes: B batch, D dimensions.
"""

import math

import torch
from torch import Tensor

from mast.core.arguments import checked
from mast.losses.precision import full


@checked
def power_spherical_log_density(
    direction_BD: Tensor, mean_BD: Tensor, concentration_B: Tensor
) -> Tensor:
    """Log-density of directions under power spherical distributions.

    Args:
        direction_BD: Unit vectors, shape (B, D), D >= 2.
        mean_BD: Mean directions, unit vectors, shape (B, D).
        concentration_B: Positive, shape (B,); at 0 the distribution is uniform.

    Returns:
        Shape (B,), `log C + kappa log(1 + mean . direction)`.

    Reference:
        De Cao and Aziz, The Power Spherical Distribution (2020), Eq. 5 and 6.
    """
    direction_BD, mean_BD, kappa_B = map(full, (direction_BD, mean_BD, concentration_B))
    beta = (direction_BD.shape[1] - 1) / 2
    alpha_B = beta + kappa_B
    log_norm_B = (
        (alpha_B + beta) * math.log(2.0)
        + beta * math.log(math.pi)
        + torch.lgamma(alpha_B)
        - torch.lgamma(alpha_B + beta)
    )
    # Rounding may leave the cosine of opposite vectors below -1.
    cosine_B = (direction_BD * mean_BD).sum(dim=1).clamp(min=-1 + 1e-6)
    return kappa_B * torch.log1p(cosine_B) - log_norm_B
