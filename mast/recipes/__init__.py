"""Recipes: complete configurations, one function each; the docstring is its data sheet.

A recipe named `<name>_small` is the same method for views of up to 64 pixels and a budget of
minutes to hours on a laptop, `<name>_medium` one for a single GPU. `RECIPES` lists them all;
`mast show recipes` prints them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mast.config import PretrainConfig, change, load_yaml
from mast.core.entry import entry
from mast.core.errors import UserError, unknown
from mast.data import DataConfig
from mast.recipes.barlow_twins import barlow_twins
from mast.recipes.byol import byol
from mast.recipes.clsa import clsa
from mast.recipes.dino import dino
from mast.recipes.looc import looc
from mast.recipes.mae import mae
from mast.recipes.mast import (
    mast5,
    mast5_guarded,
    mast5_handcrafted,
    mast5_no_uncertainty,
    mast5_uncertainty_only,
    mast15,
    mast19,
)
from mast.recipes.medium import (
    mast5_medium,
    mast5_medium_convnext,
    mast5_medium_vit,
    vicreg5_medium,
)
from mast.recipes.moco import ifm_moco_v2, infomin, moco_v2, moco_v3, prcl
from mast.recipes.obow import obow
from mast.recipes.rival import rival as rival
from mast.recipes.rival import rival_of as rival_of
from mast.recipes.simclr import simclr
from mast.recipes.simsiam import simsiam, simsiam_augself, vi_simsiam
from mast.recipes.small import small
from mast.recipes.supervised import supervised
from mast.recipes.swav import swav
from mast.recipes.vicreg import vicreg, vicreg5, vicreg5_augself, vicreg5_staged, vicreg15

DEFAULT = "mast5_small"

Recipe = Callable[[], PretrainConfig]

FULL: dict[str, Recipe] = {
    "mast5": mast5,
    "mast15": mast15,
    "mast19": mast19,
    "mast5_guarded": mast5_guarded,
    "mast5_handcrafted": mast5_handcrafted,
    "mast5_no_uncertainty": mast5_no_uncertainty,
    "mast5_uncertainty_only": mast5_uncertainty_only,
    "vicreg5": vicreg5,
    "vicreg5_augself": vicreg5_augself,
    "vicreg5_staged": vicreg5_staged,
    "vicreg15": vicreg15,
    "vicreg": vicreg,
    "simclr": simclr,
    "moco_v2": moco_v2,
    "moco_v3": moco_v3,
    "ifm_moco_v2": ifm_moco_v2,
    "infomin": infomin,
    "simsiam": simsiam,
    "simsiam_augself": simsiam_augself,
    "vi_simsiam": vi_simsiam,
    "byol": byol,
    "barlow_twins": barlow_twins,
    "swav": swav,
    "dino": dino,
    "looc": looc,
    "clsa": clsa,
    "obow": obow,
    "mae": mae,
    "prcl": prcl,
    "supervised": supervised,
}


def recipe(name: str) -> PretrainConfig:
    """The configuration of a recipe.

    Args:
        name: A key of `RECIPES`.

    Raises:
        UserError: No such recipe; the message has the nearest one.
    """
    if not isinstance(name, str) or name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]()


def _small_recipe(full: Recipe) -> Recipe:
    def recipe() -> PretrainConfig:
        return small(full())

    recipe.__doc__ = f"{full.__name__} for small images and budgets."
    return recipe


MEDIUM: dict[str, Recipe] = {
    "mast5_medium": mast5_medium,
    "mast5_medium_vit": mast5_medium_vit,
    "mast5_medium_convnext": mast5_medium_convnext,
    "vicreg5_medium": vicreg5_medium,
}
# No small recipe with masks has the uncertainty, so one is not named for its absence.
RECIPES: dict[str, Recipe] = (
    FULL
    | MEDIUM
    | {
        f"{name}_small": _small_recipe(full)
        for name, full in FULL.items()
        if full is not mast5_no_uncertainty
    }
)


@entry()
def configure(
    recipe_name: str = DEFAULT,
    data: str | Path | Mapping[str, Any] | DataConfig | None = None,
    **changes: Any,
) -> PretrainConfig:
    """A recipe with changes, checked like the options of `mast pretrain`.

    Args:
        recipe_name: A key of `RECIPES`.
        data: The images, as in `DataConfig.spec`, or fields of `DataConfig`.
        **changes: Fields of `PretrainConfig`; nested ones as dicts, for example
            `encoder={"name": "resnet34"}, epochs=20`.

    Returns:
        A configuration for `mast.pretrain`.

    Raises:
        UserError: An unknown recipe or field, or a value of the wrong type.
    """
    if data is not None:
        changes["data"] = {"spec": str(data)} if isinstance(data, str | Path) else data
    return change(recipe(recipe_name), changes)


def merge(recipe_name: str | None, file: str | Path | None) -> PretrainConfig:
    """A recipe with the fields of a file in place of its own.

    Args:
        recipe_name: The recipe; if None the one that the file names, or the default.
        file: A configuration such as a run's config.yaml, whole or in part.

    Raises:
        UserError: No such recipe or file, or an unknown field; the message names the file.
    """
    if file is None:
        return recipe(recipe_name or DEFAULT)
    values = load_yaml(file)
    if recipe_name is not None:
        values["recipe"] = recipe_name
    try:
        return change(recipe(values.get("recipe") or DEFAULT), values)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
