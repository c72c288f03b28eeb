"""Numbers that need no labels, of an encoder: do they predict how well its probes do?

N images, D dimensions of the representation.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from mast.analyses import Grid
from mast.augment import OPERATORS
from mast.data import CanvasSet
from mast.encoders.changes import changed_by
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.online import effective_rank

IMAGES, DRAWS, FEWEST = 1000, 2000, 5  # methods for an interval
RIDGE = 1e-4  # of the mean variance of a dimension


def label_free(
    encoder: FrozenEncoder, canvases: CanvasSet, size: int, operators: tuple[str, ...]
) -> dict[str, float]:
    """RankMe, and LiDAR of all operators and of those of each property.

    LiDAR is the effective rank of the scatter between images, whitened by the scatter within them.
    The latter is the sum, over operators, of the second moment of the displacements.

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


class Trial(NamedTuple):
    """A trained encoder: what it was of, its label-free numbers, and how its probes do."""

    method: str
    rate: float
    seed: int
    numbers: Mapping[str, float]
    score: float


def correlations(trials: Sequence[Trial]) -> Grid:
    """Rank correlation of each number with the probes' mean, over what a method's trials differ in.

    Numbers and scores are those above the mean of their group. Intervals of 95 % are of a bootstrap
    over methods.
    """
    groups = {
        "learning rates": lambda each: (each.method, each.seed),
        "seeds": lambda each: (each.method, each.rate),
        "rates, seeds and methods": lambda each: "",
    }
    rows = []
    for number in dict.fromkeys(name for each in trials for name in each.numbers):
        known = [each for each in trials if number in each.numbers]
        for over, group_of in groups.items():
            if number == "loss" and "methods" in over:  # its scale is the method's
                continue
            parts = list[tuple[str, np.ndarray]]()
            by = sorted(known, key=lambda each: str(group_of(each)))
            for _, members in groupby(by, group_of):
                some = [*members]
                pairs = np.array([(each.numbers[number], each.score) for each in some])
                if len(some) > 1:
                    methods_of = [each.method for each in some]
                    parts += zip(methods_of, pairs - pairs.mean(axis=0), strict=True)
            methods = sorted({name for name, _ in parts})
            if len(methods) >= FEWEST:
                rows.append((number, over, *_correlated(parts, methods)))
    return Grid(("number", "differing in", "runs", "methods", "rank correlation"), tuple(rows))


def _correlated(
    parts: Sequence[tuple[str, np.ndarray]], methods: Sequence[str]
) -> tuple[str, str, str]:
    """Runs, methods, and the rank correlation with its interval."""
    of = {name: np.stack([each for own, each in parts if own == name]) for name in methods}
    whole = np.concatenate([*of.values()])
    draw, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        names = draw.choice(methods, len(methods))
        drawn.append(spearmanr(*np.concatenate([of[name] for name in names]).T).statistic)
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    found = f"{spearmanr(*whole.T).statistic:+.2f} [{low:+.2f}, {high:+.2f}]"
    return str(len(whole)), str(len(methods)), found
