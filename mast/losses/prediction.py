"""The share of a quantity's variance that a prediction leaves unexplained.

Shapes: B batch of this process, T numbers to predict.
"""

from torch import Tensor

from mast.losses.precision import full


def unexplained(
    predicted_BT: Tensor, target_BT: Tensor, mean_T: Tensor, variance_T: Tensor, eps: float = 1e-6
) -> Tensor:
    """Squared error of predicted standard scores, `mean_bt (p_bt - (t_bt - mu_t) / s_t)^2`.

    It is 1 for predictions of the mean and 0 for perfect ones: 1 - R^2 over the batch whose mean
    and variance are given, averaged over the T numbers.

    Args:
        predicted_BT: Predictions in units of the target's spread, shape (B, T).
        target_BT: What is to be predicted, in its own units, shape (B, T).
        mean_T: Its mean over the global batch.
        variance_T: Its (biased) variance over the global batch.
        eps: Added to the variance; a target that does not vary has standard scores of 0.

    Returns:
        Scalar, non-negative.

    Raises:
        ValueError: Predictions and targets of different shapes.

    Reference:
        AugSelf (Lee et al., NeurIPS 2021), Eq. 2, for a regression with standardised targets.
    """
    if predicted_BT.shape != target_BT.shape:
        raise ValueError(
            f"expected predictions of the targets' shape {tuple(target_BT.shape)}, "
            f"got {tuple(predicted_BT.shape)}"
        )
    score_BT = (full(target_BT) - mean_T) / (variance_T + eps).sqrt()
    return (full(predicted_BT) - score_BT).square().mean()
