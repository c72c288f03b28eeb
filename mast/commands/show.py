"""`mast show`: operators, recipes, a configuration, views, and the cache."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from mast.commands.common import command
from mast.commands.options import with_texts
from mast.core.checkpoint import write_atomically
from mast.core.errors import UserError, counted
from mast.core.files import default_cache, out_file
from mast.core.kinds import later
from mast.core.table import TextTable, literal

if TYPE_CHECKING:
    from rich.console import Group

    from mast.config import PretrainConfig
else:
    PretrainConfig = later("mast.config", "PretrainConfig")


@command
def show_operators(size: int = 224) -> TextTable:
    """List operators: what each changes, its probability, and magnitudes at `size` pixels.

    Args:
        size: Side of a view in pixels; some magnitudes depend on it.
    """
    table = TextTable(title=f"operators at {size} pixels")
    for column in ("#", "operator", "changes", "p", "magnitudes", "in"):
        table.add_column(column)
    from mast.augment import OPERATORS, PRESETS

    for number, (name, build) in enumerate(OPERATORS.items(), start=1):
        operator = build(size)
        drawn = [f"{key} {_short(value)}" for key, value in operator.magnitudes().items()]
        presets = ", ".join(key for key, preset in PRESETS.items() if name in preset.operators)
        numbers = f"{operator.probability:g}", ", ".join(drawn)
        table.add_row(str(number), name, operator.changes, *numbers, presets)
    return table


OF_VIEWS = "Software", "mast show views"
SHOWN = 224  # pixels: the least side of a view in the picture
BY_PHOTOS = (  # docs/results.md
    "Below 3,000 photos, use the default encoder or other published weights: on five sets of "
    "photos, pretraining from random weights ended 8 to 28 points below them. Up to 50,000, or "
    "without a GPU: mast_c5_small. More, with a GPU: mast_c5_medium, which is not tuned yet."
)


@command
def show_recipes() -> Group:
    """List recipes, and which recipe suits how many photos."""
    table = TextTable(title="recipes", show_lines=True)
    table.add_column("recipe", no_wrap=True)
    table.add_column("what it trains")
    from mast.methods import METHODS
    from mast.recipes import RECIPES

    for name, make in RECIPES.items():
        config = make()
        title = (make.__doc__ or "").partition("\n")[0]
        facts = (
            METHODS[config.method].title,
            config.encoder.name,
            f"{config.size} px",
            counted(config.epochs, "epoch"),
            f"batch {config.batch_size}",
            f"views {config.views}",
            "two stages" if config.schedule.staged else "all operators from the start",
        )
        table.add_row(name, Text.assemble(title, "\n", (", ".join(facts), "dim")))
    from rich.console import Group

    return Group(BY_PHOTOS, table)


@command
def show_config(config: PretrainConfig) -> str:
    """Print a complete configuration as YAML, with a comment on each field."""
    return with_texts(config)


def show_cache(verify: bool = False, forget: str | None = None) -> TextTable:
    """List the cache: features by encoder, and canvases (decoded images) by set.

    Damaged entries are rebuilt when they are read.

    Args:
        verify: Read all canvases and count damaged ones.
        forget: Remove the features of encoders whose name contains this; "all" removes all
            features, measurements and lists of images.
    """
    from mast.data.cache import cached_sets
    from mast.data.store import ImageStore

    folder = default_cache()
    store = ImageStore(folder)
    if forget is not None:
        chosen = [each.name for each in store.kept() if forget in each.about]
        if not chosen and forget != "all":
            raise UserError(f"forget: no encoder {forget!r} in `mast show cache`")
        store.forget(None if forget == "all" else chosen)
        for name in ("lists", "measured") if forget == "all" else ():
            shutil.rmtree(folder / name, ignore_errors=True)
    table = TextTable(title=f"cache in {folder}")
    table.add_column("set or encoder")
    for column in ("pixels", "images", "GB"):
        table.add_column(column, justify="right")
    table.add_column("state")
    for of in store.kept():
        cells = (f"{of.images:,}", f"{of.bytes / 1e9:.2f}", "verified when read")
        table.add_row(literal(f"features by {of.about}"), "", *cells)
    for each in cached_sets(folder, verify):
        state = "not verified" if each.damaged is None else "whole"
        if each.damaged:
            state = f"{each.damaged:,} damaged; rebuilt after they are read"
        elif not each.readable:
            state = "manifest damaged or of another version; rebuilt when opened"
        gigabytes = f"{each.stored / 1e9:.2f}" if each.stored else "not stored"
        table.add_row(each.name, f"{each.side}²", f"{each.images:,}", gigabytes, state)
    return table


@command
def show_views(
    config: PretrainConfig,
    out: str | Path = "views.png",
    images: int = 6,
) -> Path:
    """Draw images, each in a row with the views of it that pretraining would see.

    Args:
        config: Data, views, size and seed are used. All operators may act.
        out: PNG to write.
        images: Number of images.

    Returns:
        The file.
    """
    if images < 1:
        raise UserError(f"images: expected 1 or more, got {images}")
    target = out_file(out, {".png": _is_of_views})
    import torch
    from PIL.PngImagePlugin import PngInfo
    from torch.nn.functional import interpolate
    from torchvision.transforms.functional import to_pil_image
    from torchvision.utils import make_grid

    from mast.augment import Pipeline, center_views, draw_views
    from mast.core.reading import shown
    from mast.core.seeds import stream
    from mast.data import open_canvas

    canvases = open_canvas(config.data, config.size)
    index_B = torch.randperm(len(canvases), generator=stream(config.seed, 0, 0))[:images]
    batch = canvases.batch(index_B)
    views = draw_views(Pipeline(config.preset, config.size), batch, (config.seed, 0, 1))
    columns = [center_views(batch, config.size), *views.images]
    side = max(SHOWN, config.size)
    rows = torch.stack([interpolate(shown(each), (side, side)) for each in columns], dim=1)
    picture, about = to_pil_image(make_grid(rows.flatten(0, 1), len(columns))), PngInfo()
    about.add_text(*OF_VIEWS)
    write_atomically(target, lambda partial: picture.save(partial, "PNG", pnginfo=about))
    return target


def _is_of_views(path: Path) -> bool:
    """Whether `show_views` drew a picture."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return OF_VIEWS in image.info.items()
    except Exception:  # Pillow raises OSError, SyntaxError, ValueError, DecompressionBombError, …
        return False


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return " to ".join(map(_short, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
