"""Numbers that need no labels, of an encoder: do they predict how well its probes do?

N images, D dimensions of the representation.
"""

import torch
from torch import Tensor

from mast.augment import OPERATORS
from mast.data import CanvasSet
from mast.encoders.changes import changed_by
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.online import effective_rank

IMAGES = 1000
RIDGE = 1e-4  # of the mean variance of a dimension


def label_free(
    encoder: FrozenEncoder, canvases: CanvasSet, size: int, operators: tuple[str, ...]
) -> dict[str, float]:
    """RankMe, and LiDAR of all operators and of those of each property.

    LiDAR is the effective rank of the scatter of images relative to the scatter that operators
    cause, which here is the sum of the second moments of what each does to every image.

    Reference:
        RankMe (Garrido et al., ICML 2023); LiDAR (Thilak et al., ICLR 2024).
    """
    some = canvases.part(range(min(IMAGES, len(canvases))))
    features_ND = encoder.features(some, size)
    moved = dict[str, list[Tensor]]()
    for at, name in enumerate(operators):
        change = changed_by(name, None, size, len(some), at)
        moved_ND = encoder.features(some, size, change) - features_ND
        moved.setdefault(OPERATORS[name].changes, []).append(moved_ND)
    every = [moved_ND for each in moved.values() for moved_ND in each]
    return {
        "rankme": effective_rank(features_ND),
        "lidar": lidar(features_ND, torch.cat(every)),
        **{f"lidar/{of}": lidar(features_ND, torch.cat(each)) for of, each in moved.items()},
    }


def lidar(features_ND: Tensor, moved_MD: Tensor) -> float:
    """The effective rank of the covariance of features, whitened by that of displacements."""
    centered_ND = (features_ND - features_ND.mean(dim=0)).double()
    within_DD = moved_MD.double().T @ moved_MD.double() / len(features_ND)
    ridge = RIDGE * float(centered_ND.square().mean())
    value_D, axes_DD = torch.linalg.eigh(within_DD)
    white_ND = centered_ND @ axes_DD / (value_D.clamp(min=0) + ridge).sqrt()
    share_D = torch.linalg.svdvals(white_ND).square()
    share_D = share_D / share_D.sum()
    return float(torch.special.entr(share_D).sum().exp())
