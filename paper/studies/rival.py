"""The run that a run is compared with."""

from dataclasses import replace
from typing import Any, cast

from mast.config import PretrainConfig
from mast.methods import MastCConfig, MastConfig
from mast.models import MLPConfig
from mast.recipes.mast import vicreg5, vicreg5_medium
from mast.recipes.small import small

RIVAL = "vicreg"  # the method that others are compared with


def rival(config: PretrainConfig) -> PretrainConfig:
    """The run to compare with: VICReg.

    Args:
        config: The run, of another method.

    Returns:
        VICReg's own objective and schedule, and its own views where the run's are no pair; all else
        as in the run. It has the projector's sizes of MAST and of MAST-C over a distance, and its
        own optimizer beside MAST-C's contrast.
    """
    own = small(vicreg5()) if config.recipe.endswith("_small") else vicreg5()
    if "_medium" in config.recipe:
        own = vicreg5_medium()
    objective, optimizer = cast(Any, own.objective), config.optimizer
    match config.objective:
        case MastCConfig(compare="contrast"):
            optimizer = own.optimizer
        case MastConfig(projector=sizes) | MastCConfig(projector=sizes):
            objective = replace(objective, projector=MLPConfig(sizes.hidden, sizes.dim))
    views = config.views if len(config.preset.views) == 2 else own.views
    return replace(
        config, recipe=own.recipe, objective=objective, schedule=own.schedule, views=views,
        optimizer=optimizer,
    )  # fmt: skip
