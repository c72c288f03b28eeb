"""Multinomial logistic regression on frozen features, to its optimum, and its choice of penalty.

The objective is the mean cross-entropy plus λ/2 ‖W‖² with a free bias: scikit-learn's with
C = 1 / (N λ), and of two classes 2 / (N λ). Losses and gradients are float64, as they decide where
the optimum is; products with the Hessian only say how to get there. (L-BFGS finds the same optima
in up to 20 times as long: where classes can be told apart, the curvature changes on the way.)

N images, D dimensions, P coordinates (the last is the bias's 1), C classes, R rows of a chunk,
F images to learn from, V to choose a penalty by, S splits.
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
from mast.evaluation.accuracy import accuracy

PENALTIES: tuple[float, ...] = tuple(torch.logspace(5, -6, 45, dtype=torch.float64).tolist())  # λ
TIGHT, LOOSE = 1e-10, 1e-8  # tolerances: of final fits, and while comparing penalties
SPREAD = 1e-10  # variance below which an axis is rounding, of that of the dimensions it is made of
RARE = 1e-7  # the least curvature of a class, of the largest
FORCING = 0.1  # the largest share of a step's gain that may be left to the next one
ROUNDING = 1e-12  # of a loss
MOST_STEPS = 500  # rarely are more than ten needed
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

    Axes are orthonormal, so the penalty becomes λ / variance along each. The optimum is the same,
    and the loss has similar curvature in all directions.
    """

    mean_D: Tensor
    axes_DP: Tensor  # columns along which features vary, each over its deviation, float64
    variance_P: Tensor
    x_NP: Tensor  # the coordinates and 1, in the type of the features

    @classmethod
    def of(cls, features_ND: Tensor, learned_F: Tensor | None = None) -> Whitened:
        """Coordinates along the axes of the images to learn from, by default all."""
        x_FD = features_ND if learned_F is None else features_ND[learned_F]
        mean_D = x_FD.mean(dim=0, dtype=torch.float64)
        with threads_for(x_FD.numel() * len(mean_D), mean_D.device):
            if len(x_FD) < len(mean_D):
                axes_DP = torch.linalg.svd(x_FD - mean_D, full_matrices=False).Vh.T
            else:
                chunks = ((x_RD - mean_D) for x_RD in x_FD.split(CHUNK))
                covariance_DD = sum(x_RD.T @ x_RD / len(x_FD) for x_RD in chunks)
                least = torch.finfo(torch.float64).eps * covariance_DD.trace()
                covariance_DD.diagonal().add_(least)  # MKL's eigh may fail on rows of zeros
                axes_DP = torch.linalg.eigh(covariance_DD).eigenvectors
            # Not by eigenvalues: those far below the largest are rounding of that.
            coordinates = ((x_RD - mean_D) @ axes_DP for x_RD in x_FD.split(CHUNK))
            variance_P = sum(x_RP.square().sum(dim=0) / len(x_FD) for x_RP in coordinates)
            rounding = len(mean_D) * torch.finfo(torch.float64).eps
            variance_D = x_FD.var(dim=0, correction=0).double()
            least_P = SPREAD * axes_DP.square().T @ variance_D + rounding**2 * variance_P.sum()
            varies_P = variance_P > least_P
            variance_P, axes_DP = variance_P[varies_P], axes_DP[:, varies_P]
            axes_DP = axes_DP * variance_P.rsqrt()
            x_NP = features_ND.new_ones(len(features_ND), len(variance_P) + 1)
            for x_RD, x_RP in zip(features_ND.split(CHUNK), x_NP.split(CHUNK), strict=True):
                x_RP[:, :-1] = (x_RD - mean_D) @ axes_DP
        return cls(mean_D, axes_DP, variance_P, x_NP)

    def curvature(self, classes: int) -> float:
        """The cross-entropy's curvature along the strongest axis, at zero weights."""
        return max([0.0, *self.variance_P.tolist()]) / classes

    def penalty(self, penalty: float) -> Tensor:
        """λ as a penalty_P of each coordinate; the bias has none."""
        return torch.cat([penalty / self.variance_P, self.variance_P.new_zeros(1)])

    def linear(self, weight_CP: Tensor) -> LinearClassifier:
        """Weights of the coordinates as a layer on the features."""
        weight_CD = weight_CP[:, :-1] @ self.axes_DP.T
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


def minimise(problem: Problem, weight_CP: Tensor, tolerance: float) -> Tensor:
    """The optimum by Newton's method from a weight_CP, float64.

    The loss may stay above it by the tolerance: in nats, and below 1 as a share of the loss.
    """
    with threads_for(problem.x_NP.numel() * len(weight_CP), weight_CP.device):
        point = evaluate(problem, weight_CP)
        for _ in range(MOST_STEPS):
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
    # is at most about N, or that of an exponential function for separable classes.
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


def fit(whitened: Whitened, target: Target, penalty: float) -> LinearClassifier:
    """Fit all images at one penalty λ."""
    problem = Problem(whitened.x_NP, target.labels_N, whitened.penalty(penalty))
    start_CP = _start(problem, target.classes)
    return whitened.linear(minimise(problem, start_CP, TIGHT))


class Choice(NamedTuple):
    """λ, and its accuracy in percent: the mean over the held-out images of all splits."""

    penalty: float
    validation: float


def choose(
    whitened: Whitened,
    target: Target,
    penalties: Sequence[float] = PENALTIES,
    patience: int = 8,
) -> Choice:
    """The penalty that does best on validation; of equals the strongest.

    Penalties above the curvature are left out, unless all are: they leave weights so small that
    frequencies of classes and rounding decide. The others are walked from the strongest until
    `patience` in a row did worse than the best so far. The walk is loose; then the best are fitted
    tightly until the first place stays.
    """
    labels_N, classes, splits, metric = target
    parts = [(whitened.x_NP[fit_F], labels_N[fit_F]) for fit_F, _ in splits]
    count = sum(len(choose_V) for _, choose_V in splits)

    def solve(penalty: float, starts: list[Tensor], tolerance: float) -> tuple[list[Tensor], float]:
        """The solutions of the splits, and their accuracy on the images held out."""
        weights, right = [], []
        for part, start_CP, (_, choose_V) in zip(parts, starts, splits, strict=True):
            problem = Problem(*part, whitened.penalty(penalty))
            weights.append(minimise(problem, start_CP, tolerance))
            scores_VC = whitened.x_NP[choose_V].double() @ weights[-1].T
            right.append(len(choose_V) * accuracy(scores_VC, labels_N[choose_V], metric))
        return weights, round(math.fsum(right) / count, 9)  # rounding makes no equals differ

    reached: dict[float, float] = {}
    strongest_first, bend = sorted(penalties, reverse=True), whitened.curvature(classes)
    penalties = [penalty for penalty in strongest_first if penalty <= bend] or strongest_first
    weights = [_start(Problem(*part, whitened.penalty(1)), classes) for part in parts]
    best, worse, tight = weights, 0, set[float]()
    for penalty in track(penalties, "fitting", len(penalties), "penalties", even=False):
        weights, now = solve(penalty, weights, LOOSE)
        before = max(reached.values(), default=-1.0)
        reached.setdefault(penalty, now)
        best = weights if now > before else best
        worse = worse + 1 if now < before else 0
        if worse == patience:
            break
    while (chosen := max(reached, key=reached.__getitem__)) not in tight:
        best, reached[chosen] = solve(chosen, best, TIGHT)
        tight.add(chosen)
    return Choice(chosen, reached[chosen])
