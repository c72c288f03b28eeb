"""Pure loss functions: tensors in, a scalar out; no state, no collectives, no logging."""

from mast.losses.assignment import bag_of_words, cross_view_entropy, sinkhorn, soft_cross_entropy
from mast.losses.contrast import (
    contrast,
    distributional_divergence,
    hardened_contrast,
    masked_nt_xent,
    negative_cosine,
    nt_xent,
    power_spherical_log_density,
)
from mast.losses.gaussian import (
    intersection,
    masked_distance,
    masked_uncertainty,
    subspace_mean,
    symmetric_kl,
)
from mast.losses.prediction import pixel_error, unexplained
from mast.losses.vicreg import Redundancy, covariance, invariance, redundancy, variance

__all__ = [
    "Redundancy",
    "bag_of_words",
    "contrast",
    "covariance",
    "cross_view_entropy",
    "distributional_divergence",
    "hardened_contrast",
    "intersection",
    "invariance",
    "masked_distance",
    "masked_nt_xent",
    "masked_uncertainty",
    "negative_cosine",
    "nt_xent",
    "pixel_error",
    "power_spherical_log_density",
    "redundancy",
    "sinkhorn",
    "soft_cross_entropy",
    "subspace_mean",
    "symmetric_kl",
    "unexplained",
    "variance",
]
