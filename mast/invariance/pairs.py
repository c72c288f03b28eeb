"""Fit the weight of each property to example pairs of images.

P pairs, F features of all stages, K properties including `REST`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast.core.arguments import in_short
from mast.core.checkpoint import write_json
from mast.core.errors import UserError
from mast.core.files import named, read_json
from mast.core.tensors import digest
from mast.invariance.adapted import Adapted, tensors_of
from mast.invariance.subspaces import REST, Weights

SAME, DIFFERENT = 0.25, 0.75  # target share of the typical distance for same and different pairs
STEEP = 8.0  # slope of the logistic loss
PENALTY = 0.02  # penalty on weights other than 1
USUAL = 1000  # random pairs whose mean is the typical distance
VERSION = 1
_log = logging.getLogger("mast")


def weights_of(
    adapted: Adapted, same_2PF: Tensor, different_2PF: Tensor, bank_NF: Tensor
) -> Weights:
    """Fit property weights so that same pairs are near and different pairs far.

    The squared distance of two images is a sum of one term per property and a rest. Weights
    w_k ≥ 0 multiply the terms, with the mean distance over a bank of images held fixed. The
    distance of a pair is linear in the weights, so the logistic loss, with a penalty on weights
    other than 1 (the neutral weight), is convex. Features are those of all stages.
    """
    from scipy.optimize import LinearConstraint, minimize
    from scipy.special import expit

    parts = adapted.subspaces.parts
    generator = torch.Generator().manual_seed(0)
    count = len(bank_NF)
    first_U = torch.randint(count, (USUAL,), generator=generator)
    second_U = (first_U + torch.randint(1, count, (USUAL,), generator=generator)) % count
    usual_K = parts(bank_NF[first_U] - bank_NF[second_U]).mean(dim=0).double()
    share_K = (usual_K / usual_K.sum()).clamp(min=1e-9).numpy()
    same_PK, different_PK = (
        (parts(first_PF - second_PF).double() / usual_K.sum()).numpy()
        for first_PF, second_PF in (same_2PF, different_2PF)
    )

    def loss(weight_K: np.ndarray) -> tuple[float, np.ndarray]:
        total, slope_K = PENALTY * share_K @ (weight_K - 1) ** 2, share_K * (weight_K - 1)
        slope_K = 2 * PENALTY * slope_K
        for sign, bound, pair_PK in ((1, SAME, same_PK), (-1, DIFFERENT, different_PK)):
            beyond_P = sign * STEEP * (pair_PK @ weight_K - bound)
            total += np.logaddexp(0, beyond_P).mean()
            slope_K = slope_K + sign * STEEP * pair_PK.T @ expit(beyond_P) / len(pair_PK)
        return total, slope_K

    found = minimize(
        loss, np.ones(len(share_K)), jac=True, method="SLSQP", bounds=[(0, None)] * len(share_K),
        constraints=[LinearConstraint(share_K, 1, 1)],
    )  # fmt: skip
    if (same_PK @ found.x).max() >= (different_PK @ found.x).min():
        _log.warning("same and different: no weights rank all same pairs before all different ones")
    names = (*adapted.subspaces.properties, REST)
    return dict(zip(names, found.x.clip(0).round(6).tolist(), strict=True))


def write_weights(
    path: Path, weights: Weights, adapted: Adapted, pairs: Mapping[str, Sequence[Sequence[str]]]
) -> None:
    """Save weights for later searches, with their pairs."""
    write_json(path, {"version": VERSION, "adapted": digest(tensors_of(adapted)),
                      "weights": dict(weights), **pairs})  # fmt: skip


def is_weights(path: Path) -> bool:
    """Whether `write_weights` wrote the file."""
    try:
        written = read_json(path)
    except UserError:
        return False
    return isinstance(written, dict) and {"version", "adapted", "weights"} <= written.keys()


def check_weights(path: str | Path) -> Path:
    """The file of weights, checked before anything is encoded."""
    path = named(path)
    if not is_weights(path):
        problem = "has no weights" if path.exists() else "does not exist"
        raise UserError(f"space: expected depths or a file of `mast neighbours`, {path} {problem}")
    return path


def read_weights(path: str | Path, adapted: Adapted) -> Weights:
    """Load saved weights."""
    written = read_json(check_weights(path))
    if written["version"] != VERSION or written["adapted"] != digest(tensors_of(adapted)):
        raise UserError(f"space: {path} belongs to another adapted encoder; fit the pairs again")
    weights: Any = written["weights"]
    try:
        known = {name: float(weights[name]) for name in (*adapted.subspaces.properties, REST)}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"space: {path} lacks weights of some properties: {error}") from error
    if min(known.values()) < 0 or max(known.values()) == 0:
        raise UserError(f"space: {path} has invalid weights: {in_short(weights)}")
    return known
