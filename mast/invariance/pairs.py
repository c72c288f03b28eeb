"""Pairs of images choose by what images are compared: how much each property is to count.

P pairs, F numbers of all depths, K properties and `REST`.
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

SAME, DIFFERENT = 0.25, 0.75  # of the usual distance, what pairs are to be below and above
STEEP = 8.0  # of the logistic loss
PENALTY = 0.02  # of weights that differ from 1
USUAL = 1000  # pairs of which the usual distance is the mean
VERSION = 1
_log = logging.getLogger("mast")


def weights_of(
    adapted: Adapted, same_2PF: Tensor, different_2PF: Tensor, bank_NF: Tensor
) -> Weights:
    """How much each property counts where some pairs are the same and others are different.

    The squared distance of two images is a sum of what lies in each property and of the rest.
    Weights w_k ≥ 0 multiply its terms, and keep the mean distance of two images of a bank, which
    makes them shares of it. The distance of a pair is linear in them, so that a logistic loss, with
    a penalty for weights other than 1, which ignore nothing, is convex. Features are of all depths.
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
        _log.warning("no weights put all pairs that are the same before all that are different")
    names = (*adapted.subspaces.properties, REST)
    return dict(zip(names, found.x.clip(0).round(6).tolist(), strict=True))


def write_weights(
    path: Path, weights: Weights, adapted: Adapted, pairs: Mapping[str, Sequence[Sequence[str]]]
) -> None:
    """Keep weights for later searches, with the pairs that they are of."""
    write_json(path, {"version": VERSION, "adapted": digest(tensors_of(adapted)),
                      "weights": dict(weights), **pairs})  # fmt: skip


def is_weights(path: Path) -> bool:
    """Whether `write_weights` wrote a file."""
    try:
        written = read_json(path)
    except UserError:
        return False
    return isinstance(written, dict) and {"version", "adapted", "weights"} <= written.keys()


def check_weights(path: str | Path) -> Path:
    """A file of weights, before anything is encoded."""
    path = named(path)
    if not is_weights(path):
        kind = "no weights in" if path.exists() else "no file"
        raise UserError(f"space: {kind} {path}: give depths, or what `mast neighbours` wrote")
    return path


def read_weights(path: str | Path, adapted: Adapted) -> Weights:
    """Weights that were kept."""
    written = read_json(check_weights(path))
    if written["version"] != VERSION or written["adapted"] != digest(tensors_of(adapted)):
        raise UserError(f"space: {path} is of another adapted encoder: choose by the pairs again")
    weights: Any = written["weights"]
    try:
        known = {name: float(weights[name]) for name in (*adapted.subspaces.properties, REST)}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"space: {path} has no weights of all properties: {error}") from error
    if min(known.values()) < 0 or max(known.values()) == 0:
        raise UserError(f"space: {path} has weights that cannot be: {in_short(weights)}")
    return known
