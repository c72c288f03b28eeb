"""Pure loss functions: tensors in, a scalar out; no state, no collectives, no logging."""

from mast.losses.gaussian import joint_distance, masked_distance, subspace_mean, symmetric_kl
from mast.losses.vicreg import covariance, invariance, variance

__all__ = [
    "covariance",
    "invariance",
    "joint_distance",
    "masked_distance",
    "subspace_mean",
    "symmetric_kl",
    "variance",
]
