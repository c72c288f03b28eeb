"""Pretraining."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.commands.common import command
from mast.commands.options import configured
from mast.core.checkpoint import saved
from mast.core.display import doing
from mast.core.errors import UserError
from mast.core.kinds import later
from mast.core.run import RunFolder

if TYPE_CHECKING:
    from mast.config import PretrainConfig
else:
    PretrainConfig = later("mast.config", "PretrainConfig")


@command
def pretrain(config: PretrainConfig | str | Path, **changes: Any) -> RunFolder:
    """Pretrain an encoder, or continue the run that the same configuration started.

    An interrupted run continues from its last checkpoint, even in the middle of an epoch, and on a
    CPU ends with the same weights, bit for bit, as an uninterrupted one. A finished run is not
    changed. On a CPU, freed memory is not returned to the system (`keep_freed_memory`).

    Args:
        config: The run, as `mast.configure` makes one; or the images, with the options of
            `mast pretrain` and fields, such as `recipe="mast5_small"` and `epochs=20`.

    Returns:
        The run folder, which holds `encoder.safetensors` and `embedding.safetensors`.

    Raises:
        UserError: A configuration, images or a folder that cannot be used; a loss that is no longer
            finite.
        OutOfMemoryError: A step needs more memory than there is.
        Interrupted: A signal asked to stop. The step was finished and saved.
    """
    if isinstance(config, str | Path):
        config = configured(config, **changes)
    config.check()
    config.check_trainable()
    config = starting(config)
    run = RunFolder(config.folder())
    import torch

    from mast.core.launch import check_threads, launch_processes, make_fabric, started
    from mast.runs.pretraining import compiles, fitting, part_size, train

    check_threads(config.threads)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with doing("setting up devices"):
        fabric = make_fabric(
            config.device, config.precision, _loggers(config, run),
            same_graph=config.accumulate == 1,
        )  # fmt: skip
    processes = math.prod(started())
    compiles(config, fabric.device, processes)  # if it can
    part_size(config, processes)
    with (
        launch_processes(fabric, lambda: _continues(run)),
        run.held() if fabric.is_global_zero else nullcontext(),
        fitting(config, fabric.device),
    ):
        train(config, run, fabric)
    return run


def _continues(run: RunFolder) -> str:
    """What running the same command again will do."""
    if state := saved(run.last):
        return f"the same command resumes from step {state.get('step')}"
    return "nothing was saved yet; the same command starts from the beginning"


def starting(config: PretrainConfig) -> PretrainConfig:
    """`with_architecture`, but refuse an `encoder.name` that names other weights."""
    from mast.models.pretrained import architecture_of, named_weights, weights_file
    from mast.recipes import RECIPES
    from mast.runs.start import with_architecture

    teacher = getattr(config.objective, "teacher", "")
    if teacher and (weights := named_weights(teacher)) is not None:
        weights_file(weights, config.data.download)  # the method finds it in the cache
    found, wanted = with_architecture(config), config.encoder
    name = found.encoder.name
    if (weights := named_weights(name)) is not None:
        raise UserError(
            f"encoder.name: expected an architecture, got the weights {weights!r}; pass them as "
            f"encoder.weights, or use {architecture_of(name)} for random weights"
        )
    recipe = RECIPES.get(config.recipe)  # the weights' architecture replaces the recipe's
    if architecture_of(wanted.name) not in (name, recipe().encoder.name if recipe else name):
        raise UserError(
            f"encoder.name: expected {name!r}, the architecture of encoder.weights "
            f"{wanted.weights}, got {wanted.name!r}"
        )
    return found


def _loggers(config: PretrainConfig, run: RunFolder) -> list[Any]:
    from mast.core.loggers import TensorBoardLogger, WandbLogger, is_installed

    loggers: list[Any] = [TensorBoardLogger(run.tensorboard)] if is_installed() else []
    if config.wandb is not None:
        loggers.append(WandbLogger(config.wandb, run.path))
    return loggers
