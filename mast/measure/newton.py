"""Several multinomial logistic regressions on the same images at once, each to its optimum.

Newton's method with conjugate gradients: what a step costs are products with the coordinates of
all images, which all regressions share. Losses and gradients are float64 whatever the type of
the coordinates, as they decide where the optimum is; products with the Hessian, of which there are
many times more, only say how to get there and are computed in the type of the coordinates.

N images, P coordinates (the last one the bias's 1), T regressions, S classes of all of them, one
regression after the other; R rows of a chunk.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.measure.compute import threads_for

CHUNK = 4096  # rows whose scores are held at once
MOST_PRODUCTS = 1000  # with the Hessian in one step
ROUNDING = 1e-12  # of a loss
RARE = 1e-7  # the least curvature of a class, of the largest
FORCING = 0.1  # the largest share of a step's gain that may be left to the next one


@dataclass(frozen=True, eq=False)
class Regressions:
    """Regressions that share the coordinates of images and nothing else.

    Args:
        x_NP: Coordinates of variance 1, float32 or float64.
        labels_TN: Classes, int64; any where an image is not used.
        used_TN: Which images a regression learns from.
        classes: The number of classes of each.
    """

    x_NP: Tensor
    labels_TN: Tensor
    used_TN: Tensor
    classes: tuple[int, ...]

    def __post_init__(self) -> None:
        assert self.labels_TN.shape == self.used_TN.shape == (len(self.classes), len(self.x_NP))

    @functools.cached_property
    def own(self) -> list[slice]:
        """Where the classes of each lie among all."""
        ends = itertools.accumulate(self.classes, initial=0)
        return [slice(*pair) for pair in itertools.pairwise(ends)]

    @functools.cached_property
    def owner_S(self) -> Tensor:
        """The regression of each class."""
        counts_T = torch.tensor(self.classes, device=self.x_NP.device)
        return torch.repeat_interleave(counts_T)

    @functools.cached_property
    def member_ST(self) -> Tensor:
        """1 where a class is a regression's."""
        return F.one_hot(self.owner_S, len(self.classes)).to(self.x_NP)

    @functools.cached_property
    def images_T(self) -> Tensor:
        """How many images each learns from."""
        return self.used_TN.sum(dim=1).double()

    def only(self, kept: Sequence[int]) -> Regressions:
        """Some of them."""
        return Regressions(
            self.x_NP,
            self.labels_TN[kept],
            self.used_TN[kept],
            tuple(self.classes[t] for t in kept),
        )

    def columns(self, kept: Sequence[int]) -> Tensor:
        """The positions of their classes among all."""
        return torch.cat([(self.owner_S == t).nonzero()[:, 0] for t in kept])

    def start(self) -> Tensor:
        """Zero weights and biases that give the frequency of each class: weight_SP, float64.

        That is the optimum at infinite penalties. A class that does not occur begins where it has
        no probability, as that is where its bias would go.
        """
        weight_SP = self.x_NP.new_zeros(len(self.owner_S), self.x_NP.shape[1], dtype=torch.float64)
        counts = [
            torch.bincount(labels_N[used_N], minlength=classes)
            for labels_N, used_N, classes in zip(
                self.labels_TN, self.used_TN, self.classes, strict=True
            )
        ]
        frequency_S = torch.cat(counts) / self.images_T[self.owner_S]
        weight_SP[:, -1] = frequency_S.clamp(min=torch.finfo(torch.float64).eps).log()
        return weight_SP

    def total(self, value_SP: Tensor) -> Tensor:
        """Sums over the coordinates and the classes of each regression, (T,)."""
        sums_T = value_SP.new_zeros(len(self.classes))
        return sums_T.index_add_(0, self.owner_S, value_SP.sum(dim=1))

    def at(self, weight_SP: Tensor, penalty_SP: Tensor) -> Point:
        """Losses and gradients at given weights.

        Args:
            weight_SP: In float64.
            penalty_SP: Of the square of each.
        """
        probability_NS = self.x_NP.new_empty(len(self.x_NP), len(weight_SP))
        gradient_SP = torch.zeros_like(weight_SP)
        together_SS = weight_SP.new_zeros(len(weight_SP), len(weight_SP))
        loss_T = weight_SP.new_zeros(len(self.classes))
        for begin in range(0, len(self.x_NP), CHUNK):
            rows = slice(begin, begin + CHUNK)
            x_RP = self.x_NP[rows].double()
            scores_RS = x_RP @ weight_SP.T
            for t, scores_RC in enumerate(scores_RS.split(self.classes, dim=1)):
                used_R1 = self.used_TN[t, rows, None].double()
                labels_R1 = self.labels_TN[t, rows, None]
                log_RC = scores_RC.log_softmax(dim=1)
                loss_T[t] -= (log_RC.gather(1, labels_R1) * used_R1).sum()
                torch.exp(log_RC, out=scores_RC).mul_(used_R1)
                together_SS[self.own[t], self.own[t]] += scores_RC.T @ scores_RC
                probability_NS[rows, self.own[t]] = scores_RC
                scores_RC.scatter_add_(1, labels_R1, -used_R1)
            gradient_SP += scores_RS.T @ x_RP
        images_S1 = self.images_T[self.owner_S, None]
        return Point(
            loss_T / self.images_T + self.total(penalty_SP * weight_SP.square()) / 2,
            gradient_SP / images_S1 + penalty_SP * weight_SP,
            probability_NS,
            *self._curvature(together_SS, penalty_SP),
        )

    def _curvature(self, together_SS: Tensor, penalty_SP: Tensor) -> tuple[Tensor, Tensor]:
        """See `Point`.

        Args:
            together_SS: Sums over images of the products of two classes' probabilities.
            penalty_SP: Of the square of each weight.
        """
        basis_SS, spread_S = torch.zeros_like(together_SS), together_SS.new_zeros(len(together_SS))
        for own, classes, images in zip(self.own, self.classes, self.images_T, strict=True):
            together_CC = together_SS[own, own] / images
            # As an image's probabilities add up to 1, those of the products give back the means.
            covariance_CC = together_CC.sum(dim=1).diag() - together_CC
            # No class is better for all scores being higher: there is no curvature along that, and
            # nothing to do. Any will do that does not magnify rounding.
            spread_C, basis_SS[own, own] = torch.linalg.eigh(covariance_CC + 1 / classes)
            spread_S[own] = spread_C.clamp(min=RARE * float(spread_C[-1]))
        return basis_SS, spread_S[:, None] + penalty_SP

    def curved(self, probability_NS: Tensor, direction_SP: Tensor) -> Tensor:
        """The losses' Hessian, without the penalty's, times a direction; both (S, P)."""
        product_SP = torch.zeros_like(direction_SP)
        for begin in range(0, len(self.x_NP), CHUNK):
            rows = slice(begin, begin + CHUNK)
            probability_RS = probability_NS[rows]
            change_RS = (self.x_NP[rows] @ direction_SP.T).mul_(probability_RS)
            mean_RS = (change_RS @ self.member_ST) @ self.member_ST.T
            product_SP += change_RS.addcmul_(probability_RS, mean_RS, value=-1).T @ self.x_NP[rows]
        return product_SP / self.images_T[self.owner_S, None].to(product_SP)


@dataclass(frozen=True, eq=False)
class Point:
    """Regressions at some weights.

    Attributes:
        loss_T: Mean cross-entropy, and the penalty.
        gradient_SP: Its gradient.
        probability_NS: Of each class, 0 where an image is not used.
        basis_SS: Principal axes of the probabilities of each regression's classes, as columns.
        curvature_SP: The loss's curvature along these axes, for each coordinate: exact if how
            probabilities vary had nothing to do with the coordinates.
    """

    loss_T: Tensor
    gradient_SP: Tensor
    probability_NS: Tensor
    basis_SS: Tensor
    curvature_SP: Tensor

    def only(self, kept: Sequence[int], columns_S: Tensor) -> Point:
        """Some of the regressions, and the positions of their classes."""
        return Point(
            self.loss_T[kept],
            self.gradient_SP[columns_S],
            self.probability_NS[:, columns_S],
            self.basis_SS[columns_S][:, columns_S],
            self.curvature_SP[columns_S],
        )


def minimise(
    regressions: Regressions,
    weight_SP: Tensor,
    penalty_TP: Tensor,
    tolerance: float,
    max_iterations: int,
) -> Tensor:
    """The weights that minimise mean cross-entropies plus penalties, all regressions at once.

    Args:
        regressions: T of them.
        weight_SP: Where to start, float64.
        penalty_TP: A half of it times the square of each weight is added; 0 for the bias.
        tolerance: How far above its minimum a loss may stay: in nats an image, and below 1 as a
            share of the loss, as classes that can be told apart leave next to nothing of it. What
            is estimated is the gain that is left: conjugate gradients end where their gain in a
            step times the number of steps falls below it.
        max_iterations: Of Newton's method.

    Returns:
        weight_SP, float64.

    Reference:
        Nash, Sofer, Assessing a Search Direction Within a Truncated-Newton Method, Operations
        Research Letters 1990, for where the conjugate gradients end.
    """
    weight_SP = weight_SP.clone()
    columns_S = torch.arange(len(weight_SP), device=weight_SP.device)
    multiplications = regressions.x_NP.numel() * len(weight_SP)
    with threads_for(multiplications, weight_SP.device):
        penalty_SP = penalty_TP[regressions.owner_S]
        point = regressions.at(weight_SP, penalty_SP)
        for _ in range(max_iterations):
            step_SP, gain_T, last_T = _newton_step(regressions, point, penalty_SP, tolerance)
            weight_SP[columns_S] += step_SP * last_T[regressions.owner_S, None]
            going = (~last_T).nonzero()[:, 0].tolist()
            if not going:
                break
            if len(going) < len(last_T):
                still_S = regressions.columns(going)
                regressions, columns_S = regressions.only(going), columns_S[still_S]
                penalty_SP, step_SP = penalty_SP[still_S], step_SP[still_S]
                point, gain_T = point.only(going, still_S), gain_T[going]
            moved_SP, point = _line_search(
                regressions, weight_SP[columns_S], penalty_SP, point.loss_T, step_SP, gain_T
            )
            weight_SP[columns_S] = moved_SP
    return weight_SP


def _newton_step(
    regressions: Regressions, point: Point, penalty_SP: Tensor, tolerance: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The step to the minimum of the quadratic model, by preconditioned conjugate gradients.

    Returns:
        step_SP; gain_T, twice what the model gains by it; and last_T, whether no more than the
        tolerance is left after it.
    """
    kind = point.probability_NS.dtype
    loss_T = point.loss_T.to(kind).clamp(min=1e-30)
    tolerance_T = tolerance * loss_T.clamp(max=1)
    # As the loss is no quadratic, a step leaves something of second order in its gain. The factor
    # is at most about the number of images, of which each could lie in a direction of its own, or
    # that of an exponential function, which the loss is where classes can be told apart.
    factor_T = regressions.images_T.to(kind).maximum(loss_T.reciprocal())
    owner_S = regressions.owner_S
    penalty_SP = penalty_SP.to(kind)
    basis_SS, inverse_SP = point.basis_SS.to(kind), point.curvature_SP.reciprocal().to(kind)
    residual_SP = -point.gradient_SP.to(kind)
    scaled_SP = basis_SS @ (inverse_SP * (basis_SS.T @ residual_SP))
    direction_SP, step_SP = scaled_SP, torch.zeros_like(residual_SP)
    size_T = regressions.total(residual_SP * scaled_SP)
    gain_T = torch.zeros_like(size_T)
    running_T = size_T > 0
    for count in range(1, MOST_PRODUCTS + 1):
        if not running_T.any():
            break
        curved_SP = regressions.curved(point.probability_NS, direction_SP)
        curved_SP += penalty_SP * direction_SP
        bend_T = regressions.total(direction_SP * curved_SP)
        running_T = running_T & (bend_T > 0)
        length_T = torch.where(running_T, size_T / bend_T, 0)
        step_SP = step_SP + length_T[owner_S, None] * direction_SP
        residual_SP = residual_SP - length_T[owner_S, None] * curved_SP
        gained_T = length_T * size_T
        gain_T = gain_T + gained_T
        # What the next step must do anyway need not be done now.
        goal_T = (factor_T * gain_T).clamp(max=FORCING) * gain_T
        goal_T = goal_T.maximum(tolerance_T)
        running_T = running_T & (count * gained_T > goal_T)
        scaled_SP = basis_SS @ (inverse_SP * (basis_SS.T @ residual_SP))
        next_T = regressions.total(residual_SP * scaled_SP)
        ratio_T = torch.where(running_T, next_T / size_T, 0)
        direction_SP = scaled_SP + ratio_T[owner_S, None] * direction_SP
        size_T = next_T
    return step_SP.double(), gain_T.double(), factor_T * gain_T.square() <= tolerance_T


def _line_search(
    regressions: Regressions,
    weight_SP: Tensor,
    penalty_SP: Tensor,
    loss_T: Tensor,
    step_SP: Tensor,
    gain_T: Tensor,
) -> tuple[Tensor, Point]:
    """Halve the steps that do not lower their loss by a ten-thousandth of what the model says."""
    length_T = torch.ones_like(gain_T)
    while True:
        moved_SP = weight_SP + length_T[regressions.owner_S, None] * step_SP
        point = regressions.at(moved_SP, penalty_SP)
        enough_T = loss_T - 1e-4 * length_T * gain_T + ROUNDING * loss_T.abs()
        short_T = (point.loss_T <= enough_T) | (length_T < ROUNDING)
        if short_T.all():
            return moved_SP, point
        length_T = torch.where(short_T, length_T, length_T / 2)
