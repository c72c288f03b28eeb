"""Recipes: complete configurations, one function each; its docstring is the data sheet.

A recipe named `<name>_small` is the same method for views of up to 64 pixels and a budget of
minutes to hours on a laptop, `<name>_medium` one for a single GPU. `RECIPES` lists them all;
`mast show recipes` prints them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mast.config import PretrainConfig, change, load_yaml, replaced
from mast.core.entry import entry
from mast.core.errors import UserError, unknown
from mast.data import DataConfig
from mast.recipes import mast, others
from mast.recipes.small import small

DEFAULT = "mast_c5_small"

Recipe = Callable[[], PretrainConfig]

FULL: dict[str, Recipe] = {
    "mast_c5": mast.mast_c5,
    "mast_c15": mast.mast_c15,
    "mast_c5_distance": mast.mast_c5_distance,
    "mast5": mast.mast5,
    "mast15": mast.mast15,
    "mast5_printed": mast.mast5_printed,
    "vicreg5": mast.vicreg5,
    "vicreg5_augself": mast.vicreg5_augself,
    "vicreg5_staged": mast.vicreg5_staged,
    "vicreg": mast.vicreg,
    "simclr": others.simclr,
    "moco_v2": others.moco_v2,
    "simsiam": others.simsiam,
    "simsiam_augself": others.simsiam_augself,
    "byol": others.byol,
    "barlow_twins": others.barlow_twins,
    "lejepa": others.lejepa,
    "visreg": others.visreg,
    "swav": others.swav,
    "dino": others.dino,
    "mae": others.mae,
    "distill": others.distill,
    "supervised": others.supervised,
}


def recipe(name: str) -> PretrainConfig:
    """The configuration of a recipe, a key of `RECIPES`."""
    if not isinstance(name, str) or name not in RECIPES:
        error = unknown("recipe", name, RECIPES)
        raise UserError(f"{error} From a clone, `python -m paper` has more.")
    return RECIPES[name]()


def _small_recipe(full: Recipe) -> Recipe:
    def recipe() -> PretrainConfig:
        return small(full())

    recipe.__doc__ = f"{full.__name__} for small images and budgets."
    return recipe


MEDIUM: dict[str, Recipe] = {
    "mast_c5_medium": mast.mast_c5_medium,
    "mast_c5_medium_vit": mast.mast_c5_medium_vit,
    "mast_c5_medium_convnext": mast.mast_c5_medium_convnext,
    "vicreg5_medium": mast.vicreg5_medium,
}
RECIPES: dict[str, Recipe] = (
    FULL | MEDIUM | {f"{name}_small": _small_recipe(full) for name, full in FULL.items()}
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
    """
    if data is not None:
        changes["data"] = {"spec": str(data)} if isinstance(data, str | Path) else data
    return change(recipe(recipe_name), changes)


def merge(
    recipe_name: str | None, file: str | Path | None, values: Mapping[str, Any]
) -> PretrainConfig:
    """A recipe, overridden by the fields of a file, then by values.

    Args:
        recipe_name: The recipe; if None, the one that the file names, or the default.
        file: A complete or partial configuration, such as a run's config.yaml.
        values: Fields by dotted names.
    """
    if file is None:
        return change(recipe(recipe_name or DEFAULT), values)
    fields = load_yaml(file) | ({} if recipe_name is None else {"recipe": recipe_name})
    try:
        config = replaced(recipe(fields.get("recipe") or DEFAULT), fields)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    return change(config, values)
