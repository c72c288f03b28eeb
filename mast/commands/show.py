"""`mast show`: operators, recipes, a configuration, views, and the cache."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from mast.commands.common import command
from mast.commands.options import with_texts
from mast.core.errors import UserError, counted
from mast.core.files import default_cache, named, out_file
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
        magnitudes = operator.magnitudes().items()
        text = ", ".join(f"{name} {_short(value)}" for name, value in magnitudes)
        presets = ", ".join(key for key, preset in PRESETS.items() if name in preset.operators)
        probability = f"{operator.probability:g}"
        table.add_row(str(number), name, operator.changes, probability, text, presets)
    return table


# From `docs/results.md`; `mast plan` scales epochs to 50,000 images.
BY_PHOTOS = (
    (
        "below 3,000",
        "none",
        "Use the default encoder or other published weights. On five sets of 806 to 2,587 photos, "
        "pretraining from random weights ended 8 to 28 points below them.",
    ),
    (
        "3,000 to 50,000, or no GPU",
        "mast_c5_small",
        "Its method ranks first of 13 in `docs/results.md`, on 10,000 images of 32 pixels; not "
        "compared with published weights there.",
    ),
    (
        "more, with a GPU",
        "mast_c5_medium",
        "The same for photos at 224 pixels; no such run was trained to the end, so its learning "
        "rate is not tuned. `mast plan` estimates the hours.",
    ),
)


@command
def show_recipes() -> Group:
    """List recipes, and which recipe suits how many photos."""
    first = TextTable(title="which recipe", show_lines=True)
    for column in ("photos", "recipe", "why"):
        first.add_column(column)
    for row in BY_PHOTOS:
        first.add_row(*row)
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

    return Group(first, table)


@command
def show_config(config: PretrainConfig) -> str:
    """Print a complete configuration as YAML, with a comment on each field."""
    return with_texts(config)


def show_cache(
    cache: str | Path | None = None, verify: bool = False, forget: str | None = None
) -> TextTable:
    """List the cache: features by encoder, and canvases (decoded images) by set.

    Damaged entries are rebuilt when they are read.

    Args:
        cache: Cache folder; by default that of all commands.
        verify: Read all canvases and count damaged ones.
        forget: Remove the features of encoders whose name contains this; "all" removes all
            features, measurements and lists of images.
    """
    from mast.data.cache import cached_sets
    from mast.data.store import ImageStore

    folder = default_cache() if cache is None else named(cache)
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
    """Draw images next to views that pretraining would see, captioned with their operators.

    Args:
        config: Data, views, size and seed are used. All operators may act.
        out: PNG to write.
        images: Number of images.

    Returns:
        The file.
    """
    from mast.analyses.figure import is_views_grid, views_grid

    if images < 1:
        raise UserError(f"images: expected 1 or more, got {images}")
    target = out_file(out, {".png": is_views_grid})
    import torch

    from mast.augment import Pipeline, center_views, describe, draw_views
    from mast.core.seeds import stream
    from mast.data import open_canvas

    canvases = open_canvas(config.data, config.size)
    index_B = torch.randperm(len(canvases), generator=stream(config.seed, 0, 0))[:images]
    batch = canvases.batch(index_B)
    pipeline = Pipeline(config.preset, config.size)
    views = draw_views(pipeline, batch, (config.seed, 0, 1))
    captions = [
        [describe(record, sample) for record in views.records] for sample in range(len(index_B))
    ]
    originals_BCHW = center_views(batch, config.size)
    views_grid(originals_BCHW, views.images, captions, target)
    return target


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return " to ".join(map(_short, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
