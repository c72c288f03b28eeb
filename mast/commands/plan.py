"""Which recipe, how many epochs, how much memory, disk and time: before a run."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Literal

from rich.table import Table

from mast.commands.common import command
from mast.commands.pretrain import pretrain, starting
from mast.core.arguments import as_list
from mast.core.display import say
from mast.core.errors import OutOfMemoryError, UserError, counted
from mast.core.files import as_word, default_cache, in_gb
from mast.core.kinds import Device
from mast.core.run import RunFolder
from mast.core.table import Columns, Rows, Shown, literal

if TYPE_CHECKING:
    import torch

    from mast.runs.cost import Cost


Where = Literal["H200", "H100", "A100", "RTX4090", "cpu"]
ON_A_GPU = ("mast_c5_medium", "mast_c5_medium_vit", "mast_c5_medium_convnext")
ON_A_CPU = ("mast_c5_small",)
_SCALED = (
    "A recipe's epochs are meant for {:,} images. The rows with other epochs see fewer images more "
    "often, up to {} times, and more images less often."
)
OFFERED = {1: "an hour", 8: "a night"}  # hours of a CPU, where the usual epochs take longer


@dataclass(frozen=True, repr=False)
class Plan(Shown, Rows):
    """What runs on some images would cost.

    Where no hours are given, there is a cost for each recipe with its own epochs, then as many with
    epochs that are scaled to the number of images.
    """

    data: str
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]  # what takes long on a CPU, what is estimated, what would not fit
    encoder: str | None = None  # its name, where it is not the recipe's
    adapting: str | None = None  # the command of `mast adapt`, if that is planned: no costs

    @property
    def by_column(self) -> Columns:
        """A row for each cost."""
        configs, costs = [each.config for each in self.costs], self.costs
        return {
            "recipe": [config.recipe for config in configs],
            "size": [config.size for config in configs],
            "epochs": [config.epochs for config in configs],
            "batch_size": [config.batch_size for config in configs],
            "memory_gb": [math.nan if each.memory is None else each.memory / 1e9 for each in costs],
            "images_per_second": [each.images_per_second for each in costs],
            "hours": [each.seconds / 3600 for each in costs],
        }

    def table(self) -> Table:
        """One row a cost."""
        table = Table(
            title=literal(f"{self.costs[0].images:,} images of {self.data}", "table.title")
        )
        table.add_column("recipe", no_wrap=True)
        measured = any(each.memory is not None for each in self.costs)
        columns = ("px", "epochs", "batch", *["memory GB"] * measured, "images/s", "hours")
        for column in columns:
            table.add_column(column, justify="right")
        for each in self.costs:
            config = each.config
            table.add_row(
                config.recipe,
                str(config.size),
                str(config.epochs),
                f"{config.accumulate} x {config.batch_size // config.accumulate}",
                *([f"{(each.memory or 0) / 1e9:.1f}"] * measured),
                f"{each.images_per_second:.0f}",
                _hours(each.seconds),
            )
        return table

    @property
    def commands(self) -> tuple[str, ...]:
        """The command of each row, or that of `mast adapt`."""
        return (self.adapting,) if self.adapting else tuple(map(self._command, self.costs))

    def shown(self) -> tuple[str | Table, ...]:
        """The table, the notes and the commands."""
        table = [] if self.adapting else [self.table()]
        return *table, *self.notes, *self.commands

    def _command(self, each: Cost) -> str:
        from mast.core.launch import find_device
        from mast.recipes import recipe

        config = each.config
        words = ["mast", "pretrain", as_word(self.data), "--recipe", config.recipe]
        for name in ("epochs", "accumulate", "batch_size"):
            if getattr(config, name) != getattr(recipe(config.recipe), name):
                words += [f"--{name}", str(getattr(config, name))]
        if config.data.download:
            words += ["--download"]
        if each.measured and config.device != find_device("auto").type:
            words += ["--device", config.device]
        if self.encoder is not None:
            words += ["--encoder", as_word(self.encoder)]
        if config.encoder.weights is not None:
            words += ["--weights", as_word(config.encoder.weights)]
        return shlex.join(words)


@command
def plan(
    data: str | Path,
    gpu: Where | None = None,
    hours: float | None = None,
    recipes: str | Sequence[str] = (),
    weights: str | None = None,
    device: Device = "auto",
    download: bool = False,
    encoder: str | None = None,
    adapt: str | None = None,
    size: int | None = None,
) -> Plan:
    """Estimate what pretraining on your images, or `mast adapt`, costs, and print the command.

    Times a few training steps on generated images here; for another GPU it computes the time from
    a step's FLOPs and the vendor's specifications.

    Args:
        data: The images.
        gpu: The GPU to plan for; by default this machine; cpu plans for its CPU.
        hours: Time limit per run; as many epochs as fit, up to eight times the recipe's. By
            default the recipe's epochs, as in `mast pretrain`; a second row has as many steps as
            the recipe takes on 50,000 images. If the recipe takes long on this CPU, the first note
            says what fits into less time.
        recipes: Recipes to compare; by default those for one GPU on a GPU, otherwise
            `mast_c5_small`.
        weights: Starting weights, as in `mast pretrain --weights`.
        device: auto, cpu or cuda, on this machine.
        download: Allow downloading weights.
        encoder: The encoder, as in `mast pretrain --encoder`; the recipe's by default.
        adapt: Plan `mast adapt` for this encoder instead; runs one batch through it.
        size: Input size in pixels, as in `mast adapt`.

    Returns:
        Epochs, gradient-accumulation steps, memory of this machine's GPU, disk space and hours
        for each recipe, and the commands.
    """
    pretraining = {"gpu": gpu, "hours": hours, "recipes": recipes, "encoder": encoder}
    refused = [name for name, value in pretraining.items() if value not in (None, ())]
    if adapt is not None and refused:
        raise UserError(f"adapt plans no pretraining: leave {', '.join(refused)} out")
    if size is not None and adapt is None:
        raise UserError("size is for adapt: pretraining is planned at the size of each recipe")
    if hours is not None and not 0 < hours < math.inf:
        raise UserError(f"hours must be positive and finite, got {hours}")
    from mast.config import change
    from mast.core.launch import find_device
    from mast.data import open_source
    from mast.evaluation.verdict import ADAPT_FIRST
    from mast.recipes import recipe
    from mast.runs.cost import GPUS, MOST_TIMES, USUAL_IMAGES, Cost, cost, decoding_seconds, scaled

    if adapt is not None:
        return _adaptation(str(data), adapt, size, weights, find_device(device), download)
    here = find_device("cpu" if gpu == "cpu" else device)
    there = None if gpu is None or gpu == "cpu" else GPUS[gpu]
    default = ON_A_GPU if there is not None or here.type == "cuda" else ON_A_CPU
    if weights or encoder:  # whose architecture all recipes would train
        default = default[:1]
    configs = []
    for name in as_list(recipes) or default:
        config = change(recipe(name), {"data.spec": str(data), "data.download": download,
                                       "device": here.type})  # fmt: skip
        own = {"encoder.weights": weights, "encoder.name": encoder}
        config = change(config, {name: value for name, value in own.items() if value is not None})
        configs.append(starting(config))
    source = open_source(str(data), download=download)
    if len(source) < 2:
        raise UserError(f"{data} has {counted(len(source), 'image')}; give two or more")
    decoding = {size: decoding_seconds(source, size) for size in {c.size for c in configs}}
    if there is None:
        say("A few steps are trained on generated images, to measure how fast they are:")
    costs, too_large = list[Cost](), list[str]()
    for config in configs:
        try:
            costs.append(cost(config, source, decoding[config.size], there, hours, pretrain))
        except OutOfMemoryError as error:
            too_large.append(f"{config.recipe} does not fit here: {error}")
    if not costs:
        raise OutOfMemoryError(too_large[0])
    notes = [*too_large, *_notes(costs, gpu)]
    if hours is None:
        others = [other for each in costs if (other := scaled(each)) != each]
        said = [_SCALED.format(USUAL_IMAGES, MOST_TIMES)] if others else []
        notes = [*_shorter(costs), *said, *notes]
        costs += others
    if weights is not None and not RunFolder(weights).config.is_file():
        notes.append(ADAPT_FIRST)
    return Plan(str(data), tuple(costs), tuple(notes), encoder)


def _adaptation(
    data: str, encoder: str, size: int | None, weights: str | None, device: torch.device,
    download: bool,
) -> Plan:  # fmt: skip
    """Time one batch, as it is and changed by every operator."""
    import torch

    from mast.augment import operators_for
    from mast.core.compute import Compute
    from mast.core.memory import peak_memory
    from mast.data import open_source
    from mast.encoders.changes import acting_on, changed_by
    from mast.encoders.extract import represent
    from mast.encoders.load import load
    from mast.invariance.measure import FEWEST, IMAGES
    from mast.models import Depths
    from mast.runs.cost import decoding_seconds

    loaded = load(encoder, size=size, weights=weights, download=download, untrained=True)
    depths = Depths(loaded.module, loaded.size).eval()
    source = open_source(data, download=download)
    if len(source) < FEWEST:
        raise UserError(f"{data} has {len(source)} images: {FEWEST} or more are needed")
    compute, images = Compute(device).placed(depths), min(IMAGES, len(source))
    count = min(compute.images_at_once(loaded.size), images)
    images_BCHW = torch.rand(count, depths.channels, loaded.size, loaded.size).to(device)
    operators, times = acting_on(operators_for(depths.channels), depths.channels), list[float]()
    changes = [changed_by(name, None, loaded.size, count, 0) for name in operators]
    with torch.inference_mode():
        for _ in range(2):  # the first pass makes plans that later ones find
            begun = time.perf_counter()
            float(represent(depths, images_BCHW, compute.dtype).sum())
            times.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        for change in changes:
            float(change.apply(images_BCHW, torch.arange(count)).sum())
    passes = images * (1 + len(changes))
    seconds = (times[1] * (1 + len(changes)) + time.perf_counter() - begun) * images / count
    seconds += decoding_seconds(source, loaded.size)
    peak = peak_memory(device)
    memory = "" if peak is None else f", {in_gb(peak)} of memory"
    words = ["mast", "adapt", as_word(data), "--encoder", as_word(encoder)]
    for name, value in (("size", size), ("weights", weights)):
        words += [] if value is None else [f"--{name}", as_word(str(value))]
    line = (
        f"mast adapt encodes {passes:,} views of {images} images at {loaded.size} pixels: about "
        f"{seconds / 60:.1f} minutes on this {'GPU' if device.type == 'cuda' else 'CPU'}{memory}."
    )
    return Plan(data, (), (line,), adapting=shlex.join(words + ["--download"] * download))


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"


def _shorter(costs: Sequence[Cost]) -> list[str]:
    """Of each run that takes long on the CPU here, what fits into less time."""
    from mast.runs.cost import epochs_in

    notes = []
    for each in costs:
        less = {hours: words for hours, words in OFFERED.items() if each.seconds > 3600 * hours}
        if less and each.measured and each.config.device == "cpu":
            fits = (f"into {words} (--hours {hours}): {epochs_in(each, hours)}"
                    for hours, words in less.items())  # fmt: skip
            notes.append(
                f"{each.config.recipe}: {counted(each.config.epochs, 'epoch')} take "
                f"{_hours(each.seconds)} hours on this CPU. Epochs that fit {', '.join(fits)}."
            )
    return notes


def _notes(costs: Sequence[Cost], gpu: str | None) -> list[str]:
    from mast.runs.cost import REACHED, REACHED_ONCE

    first = costs[0]
    notes = []
    if first.measured:
        notes.append("Speed: measured here, on a few steps. Nothing else may work beside the run.")
    else:
        notes.append(
            f"Speed: computed, not measured: {REACHED:.0%} of the {gpu}'s peak in bfloat16 "
            f"({REACHED_ONCE}); where images must be read faster than the CPU can, it is less. "
            "Whether a step fits into its memory is not computed: plan again there."
        )
    for size, disk in {each.config.size: each.disk for each in costs if each.disk}.items():
        notes.append(f"Disk: {disk / 1e6:,.0f} MB for the resized images of {size} pixels.")
    for each in costs:
        if not each.disk:
            notes.append(
                f"{each.config.recipe}: the resized images would take more than "
                f"data.cache_limit_gb ({each.config.data.cache_limit_gb:g} GB), so that every "
                "epoch reads all files again."
            )
    cache = default_cache()
    free = disk_usage(next(each for each in (cache, *cache.parents) if each.exists())).free
    if first.measured and max(each.disk for each in costs) > free:
        notes.append(f"Only {in_gb(free)} are free at {cache}: name another data.cache.")
    return notes
