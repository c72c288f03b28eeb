"""Multinomial logistic regression on frozen features, to its optimum, and its choice of penalty.

The objective is the mean cross-entropy plus λ/2 ‖W‖² with a free bias: scikit-learn's with
C = 1 / (N λ), and of two classes 2 / (N λ). Losses and gradients are float64, as they decide where
the optimum is; products with the Hessian only say how to get there.

N images, D dimensions, P coordinates (the last is the bias's 1), C classes, R rows of a chunk or
axes, F images to learn from, V to choose a penalty by, S splits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mast.core.compute import threads_for
from mast.core.display import track
from mast.core.errors import UserError
from mast.evaluation.accuracy import accuracy

PENALTIES: tuple[float, ...] = tuple(torch.logspace(5, -6, 45, dtype=torch.float64).tolist())  # λ
TIGHT, LOOSE = 1e-10, 1e-8  # tolerances: of what is reported, and while penalties are compared
SPREAD = 1e-10  # variance below which an axis is rounding, of that of the dimensions it is made of
LEAST = 1e-8  # deviation; below, what features add to scores is rounding of the biases
RARE = 1e-7  # the least curvature of a class, of the largest
FORCING = 0.1  # the largest share of a step's gain that may be left to the next one
ROUNDING = 1e-12  # of a loss
MOST_PRODUCTS = 1000  # with the Hessian in one step
CHUNK = 4096  # rows in float64 at once


class Target(NamedTuple):
    """What is predicted from features; tensors on their device."""

    labels_N: Tensor  # of all images, int64
    classes: int
    splits: tuple[tuple[Tensor, Tensor], ...] = ()  # positions to fit on, and to choose by
    metric: str = "top1"  # see `accuracy`


class LinearClassifier(NamedTuple):
    """A fitted regression: one linear layer on the features, float64."""

    weight_CD: Tensor
    bias_C: Tensor

    def scores(self, features_MD: Tensor) -> Tensor:
        """Class scores_MC of features, float64, on the device that it was fitted on."""
        device = self.bias_C.device
        with threads_for(len(features_MD) * self.weight_CD.numel(), device):
            chunks = features_MD.to(device).split(CHUNK)
            return torch.cat([x_RD.double() @ self.weight_CD.T + self.bias_C for x_RD in chunks])


class Whitened(NamedTuple):
    """Features along their principal axes, centred (the bias absorbs it) and of variance 1.

    The penalty becomes λ / variance along each axis: the optimum is the same, and the loss is
    curved alike in all directions. A dimension of large scale hides none of small scale.
    """

    mean_D: Tensor
    axes_DR: Tensor  # orthonormal columns along which features vary, float64; R = P - 1
    variance_R: Tensor
    x_NP: Tensor  # the coordinates, in the type of the features

    @classmethod
    def of(cls, features_ND: Tensor, learned_F: Tensor | None = None) -> Whitened:
        """Coordinates along the axes of the images to learn from, by default all."""
        x_FD = features_ND if learned_F is None else features_ND[learned_F]
        mean_D = x_FD.mean(dim=0, dtype=torch.float64)
        chunks = x_FD.split(CHUNK)
        variance_D = sum((x_RD - mean_D).square().sum(dim=0) / len(x_FD) for x_RD in chunks)
        least_D = SPREAD * variance_D + (torch.finfo(x_FD.dtype).eps * mean_D).square()
        # Axes are orthogonal up to rounding, which leaves some of the strongest in the weakest.
        rounding = len(mean_D) * torch.finfo(torch.float64).eps ** 2 * variance_D.sum()
        varies_D = variance_D > least_D  # MKL's eigh may fail on rows of zeros
        rest_DR = None if varies_D.all() else torch.ones_like(mean_D).diag()[:, varies_D]
        if len(x_FD) < int(varies_D.sum()):
            spanned_VR = torch.linalg.qr((x_FD - mean_D)[:, varies_D].T)[0]
            rest_DR = spanned_VR if rest_DR is None else rest_DR @ spanned_VR
        variances, axes = [mean_D.new_empty(0)], [mean_D.new_empty(len(mean_D), 0)]
        while rest_DR is None or rest_DR.shape[1]:
            with threads_for(len(mean_D) ** 3 // 10, mean_D.device):
                moved = (
                    (of - mean_D) if rest_DR is None else (of - mean_D) @ rest_DR for of in chunks
                )
                covariance_RR = sum(x_BR.T @ x_BR / len(x_FD) for x_BR in moved)
                if covariance_RR.trace() <= rounding:
                    break
                variance_R, turn_RR = torch.linalg.eigh(covariance_RR)
            rest_DR = turn_RR if rest_DR is None else rest_DR @ turn_RR
            # Variances far below the largest are rounding of that: they are found again without it.
            found_R = variance_R > SPREAD * variance_R[-1]
            found_R &= variance_R > rest_DR.square().T @ least_D + rounding
            if not found_R.any():
                break
            variances.append(variance_R[found_R])
            axes.append(rest_DR[:, found_R])
            rest_DR = rest_DR[:, ~found_R]
        variance_R, axes_DR = torch.cat(variances), torch.cat(axes, dim=1)
        if len(variance_R) and (deviation := float(variance_R.amax().sqrt())) < LEAST:
            raise UserError(
                f"the features vary by {deviation:.1g} at most, too little for a regression: "
                f"expected {LEAST:g} or more. Multiply them, or evaluate an earlier checkpoint."
            )
        scaled_DR = axes_DR * variance_R.rsqrt()
        x_NP = features_ND.new_ones(len(features_ND), len(variance_R) + 1)
        for x_RD, x_RP in zip(features_ND.split(CHUNK), x_NP.split(CHUNK), strict=True):
            x_RP[:, :-1] = (x_RD - mean_D) @ scaled_DR
        return cls(mean_D, axes_DR, variance_R, x_NP)

    def curvature(self, classes: int) -> float:
        """The cross-entropy's curvature along the strongest axis, at zero weights."""
        return max([0.0, *self.variance_R.tolist()]) / classes

    def penalty(self, penalty: float) -> Tensor:
        """λ as a penalty_P of each coordinate; the bias has none."""
        return torch.cat([penalty / self.variance_R, self.variance_R.new_zeros(1)])

    def linear(self, weight_CP: Tensor) -> LinearClassifier:
        """Weights of the coordinates as a layer on the features."""
        weight_CD = (weight_CP[:, :-1] * self.variance_R.rsqrt()) @ self.axes_DR.T
        return LinearClassifier(weight_CD, weight_CP[:, -1] - weight_CD @ self.mean_D)


class Problem(NamedTuple):
    """Mean cross-entropy plus half of `penalty_P` times W²."""

    x_NP: Tensor
    labels_N: Tensor
    penalty_P: Tensor


class Point(NamedTuple):
    """The objective at some weights."""

    loss: float
    gradient_CP: Tensor
    probability_NC: Tensor
    basis_CC: Tensor  # columns are principal axes of the classes' probabilities
    curvature_CP: Tensor  # along these, exact where probabilities do not depend on coordinates


def evaluate(problem: Problem, weight_CP: Tensor) -> Point:
    """The objective at some weights, in float64 but for the probabilities."""
    x_NP, labels_N, penalty_P = problem
    images, classes = len(x_NP), len(weight_CP)
    probability_NC, gradient_CP = x_NP.new_empty(images, classes), torch.zeros_like(weight_CP)
    together_CC, loss = weight_CP.new_zeros(classes, classes), weight_CP.new_zeros(())
    parts = (each.split(CHUNK) for each in (x_NP, labels_N[:, None], probability_NC))
    for x_RP, labels_R1, probability_RC in zip(*parts, strict=True):
        wide_RP = x_RP.double()
        log_RC = (wide_RP @ weight_CP.T).log_softmax(dim=1)
        loss -= log_RC.gather(1, labels_R1).sum() / images
        error_RC = log_RC.exp_()
        probability_RC.copy_(error_RC)
        together_CC += error_RC.T @ error_RC / images
        error_RC.scatter_add_(1, labels_R1, error_RC.new_full(labels_R1.shape, -1.0))
        gradient_CP += error_RC.T @ wide_RP / images
    # As an image's probabilities add up to 1, those of the products give back the means.
    covariance_CC = together_CC.sum(dim=1).diag() - together_CC
    # All scores may rise together: no curvature along that. Any will do that magnifies no rounding.
    spread_C, basis_CC = torch.linalg.eigh(covariance_CC + 1 / classes)
    curvature_CP = spread_C.clamp(min=RARE * float(spread_C[-1]))[:, None] + penalty_P
    penalised_CP = penalty_P * weight_CP
    loss += (penalised_CP * weight_CP).sum() / 2
    return Point(float(loss), gradient_CP + penalised_CP, probability_NC, basis_CC, curvature_CP)


def minimise(problem: Problem, weight_CP: Tensor, tolerance: float, max_iterations: int) -> Tensor:
    """The optimum by Newton's method from a weight_CP, float64.

    The loss may stay above it by the tolerance: in nats, and below 1 as a share of the loss.
    """
    with threads_for(problem.x_NP.numel() * len(weight_CP), weight_CP.device):
        point = evaluate(problem, weight_CP)
        for _ in range(max_iterations):
            step_CP, gain, is_last = _newton_step(problem, point, tolerance)
            if is_last:
                return weight_CP + step_CP
            for halvings in itertools.count():  # until it gains 1e-4 of what the model says
                length = 0.5**halvings
                moved = evaluate(problem, weight_CP + length * step_CP)
                least = point.loss - 1e-4 * length * gain + ROUNDING * abs(point.loss)
                if moved.loss <= least or length < ROUNDING:
                    break
            weight_CP, point = weight_CP + length * step_CP, moved
    return weight_CP


def _newton_step(problem: Problem, point: Point, tolerance: float) -> tuple[Tensor, float, bool]:
    """The step to the minimum of the quadratic model, twice its gain, and whether it is the last.

    Conjugate gradients end where the last gain times the number of steps is small (Nash, Sofer,
    Assessing a Search Direction Within a Truncated-Newton Method, 1990).
    """
    x_NP, penalty_P = problem.x_NP, problem.penalty_P.to(problem.x_NP)
    tolerance *= min(1.0, max(point.loss, 1e-30))
    # As the loss is no quadratic, a step leaves something of second order in its gain. The factor
    # is at most about N, or that of an exponential function where classes can be told apart.
    factor = max(len(x_NP), 1 / max(point.loss, 1e-30))
    basis_CC, inverse_CP = point.basis_CC.to(x_NP), point.curvature_CP.reciprocal().to(x_NP)
    residual_CP = -point.gradient_CP.to(x_NP)
    direction_CP = basis_CC @ (inverse_CP * (basis_CC.T @ residual_CP))
    step_CP, gain = torch.zeros_like(residual_CP), 0.0
    size = float((residual_CP * direction_CP).sum())
    for count in range(1, MOST_PRODUCTS + 1):
        curved_CP = penalty_P * direction_CP  # the Hessian times the direction
        parts = (x_NP.split(CHUNK), point.probability_NC.split(CHUNK))
        for x_RP, probability_RC in zip(*parts, strict=True):
            change_RC = (x_RP @ direction_CP.T).mul_(probability_RC)
            change_RC.addcmul_(probability_RC, change_RC.sum(dim=1, keepdim=True), value=-1)
            curved_CP += change_RC.T @ x_RP / len(x_NP)
        bend = float((direction_CP * curved_CP).sum())
        if not (size > 0 and bend > 0):
            break
        step_CP += size / bend * direction_CP
        residual_CP -= size / bend * curved_CP
        gain += (gained := size * size / bend)
        # What the next step must do anyway may be left to it.
        if count * gained <= max(min(factor * gain, FORCING) * gain, tolerance):
            break
        scaled_CP = basis_CC @ (inverse_CP * (basis_CC.T @ residual_CP))
        before, size = size, float((residual_CP * scaled_CP).sum())
        direction_CP = scaled_CP + size / before * direction_CP
    return step_CP.double(), gain, factor * gain * gain <= tolerance


def _start(problem: Problem, classes: int) -> Tensor:
    """The optimum at λ = ∞: no weights, and biases that give the frequency of each class."""
    frequency_C = problem.labels_N.bincount(minlength=classes).double() / len(problem.labels_N)
    weight_CP = frequency_C.new_zeros(classes, len(problem.penalty_P))
    weight_CP[:, -1] = frequency_C.clamp(min=torch.finfo(torch.float64).eps).log()
    return weight_CP


def fit(
    whitened: Whitened, target: Target, penalty: float, max_iterations: int = 500
) -> LinearClassifier:
    """Fit all images at one penalty λ."""
    problem = Problem(whitened.x_NP, target.labels_N, whitened.penalty(penalty))
    start_CP = _start(problem, target.classes)
    return whitened.linear(minimise(problem, start_CP, TIGHT, max_iterations))


class Choice(NamedTuple):
    """λ, and its accuracy in percent: the mean over the held-out images of all splits."""

    penalty: float
    validation: float


def choose(
    whitened: Whitened,
    target: Target,
    penalties: Sequence[float] = PENALTIES,
    *,
    patience: int = 8,
    max_iterations: int = 500,
) -> Choice:
    """The penalty that does best on validation; of equals the strongest.

    Penalties above the curvature are left out, unless all are: they leave weights so small that
    frequencies of classes and rounding decide. The others are walked from the strongest until
    `patience` in a row did worse than the best so far. On the walk the loss may stay
    1e-8 above its minimum; then the best are fitted to 1e-10 until the first place stays.
    """
    labels_N, classes, splits, metric = target
    parts = [(whitened.x_NP[fit_F], labels_N[fit_F]) for fit_F, _ in splits]
    count = sum(len(choose_V) for _, choose_V in splits)

    def solve(penalty: float, starts: list[Tensor], tolerance: float) -> tuple[list[Tensor], float]:
        """The solutions of the splits, and their accuracy on the images held out."""
        weights, right = [], []
        for part, start_CP, (_, choose_V) in zip(parts, starts, splits, strict=True):
            problem = Problem(*part, whitened.penalty(penalty))
            weights.append(minimise(problem, start_CP, tolerance, max_iterations))
            scores_VC = whitened.x_NP[choose_V].double() @ weights[-1].T
            right.append(len(choose_V) * accuracy(scores_VC, labels_N[choose_V], metric))
        return weights, round(
            math.fsum(right) / count, 9
        )  # so that rounding makes no equals differ

    reached: dict[float, float] = {}
    bend = whitened.curvature(classes)
    strongest_first = sorted(penalties, reverse=True)
    penalties = [penalty for penalty in strongest_first if penalty <= bend] or strongest_first
    weights = [_start(Problem(*part, whitened.penalty(1)), classes) for part in parts]
    best, worse, tight = weights, 0, set[float]()
    for penalty in track(penalties, "fitting", len(penalties), "penalties", even=False):
        weights, now = solve(penalty, weights, LOOSE)
        before = max(reached.values(), default=-1.0)
        reached.setdefault(penalty, now)
        if now > before:
            best = weights
        worse = worse + 1 if now < before else 0
        if worse == patience:
            break
    while (chosen := max(reached, key=reached.__getitem__)) not in tight:
        best, reached[chosen] = solve(chosen, best, TIGHT)
        tight.add(chosen)
    return Choice(chosen, reached[chosen])
