"""The error of predicted pixels.

Shapes: B batch, H patches of an image, P numbers of a patch.
"""

from torch import Tensor

from mast.core.arguments import checked


@checked
def pixel_error(predicted_BHP: Tensor, target_BHP: Tensor, standardize: bool = True) -> Tensor:
    """Mean squared error of the pixels of patches, in float32.

    Args:
        predicted_BHP: What was predicted.
        target_BHP: The pixels.
        standardize: Whether the pixels of each patch are taken from their mean, in units of their
            deviation.

    Returns:
        The mean over all, a scalar.

    Reference:
        MAE (He et al., CVPR 2022), section 3; facebookresearch/mae, `forward_loss`: the variance is
        unbiased, with 1e-6 beside it.
    """
    target_BHP, predicted_BHP = target_BHP.float(), predicted_BHP.float()
    if standardize:
        variance_BH1 = target_BHP.var(dim=2, keepdim=True)
        centred_BHP = target_BHP - target_BHP.mean(dim=2, keepdim=True)
        target_BHP = centred_BHP / (variance_BH1 + 1e-6).sqrt()
    return (predicted_BHP - target_BHP).square().mean()
