"""The run that a run is compared with."""

from dataclasses import replace
from typing import Any

from mast.config import PretrainConfig
from mast.methods import MastConfig, VICRegConfig
from mast.models import MLPConfig
from mast.recipes.small import small
from mast.recipes.vicreg import vicreg5

RIVAL = "vicreg"


def rival_of(method: str) -> str | None:
    """The method that a method is compared with; None for that method itself."""
    return None if method == RIVAL else RIVAL


def rival(config: PretrainConfig) -> PretrainConfig | None:
    """The run that a run is compared with: VICReg beside it.

    Args:
        config: The run.

    Returns:
        VICReg's own objective and schedule, and its own views where the run's are no pair; all else
        as in the run. Beside MAST it has the sizes of that projector. None for a run of VICReg.
    """
    if isinstance(config.objective, VICRegConfig):
        return None
    own = small(vicreg5()) if config.recipe.endswith("_small") else vicreg5()
    objective: Any = own.objective
    if isinstance(config.objective, MastConfig):
        sizes = config.objective.projector
        objective = replace(objective, projector=MLPConfig(sizes.hidden, sizes.dim))
    views = config.views if len(config.preset.views) == 2 else own.views
    return replace(
        config, recipe=own.recipe, objective=objective, schedule=own.schedule, views=views
    )
