"""Estimate epochs, memory, disk space and time before a run."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.commands.common import command
from mast.commands.pretrain import pretrain, starting
from mast.core.arguments import as_list
from mast.core.display import say
from mast.core.errors import OutOfMemoryError, UserError
from mast.core.files import as_word
from mast.core.kinds import Device
from mast.core.run import RunFolder
from mast.core.table import Columns, Rows, Shown, TextTable

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from mast.runs.cost import Cost


ON_A_GPU = ("mast_c5_medium", "mast_c5_medium_vit", "mast_c5_medium_convnext")
ON_A_CPU = ("mast_c5_small",)


@dataclass(frozen=True, repr=False)
class Plan(Shown, Rows):
    """Estimated costs of runs.

    Without a time limit, each recipe appears with its own epochs, then with epochs scaled to the
    number of images.
    """

    data: str
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]  # assumptions, disk space, what does not fit
    encoder: str | None = None  # if it is not the recipe's

    @property
    def by_column(self) -> Columns:
        """One row per cost."""
        fields = ("recipe", "size", "epochs", "batch_size", "accumulate")
        costs = self.costs
        return {
            **{name: [getattr(each.config, name) for each in costs] for name in fields},
            "memory_gb": [math.nan if each.memory is None else each.memory / 1e9 for each in costs],
            "images_per_second": [each.images_per_second for each in costs],
            "hours": [each.seconds / 3600 for each in costs],
        }

    @property
    def commands(self) -> tuple[str, ...]:
        """The command of each row."""
        return tuple(map(self._command, self.costs))

    def shown(self) -> tuple[str | TextTable, ...]:
        """The table, the notes and the commands."""
        table = TextTable(title=f"{self.costs[0].images:,} images of {self.data}")
        columns = dict(self.by_column)
        if all(each.memory is None for each in self.costs):
            del columns["memory_gb"]
        for name in columns:
            side: JustifyMethod = "left" if name == "recipe" else "right"
            table.add_column(name.replace("_", " "), justify=side)
        for row in zip(*columns.values(), strict=True):
            table.add_row(*map(_cell, row))
        return table, *self.notes, *self.commands

    def _command(self, each: Cost) -> str:
        from mast.core.launch import find_device
        from mast.recipes import recipe

        config, own = each.config, recipe(each.config.recipe)
        options: dict[str, Any] = {"recipe": config.recipe}
        for name in ("epochs", "accumulate", "batch_size"):
            if getattr(config, name) != getattr(own, name):
                options[name] = getattr(config, name)
        if config.device != find_device("auto").type:
            options["device"] = config.device
        options |= {"encoder": self.encoder, "weights": config.encoder.weights}
        words = ["mast", "pretrain", as_word(self.data)]
        words += ["--download"] * config.data.download
        for name, value in options.items():
            words += [] if value is None else [f"--{name}", as_word(str(value))]
        return shlex.join(words)


@command
def plan(
    data: str | Path,
    hours: float | None = None,
    recipes: str | Sequence[str] = (),
    weights: str | None = None,
    device: Device = "auto",
    download: bool = False,
    encoder: str | None = None,
) -> Plan:
    """Estimate what pretraining on your images costs here, and print the command.

    Times a few training steps on generated images.

    Args:
        data: The images.
        hours: Time limit per run, for as many epochs as fit, up to eight times the recipe's. By
            default the recipe's epochs; a second row has as many steps as the recipe takes on
            50,000 images.
        recipes: Recipes to compare; by default those for one GPU on a GPU, otherwise
            `mast_c5_small`.
        weights: Starting weights, as in `mast pretrain --weights`.
        download: Allow downloading weights.
        encoder: The encoder, as in `mast pretrain --encoder`; the recipe's by default.

    Returns:
        Epochs, gradient-accumulation steps, memory of this machine's GPU, disk space and hours
        for each recipe, and the commands.
    """
    if hours is not None and not 0 < hours < math.inf:
        raise UserError(f"hours: expected a positive, finite number, got {hours}")
    from mast.config import change
    from mast.core.launch import find_device
    from mast.data import open_source
    from mast.evaluation.verdict import ADAPT_FIRST
    from mast.recipes import recipe
    from mast.runs.cost import Cost, cost, decoding_seconds

    here = find_device(device)
    default = ON_A_GPU if here.type == "cuda" else ON_A_CPU
    if weights or encoder:  # all recipes would train the same architecture
        default = default[:1]
    changes = {
        "data.spec": str(data), "data.download": download, "device": here.type,
        **({"encoder.weights": weights} if weights else {}),
        **({"encoder.name": encoder} if encoder else {}),
    }  # fmt: skip
    names = as_list(recipes) or default
    configs = [starting(change(recipe(name), changes)) for name in names]
    source = open_source(str(data), download=download)
    if len(source) < 2:
        raise UserError(f"data: expected two images or more, got {len(source)} in {data}")
    decoding = {size: decoding_seconds(source, size) for size in {c.size for c in configs}}
    say("Timing a few training steps on generated images:")
    costs, notes = list[Cost](), list[str]()
    for config in configs:
        try:
            costs.append(cost(config, source, decoding[config.size], pretrain))
        except OutOfMemoryError as error:
            notes.append(f"{config.recipe} does not fit here: {error}")
    if not costs:
        raise OutOfMemoryError(notes[0])
    if hours is None:
        costs += [other for each in costs if (other := each.scaled()) != each]
    else:
        costs = [each.within(hours) for each in costs]
    notes += _notes(costs)
    if weights is not None and not RunFolder(weights).config.is_file():
        notes.append(ADAPT_FIRST)
    return Plan(str(data), tuple(costs), tuple(notes), encoder)


def _cell(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
    return str(value)


def _notes(costs: Sequence[Cost]) -> list[str]:
    from mast.runs.cost import MOST_TIMES, USUAL_IMAGES

    notes = [
        f"A recipe's epochs suit {USUAL_IMAGES:,} images. Rows with other epochs take as many "
        f"steps on your images, with at most {MOST_TIMES} times the epochs; --hours plans as "
        "many epochs as fit.",
        "Speed: measured here on a few steps; other work on this machine slows training down.",
    ]
    for size, disk in {each.config.size: each.disk for each in costs}.items():
        notes.append(
            f"Disk: {disk / 1e6:,.0f} MB for the resized images of {size} pixels."
            if disk
            else f"Disk: the resized images of {size} pixels would take more than "
            "data.cache_limit_gb, so every epoch decodes all files again."
        )
    return notes
