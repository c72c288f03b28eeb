"""Pretraining: the configuration of a run and the one loop."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from mast.augment import PRESETS, Pipeline, ScheduleConfig, Views, draw_chosen
from mast.core.checkpoint import load_checkpoint, save_checkpoint
from mast.core.display import TrainingDisplay
from mast.core.errors import UserError, unknown
from mast.core.memory import keep_freed_memory
from mast.core.optim import (
    OptimizerConfig,
    learning_rate,
    make_optimizer,
    set_learning_rate,
    warmup_share,
)
from mast.core.run import RunFolder, plain
from mast.data import CanvasSet, DataConfig, Loader, open_canvas
from mast.evaluate import online_scores
from mast.methods import METHODS, MastConfig, Method, MethodConfig
from mast.models import Encoder, EncoderConfig, save_encoder, synchronise_batchnorm

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# Fields that may change when a run is continued: they do not change what is computed.
OPERATIONAL = (
    "out",
    "device",
    "devices",
    "nodes",
    "threads",
    "log_every",
    "checkpoint_minutes",
    "wandb",
    "data.cache",
    "data.cache_limit_gb",
    "data.resident_gb",
    "data.workers",
    "data.download",
    "data.root",
)


@dataclass
class PretrainConfig:
    """Everything that decides a run.

    Attributes:
        recipe: Name of the recipe this started from, for the record.
        out: Run folder; `runs/<recipe>-<data>-<seed>` if not given.
        data: The images.
        size: Side of a view in pixels.
        views: Preset of augmentations: mast5, mast15, mast19 or vicreg.
        schedule: How operators compose over the run.
        method: mast or vicreg.
        objective: The method's own configuration.
        encoder: The encoder to train.
        optimizer: Optimizer, rates and their schedule.
        epochs: Passes over the data.
        batch_size: Images of one optimizer step, over all processes.
        accumulate: Parts in which a batch is computed; the statistics of the variance and
            covariance terms are those of a part.
        seed: Seed of initialisation, order and augmentation.
        device: auto, cpu or cuda.
        devices: Processes on this node (torchrun overrides it).
        nodes: Nodes (torchrun overrides it).
        threads: CPU threads of a process; PyTorch's choice if not given.
        precision: auto (bf16-mixed on CUDA, 32-true elsewhere), 32-true or bf16-mixed.
        compile: Compile the encoder and the objective with torch.compile.
        channels_last: Keep images and feature maps in channels-last memory.
        score_every: Epochs between online scores; a tenth of the run if not given.
        log_every: Steps between lines of metrics.jsonl.
        checkpoint_minutes: Minutes between checkpoints.
        wandb: Project name for Weights & Biases, which needs the extra of that name.
    """

    recipe: str = "mast5_small"
    out: Path | None = None
    data: DataConfig = field(default_factory=DataConfig)
    size: int = 224
    views: str = "mast5"
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    method: str = "mast"
    objective: MethodConfig = field(default_factory=MastConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    epochs: int = 1000
    batch_size: int = 2048
    accumulate: int = 1
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int = 1
    nodes: int = 1
    threads: int | None = None
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    compile: bool = False
    channels_last: bool = True
    score_every: int | None = None
    log_every: int = 10
    checkpoint_minutes: float = 2.0
    wandb: str | None = None

    def check(self) -> None:
        """Refuse a configuration that cannot run.

        Raises:
            UserError: Naming the field, what it is and what it may be.
        """
        if self.method not in METHODS:
            raise unknown("method", self.method, METHODS)
        if self.views not in PRESETS:
            raise unknown("preset of views", self.views, PRESETS)
        expected = METHODS[self.method].config
        if not isinstance(self.objective, expected):
            raise UserError(f"method {self.method!r} needs an objective of {expected.__name__}")
        for name in ("size", "epochs", "batch_size", "accumulate", "devices", "nodes", "log_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        schedule = self.schedule
        if not 0.0 <= schedule.stage1 <= schedule.full <= 1.0:
            raise UserError(
                "expected 0 <= schedule.stage1 <= schedule.full <= 1, got "
                f"stage1 {schedule.stage1:g} and full {schedule.full:g}"
            )
        if not 0.0 <= schedule.leave_out <= 1.0:
            raise UserError(f"expected schedule.leave_out in [0, 1], got {schedule.leave_out:g}")

    def folder(self) -> Path:
        """Where the run goes."""
        if self.out is not None:
            return Path(self.out)
        data = Path(self.data.spec).name.replace(":", "-").replace("@", "-")
        return Path("runs") / f"{self.recipe}-{data}-{self.seed}"


def build_method(config: PretrainConfig) -> Method:
    """The untrained method of a configuration; the same weights for the same seed.

    Args:
        config: Encoder, method, views and seed are used.
    """
    config.check()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        encoder = Encoder(config.encoder, config.size)
        method = METHODS[config.method].method
        return method(config.objective, encoder, PRESETS[config.views].operators, config.seed)  # type: ignore[arg-type]


def pretrain(config: PretrainConfig) -> RunFolder:
    """Pretrain an encoder, or continue the run that the same configuration started.

    A run that was killed continues from its last checkpoint, also in the middle of an epoch,
    and on CPU ends with the weights, bit for bit, of a run that was not. A complete run is
    left alone. On a CPU the process keeps the memory that it frees (`keep_freed_memory`).

    Args:
        config: The run; `mast.recipes` has complete ones.

    Returns:
        The run folder, which holds `encoder.safetensors`.

    Raises:
        UserError: A configuration or images that cannot be used, a folder with another run,
            or a loss that is no longer finite.
    """
    # ------------------------------------------------------------------ processes and device
    config.check()
    run = RunFolder(config.folder())
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    fabric = _fabric(config, run)
    fabric.launch()
    chief = fabric.is_global_zero
    processes = fabric.world_size
    part_size, remainder = divmod(config.batch_size, config.accumulate * processes)
    if remainder or part_size < 2:
        raise UserError(
            f"batch_size {config.batch_size} must be a multiple of accumulate x processes "
            f"({config.accumulate} x {processes}), with at least 2 images each"
        )

    # ------------------------------------------------------------------------ data and views
    canvases = open_canvas(config.data, config.size)
    loader = Loader(
        canvases,
        config.batch_size // config.accumulate,
        seed=config.seed,
        rank=fabric.global_rank,
        world_size=processes,
    )
    parts_per_epoch = loader.steps_per_epoch - loader.steps_per_epoch % config.accumulate
    steps_per_epoch = parts_per_epoch // config.accumulate
    if steps_per_epoch == 0:
        raise UserError(
            f"{len(canvases)} images make no batch of {config.batch_size}; lower batch_size"
        )
    total_steps = steps_per_epoch * config.epochs
    pipeline = Pipeline(PRESETS[config.views], config.size)

    # -------------------------------------------------------------------- folder and its log
    if chief:
        run.open(plain(config), OPERATIONAL)
    if run.encoder.is_file():
        fabric.print(f"{run.path} is complete; nothing to do")
        return run
    if chief:
        _check_same_images(run, canvases)
        run.write_provenance(
            device=str(fabric.device),
            processes=processes,
            precision=_precision(config, fabric.device),
            seed=config.seed,
            data={
                "spec": config.data.spec,
                "images": len(canvases),
                "fingerprint": canvases.fingerprint,
                "skipped": canvases.skipped,
            },
        )

    # ---------------------------------------------------------------- memory for every batch
    images = None
    if fabric.device.type == "cpu":
        keep_freed_memory()
        images = pipeline.buffer(part_size, fabric.device)
    else:
        loader.resident = canvases.resident(fabric.device, config.data.resident_gb)

    # ------------------------------------------------------------------ method and optimizer
    plain_method = build_method(config)
    if processes > 1:
        synchronise_batchnorm(plain_method, fabric.device)
    if config.channels_last:
        plain_method.encoder.to(memory_format=torch.channels_last)
    if config.compile:
        plain_method.compile_parts()
    optimizer = make_optimizer(plain_method.parameter_groups(), config.optimizer, config.batch_size)
    warmup = warmup_share(config.optimizer, config.epochs)

    # ------------------------------------------------------------------------------- resume
    step, best, seconds = 0, float("-inf"), 0.0
    if run.last.is_file():
        state = load_checkpoint(run.last)
        plain_method.load_state_dict(state["method"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        step, best, seconds = state["step"], state["best"], state["seconds"]
    else:
        torch.manual_seed(config.seed)
    if chief:
        run.rewind_metrics(step)
    method, optimizer = fabric.setup(plain_method, optimizer)
    method.train()

    # --------------------------------------------------------------------------------- loop
    display = TrainingDisplay(total_steps, step, enabled=chief)
    display.say(
        f"{config.recipe}: {len(canvases):,} images, {config.epochs} epochs of {steps_per_epoch} "
        f"steps on {processes} x {fabric.device}, into {run.path}"
        + (f", from step {step}" if step else "")
    )
    warned: set[str] = set()
    saved_at = logged_at = time.monotonic()
    started_at = logged_at - seconds  # of all processes that worked on this run
    logged_step = step

    def save() -> None:
        save_checkpoint(
            run.last,
            {
                "method": plain_method.state_dict(),
                "optimizer": optimizer.state_dict(),
                "rng": torch.get_rng_state(),
                "step": step,
                "best": best,
                "seconds": time.monotonic() - started_at,
            },
        )

    with display.running():
        while step < total_steps:
            epoch, start = divmod(step, steps_per_epoch)
            batches = iter(loader.epoch(epoch, start * config.accumulate))
            for _ in range(start, steps_per_epoch):
                share = learning_rate((step + 1) / total_steps, warmup, config.optimizer.final)
                set_learning_rate(optimizer, share)
                optimizer.zero_grad(set_to_none=True)
                for part in range(config.accumulate):
                    batch = next(batches)
                    views = _views(config, pipeline, batch, step, part, total_steps, fabric, images)
                    last_part = part == config.accumulate - 1
                    with fabric.no_backward_sync(method, enabled=not last_part):
                        output = method(views)
                        fabric.backward(output["loss"] / config.accumulate)
                if config.optimizer.clip is not None:
                    fabric.clip_gradients(method, optimizer, max_norm=config.optimizer.clip)
                optimizer.step()
                plain_method.after_step()
                step += 1

                # ------------------------------------------------------------ log and stop
                last_of_epoch = step % steps_per_epoch == 0
                due = step % config.log_every == 0 or last_of_epoch
                if due:
                    output = fabric.all_reduce({k: v.detach() for k, v in output.items()})
                if due or fabric.device.type == "cpu":
                    metrics = {name: value.item() for name, value in output.items()}
                    _stop_if_not_finite(metrics, step, run)
                if due and chief:
                    now = time.monotonic()
                    speed = (step - logged_step) * config.batch_size / (now - logged_at)
                    logged_at, logged_step = now, step
                    metrics |= plain_method.statistics()
                    metrics |= {"lr": share * config.optimizer.lr * config.batch_size / 256}
                    metrics |= {"seconds": now - started_at}
                    _log(run, fabric, step, step / steps_per_epoch, metrics, speed)
                    display.update(step, _summary(metrics), speed)
                    # The first twentieth of a run is still finding its scale.
                    if step > total_steps // 20:
                        for text in plain_method.warnings(metrics):
                            if text.split(":")[0] not in warned:
                                warned.add(text.split(":")[0])
                                run.append_metrics({"step": step, "warning": text})
                                display.say(f"warning: {text}", style="yellow")

                # ------------------------------------------------------ score and checkpoint
                if last_of_epoch and _score_due(config, step // steps_per_epoch):
                    if chief:
                        scores = online_scores(plain_method.encoder, canvases, config.size)
                        method.train()
                        run.append_metrics(
                            {"step": step, "epoch": step // steps_per_epoch, **scores}
                        )
                        fabric.log_dict(scores, step)
                        text = "  ".join(f"{name} {value:.1f}" for name, value in scores.items())
                        display.say(f"epoch {step // steps_per_epoch}: {text}")
                        score = scores.get("online/knn", scores["online/effective_rank"])
                        if score > best:
                            best = score
                            save_encoder(plain_method.encoder, run.best)
                    fabric.barrier()
                    logged_at, logged_step = time.monotonic(), step
                if chief and time.monotonic() - saved_at >= 60 * config.checkpoint_minutes:
                    save()
                    saved_at = time.monotonic()

    # --------------------------------------------------------------------------------- end
    if chief:
        save()
        save_encoder(plain_method.encoder, run.encoder)
        display.say(f"done: {run.encoder}")
    fabric.barrier()
    return run


def draw_seed(seed: int, step: int, part: int) -> int:
    """The seed of one batch's augmentation: a pure function of where the run stands."""
    return int(np.random.SeedSequence([seed, step, part]).generate_state(1, np.uint64)[0] >> 1)


def _views(
    config: PretrainConfig,
    pipeline: Pipeline,
    batch: Any,
    step: int,
    part: int,
    total_steps: int,
    fabric: "Fabric",
    images: Tensor | None,
) -> Views:
    """Two views of this process's images, drawn into `images` if there is such memory.

    Decisions are drawn for the global batch and sliced.
    """
    local = len(batch.canvas_BHWC)
    everyone, start = local * fabric.world_size, local * fabric.global_rank
    generator = torch.Generator().manual_seed(draw_seed(config.seed, step, part))
    chosen_BK = draw_chosen(
        config.schedule, everyone, len(pipeline.names), step / total_steps, generator
    )
    records = pipeline.draw(everyone, generator, chosen_BK)
    first, second = (record[start : start + local] for record in records)
    canvas_BHWC, aspect_B = fabric.to_device((batch.canvas_BHWC, batch.aspect_B))
    views = pipeline.views(canvas_BHWC, aspect_B, (first, second), out=images)
    if chosen_BK is None:
        return views
    return replace(views, chosen_BK=chosen_BK[start : start + local])


def _fabric(config: PretrainConfig, run: RunFolder) -> "Fabric":
    """Devices, precision and loggers; torchrun's environment wins over the configuration."""
    from lightning_fabric import Fabric
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but PyTorch sees no GPU; use --device cpu or auto")
    cuda = config.device != "cpu" and torch.cuda.is_available()
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", config.devices))
    nodes = int(os.environ.get("WORLD_SIZE", devices * config.nodes)) // devices
    loggers: list[Any] = [TensorBoardLogger(run.path, name="tensorboard", version="")]
    if config.wandb is not None:
        from mast.core.weights_and_biases import WandbLogger

        loggers.append(WandbLogger(config.wandb, run.path.name))
    return Fabric(
        accelerator="cuda" if cuda else "cpu",
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if devices * nodes > 1 else "auto",
        precision=_precision(config, torch.device("cuda" if cuda else "cpu")),
        loggers=loggers,
    )


def _precision(config: PretrainConfig, device: torch.device) -> Literal["32-true", "bf16-mixed"]:
    if config.precision != "auto":
        return config.precision
    return "bf16-mixed" if device.type == "cuda" else "32-true"


def _check_same_images(run: RunFolder, canvases: CanvasSet) -> None:
    """Refuse to continue a run on images that changed since."""
    if not (run.provenance.is_file() and run.last.is_file()):
        return
    before = json.loads(run.provenance.read_text())["data"]["fingerprint"]
    if before != canvases.fingerprint:
        raise UserError(
            f"the images of {canvases.name} changed since {run.path} was started; restore them, "
            "or start a new run with another --out"
        )


def _score_due(config: PretrainConfig, epochs_done: int) -> bool:
    every = config.score_every or max(1, config.epochs // 10)
    return epochs_done % every == 0 or epochs_done == config.epochs


def _stop_if_not_finite(metrics: dict[str, float], step: int, run: RunFolder) -> None:
    bad = [name for name, value in metrics.items() if not np.isfinite(value)]
    if bad:
        kept = f"The last good checkpoint is {run.last}." if run.last.is_file() else ""
        raise UserError(
            f"stopped at step {step}: {', '.join(bad)} is not finite. Lower optimizer.lr or use "
            f"--precision 32-true. {kept}"
        )


def _log(
    run: RunFolder,
    fabric: "Fabric",
    step: int,
    epoch: float,
    metrics: dict[str, float],
    speed: float,
) -> None:
    record = {"images_per_second": speed, **metrics}
    run.append_metrics({"step": step, "epoch": round(epoch, 4), **record})
    fabric.log_dict(record, step)


def _summary(metrics: dict[str, float]) -> str:
    """The loss and its terms, for the live display."""
    terms: Iterator[str] = (
        f"{name.removeprefix('term/')} {value:.2f}"
        for name, value in metrics.items()
        if name.startswith("term/") and value != 0.0
    )
    return f"loss {metrics['loss']:.2f}  {'  '.join(terms)}"
