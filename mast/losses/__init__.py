"""Pure loss functions: tensors in, a scalar out; no state, no collectives, no logging."""

from mast.losses.gaussian import (
    intersection,
    masked_distance,
    masked_uncertainty,
    subspace_mean,
    symmetric_kl,
)
from mast.losses.prediction import unexplained
from mast.losses.vicreg import covariance, invariance, variance

__all__ = [
    "covariance",
    "intersection",
    "invariance",
    "masked_distance",
    "masked_uncertainty",
    "subspace_mean",
    "symmetric_kl",
    "unexplained",
    "variance",
]
