"""Recipes: complete configurations, one function each; the docstring is its data sheet.

A recipe named `<name>_small` is the same method for views of up to 64 pixels and a budget of
minutes to hours on a laptop. `RECIPES` lists them all; `mast show recipes` prints them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from mast.augment import ScheduleConfig
from mast.core.errors import UserError, unknown
from mast.core.optim import OptimizerConfig
from mast.methods import MastConfig, VICRegConfig
from mast.models import EncoderConfig, ProjectorConfig
from mast.pretrain import PretrainConfig

# ------------------------------------------------------------------------------ ImageNet scale


def mast5() -> PretrainConfig:
    """MAST-5 on ImageNet: ResNet-50, 1000 epochs, batch 2048.

    Paper: linear top-1 74.9, 1 %/10 % semi-supervised 55.2/70.2 (Table 1).
    Hyper-parameters of section 3.2 and of VICReg, whose protocol it follows: LARS, rate 1.6 at
    batch 2048, weight decay 1e-6, cosine after 10 epochs of warm-up, projector 8192-8192, d 4096.
    The objective is the guarded one; `--objective.mode paper` is Eq. 7 as printed.

        mast pretrain --data imagenet/train --recipe mast5
    """
    return PretrainConfig(
        recipe="mast5",
        size=224,
        views="mast5",
        method="mast",
        objective=MastConfig(projector=ProjectorConfig(hidden=8192, dim=4096)),
        encoder=EncoderConfig("resnet50"),
        optimizer=OptimizerConfig("lars", lr=0.2, weight_decay=1e-6, warmup=10),
        epochs=1000,
        batch_size=2048,
    )


def mast15() -> PretrainConfig:
    """MAST-15 on ImageNet: as mast5, with 15 operators.

    Paper: linear top-1 75.8, semi-supervised 55.8/71.4 (Table 1).
    """
    return replace(mast5(), recipe="mast15", views="mast15")


def mast19() -> PretrainConfig:
    """MAST-19 on ImageNet: as mast5, with 19 operators.

    Paper: linear top-1 75.8 (Table 5, row 3).
    """
    return replace(mast5(), recipe="mast19", views="mast19")


def mast5_handcrafted() -> PretrainConfig:
    """MAST-5 with fixed disjoint masks instead of learned ones.

    Paper: linear top-1 74.3 (Table 5, row 7).
    """
    return _with_objective(mast5(), "mast5_handcrafted", masks="handcrafted")


def mast5_no_uncertainty() -> PretrainConfig:
    """MAST-5 without the predicted covariance and its KL term.

    Paper: linear top-1 74.1 (Table 5, row 8).
    """
    return _with_objective(mast5(), "mast5_no_uncertainty", uncertainty=False)


def mast5_uncertainty_only() -> PretrainConfig:
    """MAST-5 without masks: one distance, divided by the predicted covariance.

    Paper: Flowers-17 26.5, Cars 16.4 with ResNet-18 and 100 epochs (Table 6).
    """
    return _with_objective(mast5(), "mast5_uncertainty_only", masks="none")


def vicreg5() -> PretrainConfig:
    """VICReg with the five symmetric operators of MAST-5, all from the start.

    Paper: linear top-1 73.2 (Table 5, row 4).
    """
    return replace(
        mast5(),
        recipe="vicreg5",
        schedule=ScheduleConfig(staged=False),
        method="vicreg",
        objective=VICRegConfig(projector=ProjectorConfig(hidden=8192, dim=8192)),
    )


def vicreg5_staged() -> PretrainConfig:
    """VICReg with the five operators in MAST's two stages.

    Paper: linear top-1 73.4 (Table 5, row 6).
    """
    return replace(vicreg5(), recipe="vicreg5_staged", schedule=ScheduleConfig(staged=True))


def vicreg15() -> PretrainConfig:
    """VICReg with 15 operators, all from the start: richer augmentation without subspaces.

    Paper: linear top-1 73.1 (Table 5, row 2).
    """
    return replace(vicreg5(), recipe="vicreg15", views="mast15")


def vicreg() -> PretrainConfig:
    """VICReg with its official, asymmetric augmentation (blur 1.0/0.1, solarize 0/0.2).

    Never beside `vicreg5` in one comparison: the views differ. VICReg paper: linear top-1 73.2.
    """
    return replace(vicreg5(), recipe="vicreg", views="vicreg")


# --------------------------------------------------------------------------------- small scale


def _small(config: PretrainConfig) -> PretrainConfig:
    """The small variant: ResNet-18 at 64 pixels, projector 1024-1024, d 512, AdamW, 100 epochs."""
    projector = ProjectorConfig(hidden=1024, dim=512, pool="before")
    return replace(
        config,
        recipe=f"{config.recipe}_small",
        size=64,
        objective=replace(config.objective, projector=projector),
        encoder=EncoderConfig("resnet18"),
        optimizer=OptimizerConfig("adamw", lr=1e-3, weight_decay=1e-4, gate_lr=0.01, warmup=10),
        epochs=100,
        batch_size=256,
    )


def _with_objective(config: PretrainConfig, name: str, **changes: Any) -> PretrainConfig:
    return replace(config, recipe=name, objective=replace(config.objective, **changes))


Recipe = Callable[[], PretrainConfig]

FULL: dict[str, Recipe] = {
    "mast5": mast5,
    "mast15": mast15,
    "mast19": mast19,
    "mast5_handcrafted": mast5_handcrafted,
    "mast5_no_uncertainty": mast5_no_uncertainty,
    "mast5_uncertainty_only": mast5_uncertainty_only,
    "vicreg5": vicreg5,
    "vicreg5_staged": vicreg5_staged,
    "vicreg15": vicreg15,
    "vicreg": vicreg,
}


def recipe(name: str) -> PretrainConfig:
    """The configuration of a recipe.

    Args:
        name: A key of `RECIPES`.

    Raises:
        UserError: No such recipe; the message has the nearest one.
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]()


def _small_recipe(full: Recipe) -> Recipe:
    return lambda: _small(full())


RECIPES: dict[str, Recipe] = FULL | {
    f"{name}_small": _small_recipe(full) for name, full in FULL.items()
}
