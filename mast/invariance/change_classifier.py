"""What was done to an image to make a copy of it, predicted from the difference of features.

N images, P pairs, F numbers of all depths, E energies, C operators and `NONE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mast.augment import OPERATORS
from mast.core.compute import one_thread
from mast.invariance.subspaces import Space, Subspaces, axes_of

NONE = "none"  # of the operators: two images of their own
LEADING = 8  # leading axes of an operator, whose energy is a feature of its own
LEAST = 1e-6  # of the square of a difference
PENALTY = 0.1  # C of scikit-learn's logistic regression
PAIRS = 3  # of different images, for each image


@dataclass(frozen=True)
class ChangeClassifier:
    """A logistic regression over energies: how much of a difference lies in each subspace."""

    names: tuple[str, ...]
    weight_CE: Tensor
    bias_C: Tensor

    @classmethod
    def learn(
        cls,
        features_NF: Tensor,
        changed: Mapping[str, Tensor],
        widths: Sequence[int],
        seed: int,
    ) -> ChangeClassifier:
        """From images, one changed copy of each by operator, and the widths of the depths.

        Subspaces of one half are those in which the energies of the other are taken, since what
        has made a subspace lies in it.
        """
        from sklearn.linear_model import LogisticRegression

        order_N = torch.randperm(len(features_NF), generator=torch.Generator().manual_seed(seed))
        halves = order_N.tensor_split(2)
        energies, kinds = list[Tensor](), list[str]()
        for known_K, held_A in (halves, halves[::-1]):
            some = {name: changed_NF[known_K] for name, changed_NF in changed.items()}
            seen = ChangeFeatures(
                Subspaces.of(features_NF[known_K], some, widths, still=0.0), widths
            )
            held_AF = features_NF[held_A]
            pairs = [(name, changed_NF[held_A]) for name, changed_NF in changed.items()]
            pairs += [(NONE, held_AF.roll(shift, dims=0)) for shift in range(1, 1 + PAIRS)]
            for name, other_AF in pairs:
                energies.append(seen(other_AF - held_AF))
                kinds += [name] * len(held_AF)
        energy_PE = torch.cat(energies)
        std_E, mean_E = torch.std_mean(energy_PE, dim=0)
        std_E = std_E.clamp(min=1e-6)
        fitted = LogisticRegression(C=PENALTY, max_iter=1000)
        with one_thread():
            fitted.fit(((energy_PE - mean_E) / std_E).numpy(), kinds)
        weights = [torch.from_numpy(each).float() for each in (fitted.coef_, fitted.intercept_)]
        if len(fitted.classes_) == 2:  # for which there is one row
            weights = [torch.cat([torch.zeros_like(each), each]) for each in weights]
        weight_CE = weights[0] / std_E
        bias_C = weights[1] - weight_CE @ mean_E
        return cls(tuple(fitted.classes_.tolist()), weight_CE, bias_C)

    def properties(self, energy_PE: Tensor) -> list[tuple[str, float]]:
        """The likeliest of the properties that were changed, or `NONE`, and its probability."""
        probability_PC = (energy_PE @ self.weight_CE.T + self.bias_C).softmax(dim=1)
        kinds = [OPERATORS[name].destroys if name in OPERATORS else name for name in self.names]
        known = sorted({*kinds})
        of_CK = torch.tensor([[kind == each for each in known] for kind in kinds]).float()
        best_P, at_P = (probability_PC @ of_CK).max(dim=1)
        return [(known[at], best) for at, best in zip(at_P.tolist(), best_P.tolist(), strict=True)]


class ChangeFeatures:
    """How much of a difference of features lies in each operator's subspace, and at each depth."""

    def __init__(self, subspaces: Subspaces, widths: Sequence[int]) -> None:
        self._scale_F = subspaces.scale_F
        # sorted, as no file keeps an order
        self._axes = [axes_of(subspaces.factors[name])[1] for name in sorted(subspaces.factors)]
        self._ignoring: Space = subspaces.ignoring(list(subspaces.factors))
        self._widths = list(widths)

    def __call__(self, difference_PF: Tensor) -> Tensor:
        """Logarithms (P, E) of shares of the difference's square, and of what it is itself."""
        level_PF = difference_PF.float().cpu() / self._scale_F
        total_P1 = level_PF.square().sum(dim=1, keepdim=True) + LEAST
        shares = [
            (level_PF @ axes_RF[:count].T).square().sum(dim=1, keepdim=True) / total_P1
            for axes_RF in self._axes
            for count in (LEADING, None)
        ]
        shares += [
            depth_PX.square().sum(dim=1, keepdim=True) / total_P1
            for depth_PX in level_PF.split(self._widths, dim=1)
        ]
        left_P1 = self._ignoring.moved(level_PF).square().sum(dim=1, keepdim=True) + LEAST
        return torch.cat([torch.cat(shares, dim=1) + 1e-4, total_P1, left_P1], dim=1).log()
