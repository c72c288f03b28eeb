"""Pretraining, from images to the saved encoder: start, losses and log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from mast.augment import PRESETS, Pipeline, draw_chosen, draw_views, operators_for
from mast.augment.pipeline import is_fused
from mast.config import PretrainConfig, build_method, deciding, record, refuse_changes
from mast.core.checkpoint import saved, write_json
from mast.core.compute import Compute
from mast.core.display import doing, say
from mast.core.errors import OutOfMemoryError, UserError, counted, is_out_of_memory, visible
from mast.core.launch import resolve, started, type_of
from mast.core.loop import Losses, StepResult, Training
from mast.core.memory import keep_freed_memory
from mast.core.optim import learning_rate, make_optimizer, warmup_share
from mast.core.reading import Reading, read_reading
from mast.core.run import RunFolder, provenance
from mast.data.loader import Batch, Loader, open_loader
from mast.evaluation.online import online_scores
from mast.methods import METHODS, Method, save_embedding
from mast.models import save_encoder
from mast.models.sync_batchnorm import synchronise_batchnorm
from mast.runs.start import start

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def train(config: PretrainConfig, run: RunFolder, fabric: "Fabric") -> None:
    """Train to the end, resuming if an earlier process stopped.

    Args:
        config: The run, with the architecture of its starting weights.
        run: Its folder, locked by this process or the first one.
        fabric: A launched fabric.
    """
    feed, chief = _open_images(config, fabric), fabric.is_global_zero
    method = build_method(config)  # before the folder is opened, as it may fail
    started_from = _open_folder(config, run, fabric, feed, method)
    method.add_lora()
    if run.encoder.is_file():
        fabric.print(visible(f"{run.path} is complete; nothing to do"))
        return
    training = _training(config, run, fabric, feed, method)
    _resume(training, config, run, feed, started_from)
    loss = _loss(config, fabric, feed, training.steps)
    if chief:
        _write_provenance(config, run, fabric, feed, training)
        say(
            f"training {METHODS[config.method].title}"
            f"{f', recipe {config.recipe}' if config.recipe else ''}: "
            f"{counted(len(feed), 'image')}, {counted(config.epochs, 'epoch')} "
            f"of {counted(training.steps_per_epoch, 'step')} on {fabric.world_size} x "
            f"{fabric.device}, into {run.path}"
            + (f", from step {training.step}" if training.step else "")
        )
        if not training.step and not fabric.loggers:
            say(f"metrics go to {run.metrics}; to TensorBoard with the extra mast-ssl[tensorboard]")
    log = _Log(config, run, fabric, training)  # drops lines of later steps
    shown = doing(
        "training", training.steps, "steps", training.step,
        images=config.batch_size, enabled=chief,
    )  # fmt: skip
    score_every = config.score_every or max(1, config.epochs // 10)
    with shown as work, training.stop.listening():
        for result in training.run(fabric, feed.epoch, loss):
            method.after_step(result.step / training.steps)
            work.update(result.step)
            if result.due and result.metrics is not None and chief:
                work.update(result.step, log.step(result))
            if result.last_of_epoch and (
                log.epoch % score_every == 0 or log.epoch == config.epochs
            ):
                log.score(feed)
    with doing("saving", enabled=chief):
        training.save()
        if chief:
            save_embedding(method, run.embedding, deciding(config))
            save_encoder(method.final_encoder, run.encoder)  # last, as it marks the run as complete
    if chief:
        say(f"done: {run.encoder}")
    fabric.barrier()


# ------------------------------------------------------------------------------------ images


def part_size(config: PretrainConfig, processes: int) -> int:
    """Images per forward pass and process."""
    size, remainder = divmod(config.batch_size, config.accumulate * processes)
    if remainder or size < 2:
        raise UserError(
            f"batch_size: expected a multiple of accumulate x processes "
            f"({config.accumulate} x {processes}), at least 2 each, got {config.batch_size}"
        )
    return size


def _open_images(config: PretrainConfig, fabric: "Fabric") -> Loader:
    """The run's images; prints how their values are read."""
    feed = open_loader(
        config.data,
        config.size,
        config.batch_size // config.accumulate,
        config.seed,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
        local=started()[0],
        device=fabric.device,
    )
    if feed.steps_per_epoch < config.accumulate:
        raise UserError(
            f"batch_size: expected at most {len(feed)} (all images), got {config.batch_size}"
        )
    if feed.reading != Reading(feed.reading.layout):
        fabric.print(f"{config.data.spec}: values of {feed.reading.ends} become 0 to 1")
    known = operators_for(config.data.channels)
    left_out = [name for name in PRESETS[config.views].operators if name not in known]
    if left_out and config.operators is None:
        instead = "band_jitter" in config.preset.operators
        fabric.print(
            f"operators left out, as they need red, green and blue: {', '.join(left_out)}"
            + "; band_jitter takes the place of color_jitter" * instead
        )
    if METHODS[config.method].method.labelled:
        _check_labels(feed, config)
    return feed


def _check_labels(feed: Loader, config: PretrainConfig) -> None:
    """Refuse images without exactly one kind of labels, if the method needs labels."""
    if len(feed.classes) != 1:
        kinds = ", ".join(feed.classes) or "none"
        raise UserError(
            f"data: expected one kind of labels for {config.method}, got {kinds} in {feed.name}; "
            "use a subfolder per class"
        )
    (names,) = feed.classes.values()
    count, expected = len(names), getattr(config.objective, "classes", None)
    if count != expected:
        raise UserError(
            f"objective.classes: expected {count}, the number of classes in {feed.name}, "
            f"got {expected}"
        )


# ------------------------------------------------------------------------------------ resume


def _open_folder(
    config: PretrainConfig, run: RunFolder, fabric: "Fabric", feed: Loader, method: Method
) -> dict[str, Any] | None:
    """Open the run folder, and load starting weights for a new run; a description of these."""
    started_from = None
    if not run.encoder.is_file() and not saved(run.last):
        started_from = start(method, config)
        described = (started_from or {}).get("reading")
        ends = read_reading(described).ends if described is not None else feed.reading.ends
        if feed.reading.layout.deep and ends != feed.reading.ends:
            fabric.print(f"the weights were trained with values {ends} as 0 to 1 (data.range)")
    method.encoder.reading = None if feed.reading == Reading() else feed.reading
    refuse_changes(run, config)
    if fabric.is_global_zero and not run.encoder.is_file():
        run.open(record(config))
    return started_from


def _resume(
    training: Training,
    config: PretrainConfig,
    run: RunFolder,
    feed: Loader,
    started_from: dict[str, Any] | None,
) -> None:
    """Resume from the last checkpoint, if any; refuse changed images."""
    training.extra |= {
        "best": float("-inf"),
        "images": feed.fingerprint,
        "started_from": started_from,
        "config": deciding(config),
    }
    training.resume(config.seed)
    if training.extra["images"] != feed.fingerprint:
        raise UserError(
            f"data: the images of {feed.name} changed since {run.path} started; restore them, "
            "or start a new run with another out"
        )


def _write_provenance(
    config: PretrainConfig, run: RunFolder, fabric: "Fabric", feed: Loader, training: Training
) -> None:
    run.rewind_metrics(training.step)
    facts = {
        "device": str(fabric.device),
        "processes": fabric.world_size,
        "precision": resolve(config.precision, fabric.device),
        "seed": config.seed,
        "representation": training.module.encoder.dim,
        "started_from": training.extra["started_from"],
        "data": {
            "spec": config.data.spec,
            "images": len(feed),
            "fingerprint": feed.fingerprint,
            "skipped": feed.skipped,
        },
    }
    write_json(run.provenance, provenance() | facts)


# ------------------------------------------------------------------------------------ device

FOR_IMAGES = 0.25  # share of a GPU's free memory for the images of a set


def compiles(config: PretrainConfig, device: torch.device, processes: int) -> bool:
    """Whether to compile: by default on a GPU where Triton works."""
    if not config.cuda_graphs:
        return is_fused(device) if config.compile is None else config.compile
    if device.type != "cuda" or processes > 1 or config.accumulate > 1:
        raise UserError(
            "cuda_graphs: expected a GPU, one process and accumulate 1, got "
            f"{device.type}, {processes} and {config.accumulate}"
        )
    return True


@contextmanager
def fitting(config: PretrainConfig, device: torch.device) -> Iterator[None]:
    """If memory runs out in the block, raise an `OutOfMemoryError` that suggests changes."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        helps = ["a smaller batch_size", "a smaller size", "a smaller encoder.name"]
        if config.objective.needs_whole_batch is None:
            helps.insert(0, f"accumulate {2 * config.accumulate}")
        if device.type == "cuda" and config.data.resident_gb != 0:
            helps += ["data.resident_gb 0"]
        why = str(error).partition("\n")[0].partition(". ")[0][:200]
        raise OutOfMemoryError(f"out of memory ({why}). Try {', '.join(helps)}") from error


# ---------------------------------------------------------------------- optimizer and losses


def _training(
    config: PretrainConfig, run: RunFolder, fabric: "Fabric", feed: Loader, method: Method
) -> Training:
    """The method with its optimizer and rates."""
    if fabric.world_size > 1:
        synchronise_batchnorm(method, fabric.device)
    method.to(memory_format=torch.channels_last)
    if compiles(config, fabric.device, fabric.world_size):
        method.compile_parts(config.cuda_graphs)
    groups = parameter_groups(method, config)
    optimizer = make_optimizer(groups, config.optimizer, config.batch_size, fabric.device)
    warmup = warmup_share(config.optimizer, config.epochs)
    return Training(
        method,
        optimizer,
        epochs=config.epochs,
        steps_per_epoch=feed.steps_per_epoch // config.accumulate,
        rate=lambda progress: learning_rate(progress, warmup, config.optimizer.final),
        accumulate=config.accumulate,
        clip=config.optimizer.clip,
        log_every=config.log_every,
        frozen=method.frozen,
        checkpoint=run.last,
        checkpoint_minutes=config.checkpoint_minutes,
        advice="Start a new run (another out) with a lower optimizer.lr or precision float32.",
    )


def parameter_groups(method: Method, config: PretrainConfig) -> list[dict[str, Any]]:
    """Parameter groups of a method; the encoder's rate is a share of the others'."""
    names = (name for name, _ in method.encoder.named_parameters())
    return method.parameter_groups(dict.fromkeys(names, config.optimizer.encoder_rate))


def _loss(
    config: PretrainConfig, fabric: "Fabric", feed: Loader, steps: int
) -> Callable[[Any, Batch, int, int], Losses]:
    """Computes the losses of a batch; views are drawn for the batch of all processes."""
    device, processes = fabric.device, fabric.world_size
    pipeline = Pipeline(config.preset, config.size)
    # Views are rounded to this type once, at the end, as Fabric would.
    dtype = type_of(config.precision, device)
    images = pipeline.buffer(part_size(config, processes), device, dtype)
    if device.type == "cpu":
        keep_freed_memory()
    else:
        room = config.data.resident_gb
        if room is None:
            room = FOR_IMAGES * torch.cuda.mem_get_info(device)[0] / 1e9
        feed.onto(device, room)
    labelled = METHODS[config.method].method.labelled

    def loss(method: Any, batch: Batch, step: int, part: int) -> Losses:
        count, share = len(batch.canvases), step / steps
        views = draw_views(
            pipeline,
            batch.canvases.to(device),
            (config.seed, step, part),
            partial(draw_chosen, config.schedule, len(pipeline.names), share),
            start=count * fabric.global_rank,
            total=count * processes,
            out=images,
        )
        if labelled and batch.label_B is not None and bool((batch.label_B < 0).any()):
            raise UserError(
                f"data: expected a class for every image, got an image of {feed.name} without one; "
                "choose a method without labels"
            )
        views.label_B = batch.label_B if labelled else None
        output: Losses = method(views, share)
        if feed.broken is not None:  # a total, while the mean over processes is logged
            broken = torch.full((), float(feed.broken * processes), device=device)
            output = output | {"broken": broken}
        return output

    return loss


# --------------------------------------------------------------------------------------- log


class _Log:
    """Logs and prints progress during training."""

    def __init__(
        self, config: PretrainConfig, run: RunFolder, fabric: "Fabric", training: Training
    ) -> None:
        self.config, self.run, self.fabric, self.training = config, run, fabric, training
        self.method: Any = training.module
        # A continued run does not repeat warnings.
        lines = run.read_metrics() if fabric.is_global_zero else []
        self.warned = {line["warning"].split(":")[0] for line in lines if "warning" in line}
        self._since = training.step, time.monotonic()

    @property
    def epoch(self) -> int:
        """Completed epochs."""
        return self.training.step // self.training.steps_per_epoch

    def step(self, result: StepResult) -> str:
        """Log the metrics of a step if due; returns the losses as text."""
        config, steps, (step, then) = self.config, self.training.steps, self._since
        now = time.monotonic()
        self._since = result.step, now
        metrics = {
            "images_per_second": (result.step - step) * config.batch_size / (now - then),
            **(result.metrics or {}),
            **self.method.statistics(),
            "lr": result.share * config.optimizer.lr * config.batch_size / 256,
            "seconds": self.training.seconds,
        }
        epochs = round(result.step / self.training.steps_per_epoch, 4)
        self.run.append_metrics({"step": result.step, "epoch": epochs, **metrics})
        self.fabric.log_dict(metrics, result.step)
        # Losses of the first twentieth of a run are not representative.
        if result.step > steps // 20:
            for text in self.method.warnings(metrics | {"progress": result.step / steps}):
                if (kind := text.split(":")[0]) not in self.warned:
                    self.warned.add(kind)
                    self.run.append_metrics({"step": result.step, "warning": text})
                    say(f"warning: {text}", style="yellow")
        terms = (
            f"{name.removeprefix('term/')} {value:.2f}"
            for name, value in metrics.items()
            if name.startswith("term/") and value != 0.0
        )
        return f"loss {metrics['loss']:.2f}  {'  '.join(terms)}"

    def score(self, feed: Loader) -> None:
        """Log the encoder's online scores, and save the best encoder."""
        step, encoder = self.training.step, self.method.final_encoder
        compute = Compute(fabric=self.fabric)
        scores = online_scores(encoder, feed.watched(), self.config.size, compute=compute)
        self.method.train()
        if self.fabric.is_global_zero:
            self.run.append_metrics({"step": step, "epoch": self.epoch, **scores})
            self.fabric.log_dict(scores, step)
            words = (
                f"{name.removeprefix('online/').replace('_', ' ')} {value:.1f}"
                for name, value in scores.items()
            )
            say(f"epoch {self.epoch}: {', '.join(words)}")
            score = scores.get("online/knn", scores["online/effective_rank"])
            if score > self.training.extra["best"]:
                self.training.extra["best"] = score
                save_encoder(encoder, self.run.best)
        self.fabric.barrier()
        self._since = step, time.monotonic()
