"""Average precision of a ranking, by the two definitions of the VOC challenges.

N images, R test sets drawn from them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RECALLS = torch.linspace(0, 1, 11, dtype=torch.float64)


class AveragePrecision(NamedTuple):
    """Both definitions, each (R,) in [0, 1].

    Attributes:
        eleven_point: VOC2007: the mean, over recalls of 0, .1, …, 1, of the best precision at that
            recall or a higher one.
        area: VOC2010 and later: the area under the curve of these best precisions.
    """

    eleven_point: Tensor
    area: Tensor


def average_precision(
    score_N: Tensor, present_N: Tensor, count_RN: Tensor | None = None
) -> AveragePrecision:
    """Average precision of one class; images of equal score enter the curve together.

    Args:
        score_N: Larger ranks higher.
        present_N: bool, whether the image shows the class.
        count_RN: How often each image occurs in each test set; once in a single one by default.

    Returns:
        NaN for a test set that does not show the class.

    Reference:
        Everingham et al., The Pascal Visual Object Classes (VOC) Challenge, IJCV 2010, section 4.2,
        and the development kits of 2007 and 2010.
    """
    if count_RN is None:
        count_RN = torch.ones(1, len(score_N))
    order_N = score_N.argsort(descending=True, stable=True)
    sorted_N = score_N[order_N]
    last_N = torch.ones(len(score_N), dtype=torch.bool)
    last_N[:-1] = sorted_N[:-1] != sorted_N[1:]  # its equals before it are no point of the curve
    count_RN = count_RN[:, order_N].double()
    found_RN = (count_RN * present_N[order_N]).cumsum(dim=1)
    ranked_RN = count_RN.cumsum(dim=1)
    precision_RN = (found_RN / ranked_RN.clamp(min=1)) * last_N
    best_RN = precision_RN.flip(1).cummax(dim=1).values.flip(1)
    recall_RN = found_RN / found_RN[:, -1:]  # 0 / 0 where the class is not shown
    gained_RN = recall_RN.diff(dim=1, prepend=torch.zeros_like(recall_RN[:, :1]))
    area_R = (gained_RN * best_RN).sum(dim=1)
    # The first place with at least that recall; rounding must not push it one further.
    at_R11 = torch.searchsorted(recall_RN, RECALLS.expand(len(recall_RN), -1) - 1e-9)
    eleven_R = best_RN.gather(1, at_R11.clamp(max=len(score_N) - 1)).mean(dim=1)
    return AveragePrecision(torch.where(area_R.isnan(), area_R, eleven_R), area_R)
