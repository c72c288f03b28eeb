"""The penalty of a regression, chosen on validation by walking from the strongest to the weakest.

V images that choose, C classes; P coordinates, S classes of all regressions at once.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mast.core.display import track
from mast.measure.accuracy import accuracy
from mast.measure.logistic import TIGHT, Located, Target, together
from mast.measure.newton import Regressions, minimise

PENALTIES: tuple[float, ...] = tuple(torch.logspace(5, -6, 45, dtype=torch.float64).tolist())  # λ
LOOSE = 1e-8  # see `minimise`; while penalties are compared
NEAR = 2.0  # between penalties that follow one another, for solutions to be extrapolated


class Choice(NamedTuple):
    """What validation chose.

    Attributes:
        penalty: λ.
        validation: The accuracy that it reaches in percent, the mean over the images of all splits.
    """

    penalty: float
    validation: float


def choose(
    located: Located,
    targets: Sequence[Target],
    penalties: Sequence[float],
    *,
    patience: int = 8,
    max_iterations: int = 500,
) -> list[Choice]:
    """For each target the penalty that does best on validation.

    All penalties are walked from the strongest to the weakest, each started where the solutions
    before it lead. For a target the walk ends early once `patience` penalties in a row did worse
    than the best one so far. Penalties so strong that they outweigh the data along every axis do
    not count, since accuracy still wanders there. Of equals the strongest is chosen.

    On the walk a loss may stay 1e-8 above its minimum; see `minimise`. The best penalty is then
    fitted to 1e-10; should that cost it the first place, the next best one is, until the first one
    stays. So the accuracy of what is chosen is that of the optimum, and no penalty of the walk was
    seen to do better; what the walk saw of the others may be off by an image that is about to
    change its class.

    Args:
        located: The features.
        targets: What is predicted, with splits.
        penalties: Values of λ, strongest first.
        patience: Worse penalties in a row that end the walk.
        max_iterations: Of Newton's method, for one penalty.

    Returns:
        One choice a target.
    """
    choices = []
    for group in together(targets, len(located.x_NP)):
        walk = _Walk(located, [targets[t] for t in group], penalties, max_iterations)
        walk.down(patience)
        choices += walk.choices()
    return choices


class _Walk:
    """Targets whose penalties are chosen together; each of their splits is a regression.

    Args:
        located: The features.
        targets: What is predicted.
        penalties: Values of λ, strongest first.
        max_iterations: Of Newton's method.

    Attributes:
        reached: Of each target the accuracy by penalty, in the order that they were tried.
        best: Of each target the solution on its splits at the best penalty so far.
    """

    def __init__(
        self,
        located: Located,
        targets: Sequence[Target],
        penalties: Sequence[float],
        max_iterations: int,
    ) -> None:
        self.located, self.targets, self.penalties = located, targets, penalties
        self.max_iterations = max_iterations
        self.reached: list[dict[float, float]] = [{} for _ in targets]
        self.best: list[list[Tensor]] = [[] for _ in targets]

    def down(self, patience: int) -> None:
        """Try the penalties; see `choose`."""
        going = list(range(len(self.targets)))
        worse = [0] * len(going)
        regressions = self._regressions(going)
        trail: list[tuple[float, Tensor]] = []  # the last penalties and their solutions
        for penalty in track(
            self.penalties, "fitting", len(self.penalties), "penalties", even=False
        ):
            start_SP = _extrapolated(trail, penalty) if trail else regressions.start()
            weights = self._minimise(regressions, start_SP, [penalty] * len(going), going, LOOSE)
            trail = [*trail[-2:], (penalty, torch.cat(list(itertools.chain(*weights))))]
            for t, of_splits in zip(going, weights, strict=True):
                accuracies = self.reached[t]
                best = max(accuracies.values(), default=-1.0)
                reached = self._accuracy(t, of_splits)
                counts = penalty < self.located.axes.curvature(self.targets[t].classes)
                worse[t] = worse[t] + 1 if counts and reached < best else 0
                accuracies.setdefault(penalty, reached)
                if reached > best:
                    self.best[t] = of_splits
            left = [t for t in going if worse[t] < patience]
            if not left:
                break
            if len(left) < len(going):
                problems = self._problems(going)
                kept = [at for at, (t, _) in enumerate(problems) if t in left]
                columns_S = regressions.columns(kept)
                trail = [(of, weight_SP[columns_S]) for of, weight_SP in trail]
                regressions, going = self._regressions(left), left

    def choices(self) -> list[Choice]:
        """Fit the best penalties tightly, until those are the best."""
        open_ones, tight = list(range(len(self.targets))), [set[float]() for _ in self.targets]
        while open_ones:
            start_SP = torch.cat(list(itertools.chain(*(self.best[t] for t in open_ones))))
            penalties = [self._chosen(t) for t in open_ones]
            regressions = self._regressions(open_ones)
            found = self._minimise(regressions, start_SP, penalties, open_ones, TIGHT)
            for t, penalty, of_splits in zip(open_ones, penalties, found, strict=True):
                self.best[t] = of_splits
                self.reached[t][penalty] = self._accuracy(t, of_splits)
                tight[t].add(penalty)
            open_ones = [t for t in open_ones if self._chosen(t) not in tight[t]]
        return [
            Choice(self._chosen(t), accuracies[self._chosen(t)])
            for t, accuracies in enumerate(self.reached)
        ]

    def _chosen(self, t: int) -> float:
        return max(self.reached[t], key=self.reached[t].__getitem__)  # the first of equals

    def _problems(self, targets: Sequence[int]) -> list[tuple[int, Tensor]]:
        return [(t, fit_F) for t in targets for fit_F, _ in self.targets[t].splits]

    def _regressions(self, targets: Sequence[int]) -> Regressions:
        problems = self._problems(targets)
        return self.located.regressions(
            [(self.targets[t].labels_N, fit_F) for t, fit_F in problems],
            [self.targets[t].classes for t, _ in problems],
        )

    def _minimise(
        self,
        regressions: Regressions,
        start_SP: Tensor,
        penalties: Sequence[float],
        targets: Sequence[int],
        tolerance: float,
    ) -> list[list[Tensor]]:
        """Of each target the solutions weight_CP on its splits, at a penalty of its own."""
        of_each = dict(zip(targets, penalties, strict=True))
        penalty_TP = self.located.penalties([of_each[t] for t, _ in self._problems(targets)])
        weight_SP = minimise(regressions, start_SP, penalty_TP, tolerance, self.max_iterations)
        of_all = iter(weight_SP.split(regressions.classes))
        return [list(itertools.islice(of_all, len(self.targets[t].splits))) for t in targets]

    def _accuracy(self, t: int, weights: Sequence[Tensor]) -> float:
        """The accuracy on the images that choose, the mean over those of all splits."""
        labels_N, _, splits, metric = self.targets[t]
        counts = [len(choose_V) for _, choose_V in splits]
        each = [
            accuracy(self.located.scores(weight_CP, choose_V), labels_N[choose_V], metric)
            for weight_CP, (_, choose_V) in zip(weights, splits, strict=True)
        ]
        mean = math.fsum(map(operator.mul, each, counts)) / sum(counts)
        return round(mean, 9)  # so that rounding makes no equals differ


def _extrapolated(trail: Sequence[tuple[float, Tensor]], penalty: float) -> Tensor:
    """Where the solutions lead: the parabola in log λ through the last three, where they are near.

    Args:
        trail: Penalties and their solutions, the last ones at the end.
        penalty: Where to go.
    """
    at = [math.log(of) for of, _ in trail] + [math.log(penalty)]
    steps = [before - after for before, after in itertools.pairwise(at)]
    if len(trail) < 3 or not all(0 < step <= math.log(NEAR) for step in steps):
        return trail[-1][1]
    *nodes, to = at
    start_SP = torch.zeros_like(trail[-1][1])
    for node, (_, weight_SP) in zip(nodes, trail, strict=True):
        others = [other for other in nodes if other != node]
        share = math.prod((to - other) / (node - other) for other in others)
        start_SP += share * weight_SP
    return start_SP
