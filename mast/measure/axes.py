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
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.measure.threads import threads_for

SPREAD = 1e-10  # variance, relative to the first axis, below which an axis is rounding
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
        """The axes along which the features vary; weights along the others are 0 anyway."""
        mean_D = features_ND.mean(dim=0, dtype=torch.float64)
        if features_ND.shape[0] < features_ND.shape[1]:
            variance_R, axes_DR = _of_few(features_ND.double() - mean_D)
        else:
            variance_R, axes_DR = _of_many(features_ND, mean_D)
        return cls(mean_D, axes_DR, F.pad(variance_R, (0, 1), value=1.0))

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


def _of_many(features_ND: Tensor, mean_D: Tensor) -> tuple[Tensor, Tensor]:
    """Variances and axes by the covariance of the dimensions."""
    dim = len(mean_D)
    covariance_DD = mean_D.new_zeros(dim, dim)
    with threads_for(len(features_ND) * dim**2, mean_D.device):
        for chunk_RD in features_ND.split(CHUNK):
            centred_RD = chunk_RD - mean_D
            covariance_DD += centred_RD.T @ centred_RD / len(features_ND)
    with threads_for(dim**3 // 10, mean_D.device):  # mostly products with one vector at a time
        variance_D, axes_DD = torch.linalg.eigh(covariance_DD)
    varies_D = _varies(variance_D)
    return variance_D[varies_D], axes_DD[:, varies_D]


def _of_few(centred_ND: Tensor) -> tuple[Tensor, Tensor]:
    """The same by the products of fewer images than dimensions."""
    products_NN = centred_ND @ centred_ND.T / len(centred_ND)
    with threads_for(len(products_NN) ** 3 // 10, centred_ND.device):
        variance_N, images_NN = torch.linalg.eigh(products_NN)
    varies_N = _varies(variance_N)
    # Along weak axes rounding leaves these almost orthogonal, which QR mends.
    axes_DR, _ = torch.linalg.qr(centred_ND.T @ images_NN[:, varies_N])
    return variance_N[varies_N], axes_DR


def _varies(variance_R: Tensor) -> Tensor:
    return variance_R > SPREAD * variance_R[-1].clamp(min=torch.finfo(torch.float32).tiny)
