"""Is the paper's method, in any form that keeps its parts, ahead of VICReg with its projector?

Its parts are learned masks for each operator, a predicted covariance, and two stages. On Flowers-17
at the paper's scale MAST-5 was behind VICReg (Table 6), whose distance weighs 25, not 10.

Shapes: B batch, D embedding dimensions, K operators.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from torch import Tensor

from experiments.candidates import CANDIDATES_ON_VALIDATION
from experiments.fair import GRID
from experiments.small import Row
from experiments.variants import UNSTAGED
from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.run import plain
from mast.losses import intersection, subspace_mean
from mast.methods import METHODS, Mast, MastConfig, MethodEntry
from mast.recipes import RECIPES, recipe

EQUAL = {"masked_weight": 25.0}
BUDGET = {"sparsity_weight": 0.0}  # masks have a mean square of 1; their width is not rewarded
AFTER = {"projector": {"pool": "after"}}  # as in appendix A
PLAIN = {"masks": "none", "uncertainty": False, **EQUAL}
ALL = EQUAL | AFTER | BUDGET
LIKELIHOOD = "mast_likelihood"


@dataclass
class LikelihoodConfig(MastConfig):
    """MAST's objective with a covariance that maximizes the likelihood of the distances."""


class Likelihood(Mast):
    """The distance over the uncertainty, plus its logarithm: a large uncertainty costs something.

    Up to constants, this is the negative log-likelihood of the difference of two views, in the
    subspace of their operators, under a normal distribution.
    """

    def _distance(
        self, squared_BD: Tensor, covariance_BD: Tensor | None, mask_DK: Tensor, active_BK: Tensor
    ) -> Tensor:
        if covariance_BD is None:
            return super()._distance(squared_BD, None, mask_DK, active_BK)
        weight_BD = intersection(mask_DK, active_BK)
        distance_B1 = (weight_BD * squared_BD).sum(dim=1, keepdim=True)
        variance_B1 = (weight_BD * covariance_BD).sum(dim=1, keepdim=True)
        active_B1 = active_BK.any(dim=1, keepdim=True)
        return subspace_mean(distance_B1 / variance_B1 + variance_B1.log(), active_B1, "active")


def likelihood() -> PretrainConfig:
    """`mast5_small` with this objective."""
    base = recipe("mast5_small")
    own = {each.name: getattr(base.objective, each.name) for each in fields(base.objective)}
    return replace(base, recipe=f"{LIKELIHOOD}_small", objective=LikelihoodConfig(**own))


def register() -> None:
    """Add the objective to the methods and recipes."""
    METHODS[LIKELIHOOD] = MethodEntry("MAST, likelihood", LikelihoodConfig, Likelihood)
    RECIPES[f"{LIKELIHOOD}_small"] = partial(likelihood)


def form(
    title: str,
    schedule: ScheduleConfig = ScheduleConfig(),  # noqa: B008  # two stages
    recipe: str = "mast5_small",
    **objective: Any,
) -> Row:
    """A row of the paper's method, in two stages unless it has another schedule."""
    return Row(title, recipe, {"objective": objective, "schedule": plain(schedule)}, GRID)


ROWS: Mapping[str, Row] = {
    "form_vicreg": form("VICReg, the same projector", UNSTAGED, **PLAIN),
    "form_vicreg_after": form("VICReg, pooled after the layers", UNSTAGED, **PLAIN, **AFTER),
    "form_mast": form("MAST-5"),
    "form_equal": form("distance weighs 25", **EQUAL),
    "form_unstaged": form("without stages", UNSTAGED),
    "form_after": form("pooled after the layers", **AFTER),
    "form_budget": form("masks of a fixed budget", **BUDGET),
    "form_likelihood": form("uncertainty as a likelihood", recipe=f"{LIKELIHOOD}_small"),
    "form_all": form("all but without stages", recipe=f"{LIKELIHOOD}_small", **ALL),
    "form_all_unstaged": form("all of these", UNSTAGED, f"{LIKELIHOOD}_small", **ALL),
}
FORMS = replace(
    CANDIDATES_ON_VALIDATION,
    rows=ROWS,
    results="forms",
    title="Forms of the paper's method, on validation images",
    baseline="form_vicreg",
    about=(
        "Three learning rates were tuned here; weights and masks of `mast5_small` were chosen "
        "earlier on these images.",
    ),
)
