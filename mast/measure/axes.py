"""Coordinates in which a regression on features is well conditioned.

Features are centred (the bias absorbs it), rotated to their principal axes and divided by the
deviation along each. Weights along an axis are multiplied by it, and the penalty λ of their squares
becomes λ / variance: the optimum is the same, but numbers are near 1, and the loss is curved alike
in all directions in which it is not the penalty that counts.

N images, D dimensions, R principal axes along which the features vary, then the constant axis of
the bias (P = R + 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.measure.compute import threads_for

SPREAD = 1e-10  # variance below which an axis is rounding, of that of the dimensions it is made of
LEAST = 1e-8  # deviation; below, what features add to scores is rounding of the biases
CHUNK = 16384  # rows in float64 at once


@dataclass(frozen=True)
class Axes:
    """Principal axes of features, in float64.

    Args:
        mean_D: Of the features.
        axes_DR: Orthonormal columns.
        variance_P: Of the features along each axis, the last one 1.
    """

    mean_D: Tensor
    axes_DR: Tensor
    variance_P: Tensor

    @classmethod
    def fitted(cls, features_ND: Tensor) -> Axes:
        """The axes along which the features vary; weights along the others are 0 anyway.

        An axis counts where its variance is above what rounding leaves of the dimensions that it
        is made of, so that a dimension of large scale hides none of small scale.

        Raises:
            UserError: They vary, but by too little.
        """
        mean_D = features_ND.mean(dim=0, dtype=torch.float64)
        variance_D = torch.zeros_like(mean_D)
        for chunk_RD in features_ND.split(CHUNK):
            variance_D += (chunk_RD - mean_D).square().sum(dim=0) / len(features_ND)
        least_D = SPREAD * variance_D + (torch.finfo(features_ND.dtype).eps * mean_D).square()
        # Axes are orthogonal up to rounding, which leaves some of the strongest in the weakest.
        rounding = len(mean_D) * torch.finfo(torch.float64).eps ** 2 * float(variance_D.sum())
        rest_DR = None
        if features_ND.shape[0] < features_ND.shape[1]:
            rest_DR, _ = torch.linalg.qr((features_ND - mean_D).T)
        variances, axes = [mean_D.new_empty(0)], [mean_D.new_empty(len(mean_D), 0)]
        while rest_DR is None or rest_DR.shape[1]:
            variance_R, rest_DR = _principal(features_ND, mean_D, rest_DR)
            # Variances far below the largest are rounding of that: they are found again without it.
            found_R = variance_R > SPREAD * variance_R[-1]
            found_R &= variance_R > rest_DR.square().T @ least_D + rounding
            if not found_R.any():
                break
            variances.append(variance_R[found_R])
            axes.append(rest_DR[:, found_R])
            rest_DR = rest_DR[:, ~found_R]
        variance_R = torch.cat(variances)
        if len(variance_R) and (deviation := float(variance_R.amax().sqrt())) < LEAST:
            raise UserError(
                f"the features vary by {deviation:.1g} at most, too little for a regression: "
                f"expected {LEAST:g} or more. Multiply them, or evaluate an earlier checkpoint."
            )
        return cls(mean_D, torch.cat(axes, dim=1), torch.cat([variance_R, mean_D.new_ones(1)]))

    def curvature(self, classes: int) -> float:
        """The cross-entropy's curvature along the strongest axis, at zero weights; 0 without one.

        There every class has probability 1 / C, hence the variance over C.
        """
        return float(self.variance_P[:-1].amax()) / classes if len(self.variance_P) > 1 else 0.0

    def coordinates(self, features_ND: Tensor) -> Tensor:
        """Features along the axes, of variance 1, and a last column of ones for the bias.

        They are computed in float64, so that weak axes keep all the digits that they have.

        Returns:
            x_NP, in the type of the features.
        """
        scaled_DR = self.axes_DR * self.variance_P[:-1].rsqrt()
        x_NP = features_ND.new_ones(len(features_ND), len(self.variance_P))
        for chunk_RD, x_RP in zip(features_ND.split(CHUNK), x_NP.split(CHUNK), strict=True):
            x_RP[:, :-1] = (chunk_RD - self.mean_D) @ scaled_DR
        return x_NP

    def of_features(self, weight_CP: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the coordinates as weight_CD and bias_C of the features, in float64."""
        weight_CD = (weight_CP[:, :-1] * self.variance_P[:-1].rsqrt()) @ self.axes_DR.T
        return weight_CD, weight_CP[:, -1] - weight_CD @ self.mean_D


def _principal(
    features_ND: Tensor, mean_D: Tensor, basis_DR: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Variances and principal axes within the space of a basis, all of it without one."""
    dim = len(mean_D) if basis_DR is None else basis_DR.shape[1]
    covariance_RR = mean_D.new_zeros(dim, dim)
    with threads_for(len(features_ND) * dim**2, mean_D.device):
        for chunk_BD in features_ND.split(CHUNK):
            centred_BD = chunk_BD - mean_D
            x_BR = centred_BD if basis_DR is None else centred_BD @ basis_DR
            covariance_RR += x_BR.T @ x_BR / len(features_ND)
    with threads_for(dim**3 // 10, mean_D.device):  # mostly products with one vector at a time
        variance_R, axes_RR = torch.linalg.eigh(covariance_RR)
    return variance_R, axes_RR if basis_DR is None else basis_DR @ axes_RR
