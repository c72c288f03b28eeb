"""Pretraining."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.commands.common import command
from mast.commands.options import configured
from mast.core.checkpoint import saved
from mast.core.display import doing, say
from mast.core.errors import UserError, counted, visible
from mast.core.kinds import later
from mast.core.processes import together
from mast.core.run import RunFolder

if TYPE_CHECKING:
    import torch
    from lightning_fabric import Fabric

    from mast.config import PretrainConfig
    from mast.core.loop import Losses
    from mast.data import Batch, Feed
    from mast.models import Encoder
else:
    PretrainConfig = later("mast.config", "PretrainConfig")


@command
def pretrain(config: PretrainConfig | str | Path, **changes: Any) -> RunFolder:
    """Pretrain an encoder, or continue the run that the same configuration started.

    An interrupted run continues from its last checkpoint, even in the middle of an epoch, and on a
    CPU ends with the same weights, bit for bit, as an uninterrupted one. A finished run is left
    alone. On a CPU the process keeps freed memory for reuse (`keep_freed_memory`).

    Args:
        config: The run, as `mast.configure` makes one; or the images, with the options of
            `mast pretrain` and fields, such as `recipe="mast5_small"` and `epochs=20`.

    Returns:
        The run folder, which holds `encoder.safetensors` and `embedding.safetensors`.

    Raises:
        UserError: A configuration, images or a folder that cannot be used; a loss that is no longer
            finite.
        OutOfMemoryError: A step needs more memory than there is.
        ProcessEndedError: One of several processes was killed, or has an error of its own.
        Interrupted: A signal asked to stop. The step was finished and saved.
    """
    if isinstance(config, str | Path):
        config = configured(config, **changes)
    config.check_trainable()
    config = starting(config)
    run = RunFolder(config.folder())
    import torch

    from mast.core.launch import check_threads, choose_threads, local_processes, make_fabric
    from mast.runs.acceleration import fitting

    check_threads(config.threads)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    else:
        choose_threads()
    with doing("setting up devices"):
        fabric = make_fabric(
            config.device, config.devices, config.nodes, config.precision, _loggers(config, run),
            same_graph=config.accumulate == 1,
        )  # fmt: skip
    _part_size(config, local_processes(fabric) * getattr(fabric.strategy, "num_nodes", 1))
    with (
        together(fabric, lambda: _continues(run)),
        run.held() if fabric.is_global_zero else nullcontext(),
        fitting(config, fabric.device, fabric.world_size),
    ):
        _train(config, run, fabric)
    return run


def _continues(run: RunFolder) -> str:
    """What the same command does after an early end."""
    if state := saved(run.last):
        return f"the same command continues from step {state.get('step')}"
    return "nothing was saved yet, and the same command starts again"


def _trained_with(run: RunFolder) -> dict[str, Any] | None:
    """What the last checkpoint keeps of the configuration; None: there is no checkpoint."""
    if not (state := saved(run.last)):
        return None
    kept = state.get("kept")
    return kept.get("config", {}) if isinstance(kept, dict) else {}  # not verified yet


def starting(config: PretrainConfig) -> PretrainConfig:
    """As `with_architecture`, checked."""
    from mast.runs.start import with_architecture

    found = with_architecture(config)
    _check_encoder(config, found)
    return found


def _check_encoder(original: PretrainConfig, config: PretrainConfig) -> None:
    """Refuse a name with or beside weights, and rates of a frozen encoder, which do nothing."""
    from mast.models import architecture_of, named_weights
    from mast.recipes import RECIPES

    name, wanted = config.encoder.name, original.encoder
    if (weights := named_weights(name)) is not None:
        raise UserError(
            f"encoder.name {name} names the weights {weights!r}: give them as encoder.weights to "
            f"start from them, or {architecture_of(name)} to start from random ones"
        )
    recipe = RECIPES.get(original.recipe)  # whose encoder gives way to that of the weights
    if architecture_of(wanted.name) not in (name, recipe().encoder.name if recipe else name):
        raise UserError(
            f"encoder.name is {wanted.name!r}, and encoder.weights {wanted.weights} are those of "
            f"{name!r}: leave encoder.name out, or name other weights"
        )
    rates = ("encoder_rate", "layer_decay")
    set_to = [f"optimizer.{rate}" for rate in rates if getattr(config.optimizer, rate) != 1]
    if config.encoder.freeze and set_to:
        raise UserError(
            f"encoder.freeze leaves the encoder as it is, so that {' and '.join(set_to)} would do "
            "nothing: leave out either encoder.freeze or these"
        )


def _encoder_shares(encoder: Encoder, config: PretrainConfig) -> dict[str, float]:
    """The rate of each of the encoder's parameters, as a share of the rate of the other ones."""
    rate, decay = config.optimizer.encoder_rate, config.optimizer.layer_decay
    depths = dict.fromkeys((name for name, _ in encoder.named_parameters()), 0)
    if decay < 1:
        depths = encoder.depths()
    last = max(depths.values())
    return {name: rate * decay ** (last - at) for name, at in depths.items()}


def _part_size(config: PretrainConfig, processes: int) -> int:
    """Images that a process computes at once."""
    part_size, remainder = divmod(config.batch_size, config.accumulate * processes)
    if remainder or part_size < 2:
        raise UserError(
            f"batch_size {config.batch_size} must be a multiple of accumulate x processes "
            f"({config.accumulate} x {processes}), with at least 2 images each"
        )
    return part_size


def _check_labels(feed: Feed, config: PretrainConfig) -> None:
    """Refuse images without the one kind of labels that a method learns from."""
    import numpy as np

    from mast.data import UNLABELLED, Loader

    if len(feed.classes) != 1:
        kinds = ", ".join(feed.classes) or "none"
        raise UserError(
            f"{config.method} learns from one kind of labels, and {feed.name} has {kinds}: "
            "give images in a folder per class"
        )
    if isinstance(feed, Loader):  # of shards it is seen as they are read
        (label_N,) = feed.canvas_set.targets.values()
        if len(without_N := np.flatnonzero(label_N == UNLABELLED)):
            raise UserError(
                f"{len(without_N)} of {len(label_N)} images of {feed.name} have no class, the "
                f"first is {feed.canvas_set.identifiers[without_N[0]]}: give every image one, or "
                "take a method without labels"
            )
    (names,) = feed.classes.values()
    count, expected = len(names), getattr(config.objective, "classes", None)
    if count != expected:
        raise UserError(
            f"objective.classes is {expected}, and {feed.name} has {count} classes: give "
            f"objective.classes={count}"
        )


def _labels(batch: Batch, feed: Feed) -> torch.Tensor | None:
    """The classes of a batch, each image of which must have one."""
    if batch.label_B is not None and bool((batch.label_B < 0).any()):
        raise UserError(
            f"an image of {feed.name} has no class: give every image one, or take a method "
            "without labels"
        )
    return batch.label_B


def _train(config: PretrainConfig, run: RunFolder, fabric: Fabric) -> None:
    # ------------------------------------------------------------------------------ processes
    import torch

    from mast.augment import PRESETS, Pipeline, draw_chosen, draw_views, operators_for
    from mast.config import (
        OPERATIONAL,
        build_method,
        configuration_of,
        deciding,
        read,
        record,
        refuse_changes,
    )
    from mast.core.compute import Compute
    from mast.core.launch import local_processes, resolve, type_of
    from mast.core.loop import Training
    from mast.core.memory import keep_freed_memory
    from mast.core.optim import learning_rate, make_optimizer, warmup_share
    from mast.core.reading import Reading, read_reading
    from mast.data import open_feed
    from mast.evaluation.online import online_scores
    from mast.methods import METHODS, save_embedding
    from mast.models import save_encoder, synchronise_batchnorm
    from mast.runs.acceleration import FOR_IMAGES, compiles
    from mast.runs.start import start

    chief = fabric.is_global_zero
    processes = fabric.world_size
    part_size = _part_size(config, processes)
    compiled = compiles(config, fabric.device)

    # ------------------------------------------------------------------------ data and views
    feed = open_feed(
        config.data,
        config.size,
        config.batch_size // config.accumulate,
        config.seed,
        rank=fabric.global_rank,
        world_size=processes,
        local=local_processes(fabric),
        device=fabric.device,
    )
    parts_per_epoch = feed.steps_per_epoch - feed.steps_per_epoch % config.accumulate
    steps_per_epoch = parts_per_epoch // config.accumulate
    if steps_per_epoch == 0:
        raise UserError(
            f"{len(feed)} images make no batch of {config.batch_size}; lower batch_size"
        )
    pipeline = Pipeline(config.preset, config.size)
    if feed.reading != Reading(feed.reading.layout):
        fabric.print(f"{config.data.spec}: values of {feed.reading.ends} become 0 to 1")
    channels, usual = config.data.channels, PRESETS[config.views].operators
    left_out = [name for name in usual if name not in operators_for(channels)]
    if left_out and config.operators is None:
        instead = "band_jitter" in config.preset.operators
        fabric.print(
            f"operators left out, as they need red, green and blue: {', '.join(left_out)}"
            + "; band_jitter takes the place of color_jitter" * instead
        )
    labelled = METHODS[config.method].method.labelled
    if labelled:
        _check_labels(feed, config)

    # -------------------------------------------------------------------- folder and its log
    plain_method = build_method(config)  # a folder that is opened holds a run that can be built
    started_from, trained_with = None, _trained_with(run)
    if not run.encoder.is_file() and trained_with is None:
        started_from = start(plain_method, config)
        described = (started_from or {}).get("reading")
        ends = read_reading(described).ends if described is not None else feed.reading.ends
        if feed.reading.layout.deep and ends != feed.reading.ends:
            fabric.print(f"the weights are of images with {ends} as 0 to 1 (data.range)")
    plain_method.encoder.reading = None if feed.reading == Reading() else feed.reading
    if chief:
        run.open(record(config), OPERATIONAL, lambda file: record(read(file)))
    if run.encoder.is_file():
        configuration_of(run)
        fabric.print(visible(f"{run.path} is complete; nothing to do"))
        return
    refuse_changes(run, trained_with or {}, run.last, deciding(config))

    # ---------------------------------------------------------------- memory for every batch
    # Views are rounded to this type once, at the end, as Fabric would.
    dtype = type_of(config.precision, fabric.device)
    images = pipeline.buffer(part_size, fabric.device, dtype)
    if fabric.device.type == "cpu":
        keep_freed_memory()
    else:
        room = config.data.resident_gb
        if room is None:
            room = FOR_IMAGES * torch.cuda.mem_get_info(fabric.device)[0] / 1e9
        feed.onto(fabric.device, room)

    # ------------------------------------------------------------------ method and optimizer
    if processes > 1:
        synchronise_batchnorm(plain_method, fabric.device)
    if config.channels_last:
        plain_method.to(memory_format=torch.channels_last)
    if compiled:
        plain_method.compile_parts(config.cuda_graphs)
    shares = _encoder_shares(plain_method.encoder, config)
    groups = plain_method.parameter_groups(shares)
    if sharded := config.shard_optimizer and processes > 1:
        plain_method.to(fabric.device)  # before its parameters are divided
    optimizer = make_optimizer(
        groups, config.optimizer, config.batch_size, fabric.device, sharded=sharded
    )
    warmup = warmup_share(config.optimizer, config.epochs)

    # ------------------------------------------------------------------------------- resume
    training = Training(
        plain_method,
        optimizer,
        epochs=config.epochs,
        steps_per_epoch=steps_per_epoch,
        rate=lambda progress: learning_rate(progress, warmup, config.optimizer.final),
        accumulate=config.accumulate,
        clip=config.optimizer.clip,
        log_every=config.log_every,
        frozen=plain_method.frozen,
        checkpoint=run.last,
        checkpoint_minutes=config.checkpoint_minutes,
        advice="Start a new run (another out) at a lower optimizer.lr or in precision float32.",
        extra={
            "best": float("-inf"),
            "images": feed.fingerprint,
            "started_from": started_from,
            "order": feed.place,
            "config": deciding(config),
        },
    )
    training.resume(config.seed)
    if training.extra.get("images", feed.fingerprint) != feed.fingerprint:
        raise UserError(
            f"the images of {feed.name} changed since {run.path} was started; restore them, "
            "or start a new run with another out"
        )
    try:
        feed.place = training.extra.get("order")
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{run.last} is damaged: its position in {feed.name} is invalid. Restore it, or delete "
            "it to start again"
        ) from error
    if not isinstance(training.extra["best"], int | float):
        raise UserError(f"{run.last} is damaged: its best score is not a number. Restore it")
    if chief:
        run.rewind_metrics(training.step)
        run.write_provenance(
            device=str(fabric.device),
            processes=processes,
            precision=resolve(config.precision, fabric.device),
            seed=config.seed,
            representation=plain_method.encoder.dim,
            started_from=training.extra.get("started_from"),
            data={
                "spec": config.data.spec,
                "images": len(feed),
                "fingerprint": feed.fingerprint,
                "skipped": feed.skipped,
            },
        )

    # ----------------------------------------------------------------------------- the loss
    def loss(method: Any, batch: Batch, step: int, part: int) -> Losses:
        count, share = len(batch.canvases), step / training.steps
        views = draw_views(
            pipeline,
            batch.canvases.to(fabric.device),
            (config.seed, step, part),
            partial(draw_chosen, config.schedule, len(pipeline.names), share),
            start=count * fabric.global_rank,
            total=count * processes,
            out=images,
        )
        views.label_B = _labels(batch, feed) if labelled else None
        output: Losses = method(views, share)
        if feed.counts_broken:  # by all processes, of which the mean is logged
            found = torch.full((), float(feed.broken * processes), device=fabric.device)
            output = output | {"broken": found}
        return output

    # --------------------------------------------------------------------------------- loop
    if chief:
        say(
            f"training {METHODS[config.method].title}"
            f"{f', recipe {config.recipe}' if config.recipe else ''}: "
            f"{counted(len(feed), 'image')}, {counted(config.epochs, 'epoch')} "
            f"of {counted(steps_per_epoch, 'step')} on {processes} x {fabric.device}, into "
            f"{run.path}" + (f", from step {training.step}" if training.step else "")
        )
        if not training.step and not fabric.loggers:
            say(f"metrics go to {run.metrics}; to TensorBoard with the extra mast-ssl[tensorboard]")
    # A continued run does not repeat warnings.
    warned = {line["warning"].split(":")[0] for line in run.read_metrics() if "warning" in line}
    logged_step, logged_at = training.step, time.monotonic()
    shown = doing(
        "training", training.steps, "steps", training.step,
        images=config.batch_size, enabled=chief,
    )  # fmt: skip
    with shown as work, training.stop.listening():
        for result in training.run(fabric, feed.epoch, loss):
            plain_method.after_step(result.step / training.steps)
            training.extra["order"] = feed.place
            work.update(result.step)

            # ------------------------------------------------------------------------- log
            if result.due and result.metrics is not None and chief:
                now = time.monotonic()
                speed = (result.step - logged_step) * config.batch_size / (now - logged_at)
                logged_at, logged_step = now, result.step
                metrics = result.metrics | plain_method.statistics()
                metrics |= {"lr": result.share * config.optimizer.lr * config.batch_size / 256}
                metrics |= {"seconds": training.seconds}
                metrics = {"images_per_second": speed, **metrics}
                epochs = round(result.step / steps_per_epoch, 4)
                run.append_metrics({"step": result.step, "epoch": epochs, **metrics})
                fabric.log_dict(metrics, result.step)
                work.update(result.step, _summary(metrics))
                # The first twentieth of a run is still finding its scale.
                if result.step > training.steps // 20:
                    progress = {"progress": result.step / training.steps}
                    for text in plain_method.warnings(metrics | progress):
                        if text.split(":")[0] not in warned:
                            warned.add(text.split(":")[0])
                            run.append_metrics({"step": result.step, "warning": text})
                            say(f"warning: {text}", style="yellow")

            # ----------------------------------------------------------------------- score
            epoch = result.step // steps_per_epoch
            if result.last_of_epoch and _score_due(config, epoch):
                scores = online_scores(
                    plain_method.final_encoder,
                    feed.watched(),
                    config.size,
                    compute=Compute(fabric=fabric),
                )
                plain_method.train()
                if chief:
                    run.append_metrics({"step": result.step, "epoch": epoch, **scores})
                    fabric.log_dict(scores, result.step)
                    words = (
                        f"{name.removeprefix('online/').replace('_', ' ')} {value:.1f}"
                        for name, value in scores.items()
                    )
                    say(f"epoch {epoch}: {', '.join(words)}")
                    score = scores.get("online/knn", scores["online/effective_rank"])
                    if score > training.extra["best"]:
                        training.extra["best"] = score
                        save_encoder(plain_method.final_encoder, run.best)
                fabric.barrier()
                logged_at, logged_step = time.monotonic(), result.step

    # --------------------------------------------------------------------------------- end
    with doing("saving", enabled=chief):
        training.save()
        if chief:
            save_embedding(plain_method, run.embedding, deciding(config))
            save_encoder(
                plain_method.final_encoder, run.encoder
            )  # last: it says the run is complete
    if chief:
        say(f"done: {run.encoder}")
    fabric.barrier()


def _loggers(config: PretrainConfig, run: RunFolder) -> list[Any]:
    from mast.core.loggers import TensorBoardLogger, WandbLogger, is_installed

    loggers: list[Any] = [TensorBoardLogger(run.tensorboard)] if is_installed() else []
    if config.wandb is not None:
        loggers.append(WandbLogger(config.wandb, run.path))
    return loggers


def _score_due(config: PretrainConfig, epochs: int) -> bool:
    every = config.score_every or max(1, config.epochs // 10)
    return epochs % every == 0 or epochs == config.epochs


def _summary(metrics: dict[str, float]) -> str:
    """The loss and its terms, for the live display."""
    terms: Iterator[str] = (
        f"{name.removeprefix('term/')} {value:.2f}"
        for name, value in metrics.items()
        if name.startswith("term/") and value != 0.0
    )
    return f"loss {metrics['loss']:.2f}  {'  '.join(terms)}"
