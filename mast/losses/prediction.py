"""Squared errors of predictions: of what operators did, and of pixels.

Shapes: B batch of this process, N global batch, T numbers to predict; H patches of an image, P
numbers of a patch.
"""

from torch import Tensor

from mast.core.arguments import checked
from mast.losses.precision import full


@checked
def unexplained(
    predicted_BT: Tensor, target_BT: Tensor, targets_NT: Tensor, eps: float = 1e-6
) -> Tensor:
    """Squared error of predicted standard scores, `mean_bt (p_bt - (t_bt - mu_t) / s_t)^2`.

    It is 1 for predictions of the mean and 0 for perfect ones: 1 - R^2 over the global batch,
    averaged over the T numbers. Targets that are NaN count neither for the error nor for mean and
    spread, and numbers that do not vary over the batch are left out.

    Args:
        predicted_BT: Predictions in units of the target's spread, shape (B, T).
        target_BT: What is to be predicted, in its own units, shape (B, T).
        targets_NT: The targets of all processes, of equal batches, shape (N, T).
        eps: Added to the variance; a number whose variance is below it does not vary.

    Returns:
        Scalar, non-negative; its mean over processes is that of the global batch. 1, without a
        gradient, where no number varies.

    Reference:
        AugSelf (Lee et al., NeurIPS 2021), Eq. 2, for a regression with standardised targets.
    """
    targets_NT = full(targets_NT)
    count_T = (~targets_NT.isnan()).sum(dim=0).clamp(min=1)
    mean_T = targets_NT.nansum(dim=0) / count_T
    variance_T = (targets_NT - mean_T).square().nansum(dim=0) / count_T
    score_BT = (full(target_BT) - mean_T) / (variance_T + eps).sqrt()
    known_BT = ~score_BT.isnan()
    squared_BT = (full(predicted_BT) - score_BT.nan_to_num()).square() * known_BT
    processes = len(targets_NT) / len(target_BT)
    error_T = squared_BT.sum(dim=0) / count_T * processes
    varies_T = variance_T > eps
    mean = (error_T * varies_T).sum() / varies_T.sum().clamp(min=1)
    return mean + (~varies_T.any()).to(mean.dtype)


@checked
def pixel_error(predicted_BHP: Tensor, target_BHP: Tensor) -> Tensor:
    """Mean squared error of standardized pixels of patches, in float32.

    The pixels of each patch are taken from their mean, in units of their deviation.

    Returns:
        The mean over all, a scalar.

    Reference:
        MAE (He et al., CVPR 2022), section 3; facebookresearch/mae, `forward_loss`: the variance is
        unbiased, plus 1e-6.
    """
    target_BHP = target_BHP.float()
    variance_BH1 = target_BHP.var(dim=2, keepdim=True)
    centred_BHP = target_BHP - target_BHP.mean(dim=2, keepdim=True)
    return (predicted_BHP.float() - centred_BHP / (variance_BH1 + 1e-6).sqrt()).square().mean()
