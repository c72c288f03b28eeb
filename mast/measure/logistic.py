"""Multinomial logistic regression on frozen features, to its optimum.

The objective is the mean cross-entropy plus λ/2 ‖W‖² with a free bias: scikit-learn's with
C = 1 / (N λ), and of two classes, where it has one vector of weights for both, 2 / (N λ). It is
minimised along the axes of the features (`mast.measure.axes`), for several targets of the same
images and all splits of a cross-validation together (`mast.measure.newton`).

N images, D dimensions, P coordinates along the axes, M test images, C classes, T regressions at
once, S classes of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mast.measure.axes import CHUNK, Axes
from mast.measure.compute import threads_for
from mast.measure.newton import Regressions, minimise

TIGHT = 1e-10  # see `minimise`; where what is reported comes from
HELD = 2**28  # probabilities held at once: 1 GiB
MOST_COLUMNS = 256  # classes of regressions at once; more gain nothing


@dataclass(frozen=True)
class Located:
    """Features along their axes, for all regressions on them."""

    axes: Axes
    x_NP: Tensor

    @classmethod
    def of(cls, features_ND: Tensor, learned_F: Tensor | None = None) -> Located:
        """Find the axes of features, and the coordinates along them.

        Args:
            features_ND: Features as they come.
            learned_F: Positions that regressions may learn from, beyond whose axes no optimum has
                weights; all if not given.
        """
        axes = Axes.fitted(features_ND if learned_F is None else features_ND[learned_F])
        return cls(axes, axes.coordinates(features_ND))

    def regressions(
        self, problems: Sequence[tuple[Tensor, Tensor]], classes: Sequence[int]
    ) -> Regressions:
        """Regressions on some of the images.

        Args:
            problems: Labels_N and positions_F of the images to learn from, of each regression.
            classes: The number of classes of each.
        """
        used_TN = torch.zeros(
            len(problems), len(self.x_NP), dtype=torch.bool, device=self.x_NP.device
        )
        for used_N, (_, fit_F) in zip(used_TN, problems, strict=True):
            used_N[fit_F] = True
        labels_TN = torch.stack([labels_N for labels_N, _ in problems])
        any_N = used_TN.any(dim=0)
        if any_N.all():
            return Regressions(self.x_NP, labels_TN, used_TN, tuple(classes))
        kept = (self.x_NP[any_N], labels_TN[:, any_N], used_TN[:, any_N])
        return Regressions(*kept, tuple(classes))

    def penalties(self, penalty_T: Sequence[float]) -> Tensor:
        """λ of each regression as a penalty of each of its coordinates, penalty_TP."""
        each_T = torch.tensor(penalty_T, dtype=torch.float64, device=self.x_NP.device)
        penalty_TP = each_T[:, None] / self.axes.variance_P
        penalty_TP[:, -1] = 0
        return penalty_TP

    def scores(self, weight_CP: Tensor, rows_V: Tensor) -> Tensor:
        """Class scores_VC of some of the images, in float64."""
        with threads_for(len(rows_V) * weight_CP.numel(), weight_CP.device):
            return torch.cat(
                [self.x_NP[rows_R].double() @ weight_CP.T for rows_R in rows_V.split(CHUNK)]
            )


class Target(NamedTuple):
    """What is predicted from features; tensors on their device.

    Attributes:
        labels_N: Of all images, int64.
        classes: C.
        splits: Positions to fit on and positions to choose a penalty by; one pair, or those of a
            cross-validation.
        metric: By which the penalty is chosen; see `accuracy`.
    """

    labels_N: Tensor
    classes: int
    splits: tuple[tuple[Tensor, Tensor], ...] = ()
    metric: str = "top1"


@dataclass(frozen=True)
class Classifier:
    """A fitted regression.

    Args:
        axes: Of the features.
        weight_CP: Along the axes, float64.
    """

    axes: Axes
    weight_CP: Tensor

    @classmethod
    def fitted(
        cls,
        features_ND: Tensor,
        labels_N: Tensor,
        classes: int,
        penalty: float,
        max_iterations: int = 500,
    ) -> Classifier:
        """Fit features at one penalty.

        Args:
            features_ND: Features as they come.
            labels_N: Classes, int64, on the same device.
            classes: C.
            penalty: λ.
            max_iterations: Of Newton's method.
        """
        target = Target(labels_N, classes)
        return fit(Located.of(features_ND), [target], [penalty], max_iterations)[0]

    def linear(self) -> tuple[Tensor, Tensor]:
        """The same as one linear layer on the features: weight_CD and bias_C, float64."""
        return self.axes.of_features(self.weight_CP)

    def scores(self, features_MD: Tensor) -> Tensor:
        """Class scores_MC of features, float64, on the device that it was fitted on."""
        device = self.weight_CP.device
        with threads_for(len(features_MD) * self.weight_CP.numel(), device):
            weight_CD, bias_C = self.linear()
            chunks = features_MD.to(device).split(CHUNK)
            return torch.cat([chunk_RD.double() @ weight_CD.T + bias_C for chunk_RD in chunks])


def fit(
    located: Located,
    targets: Sequence[Target],
    penalties: Sequence[float],
    max_iterations: int = 500,
) -> list[Classifier]:
    """Fit all images, each target at a penalty of its own.

    Args:
        located: The features.
        targets: What is predicted.
        penalties: λ of each.
        max_iterations: Of Newton's method.
    """
    classifiers = []
    everywhere_N = torch.arange(len(located.x_NP), device=located.x_NP.device)
    for group in together(targets, len(located.x_NP)):
        problems = [(targets[t].labels_N, everywhere_N) for t in group]
        regressions = located.regressions(problems, [targets[t].classes for t in group])
        penalty_TP = located.penalties([penalties[t] for t in group])
        weight_SP = minimise(regressions, regressions.start(), penalty_TP, TIGHT, max_iterations)
        for weight_CP in weight_SP.split(regressions.classes):
            classifiers.append(Classifier(located.axes, weight_CP))
    return classifiers


def together(targets: Sequence[Target], images: int) -> Iterator[list[int]]:
    """Targets to fit together: as many as fit into memory, at least one at a time."""
    most = min(MOST_COLUMNS, HELD // images)
    group: list[int] = []
    columns = 0
    for t, target in enumerate(targets):
        own = target.classes * max(1, len(target.splits))
        if group and columns + own > most:
            yield group
            group, columns = [], 0
        group.append(t)
        columns += own
    if group:
        yield group
