"""Pure loss functions: tensors in, a scalar out; no state, no collectives, no logging."""

from mast.losses.assignment import cross_view_entropy as cross_view_entropy
from mast.losses.assignment import sinkhorn as sinkhorn
from mast.losses.assignment import soft_cross_entropy as soft_cross_entropy
from mast.losses.contrast import contrast as contrast
from mast.losses.contrast import masked_nt_xent as masked_nt_xent
from mast.losses.contrast import negative_cosine as negative_cosine
from mast.losses.contrast import nt_xent as nt_xent
from mast.losses.gaussian import intersection as intersection
from mast.losses.gaussian import masked_distance as masked_distance
from mast.losses.gaussian import masked_uncertainty as masked_uncertainty
from mast.losses.gaussian import subspace_mean as subspace_mean
from mast.losses.gaussian import symmetric_kl as symmetric_kl
from mast.losses.prediction import pixel_error as pixel_error
from mast.losses.prediction import unexplained as unexplained
from mast.losses.sketch import epps_pulley as epps_pulley
from mast.losses.sketch import normal_moments as normal_moments
from mast.losses.sketch import sliced_wasserstein as sliced_wasserstein
from mast.losses.vicreg import covariance as covariance
from mast.losses.vicreg import invariance as invariance
from mast.losses.vicreg import redundancy as redundancy
from mast.losses.vicreg import variance as variance
