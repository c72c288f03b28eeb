"""The configuration of a run: read, changed, checked, and turned into a method."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from mast.augment import OPERATORS, PRESETS, SMALLEST, Preset, ScheduleConfig
from mast.core import fields
from mast.core.arguments import check_fields
from mast.core.checkpoint import saved
from mast.core.errors import UserError, unknown
from mast.core.files import read_text, short_name
from mast.core.kinds import Device, Precision
from mast.core.memory import bounded_weights
from mast.core.optim import OptimizerConfig
from mast.core.run import RunFolder, flatten, plain
from mast.core.seeds import forked
from mast.core.tensors import read_header, read_metadata
from mast.data import DataConfig
from mast.methods import METHODS, Method, MethodConfig, method_of
from mast.models import Encoder, EncoderConfig
from mast.models.encoders import IMAGENET, RETRAIN, check_size, usual_normalization

# Limits that may be infinite, meaning no limit.
ENDLESS = ("optimizer.clip", "checkpoint_minutes", "data.cache_limit_gb", "data.resident_gb")
LIMITS = {
    **dict.fromkeys(("epochs", "batch_size", "accumulate", "log_every", "threads", "score_every"),
                    "[1, inf)"),
    "size": f"[{SMALLEST}, inf)", "checkpoint_minutes": "[0, inf]", "seed": "[0, inf)",
    "schedule.leave_out": "[0, 1]", "schedule.stage1": "[0, 1]",
}  # fmt: skip
_OPTIONS = "encoder.options"  # its names are the user's, not fields of a version
# Fields that may change when a run resumes, as they do not affect results.
OPERATIONAL = (
    "out", "device", "threads", "compile", "cuda_graphs", "log_every",
    "checkpoint_minutes", "wandb", "data.cache", "data.cache_limit_gb",
    "data.resident_gb", "data.workers", "data.download", "data.root",
    "data.max_broken",
)  # fmt: skip


@dataclass(kw_only=True)
class PretrainConfig:
    """The configuration of a run.

    Attributes:
        recipe: Name of the recipe this started from, for the record.
        out: Run folder; `runs/<recipe>-<data>-<seed>` by default.
        data: The images.
        size: Side of a view in pixels.
        views: Augmentation preset; `mast show operators` lists the operators in each.
        operators: The preset's operators to use; all by default.
        schedule: How operators compose over the run.
        objective: The method's own configuration; its type decides which method it is.
        encoder: The encoder to train.
        optimizer: Optimizer, rates and their schedule.
        epochs: Passes over the data.
        batch_size: Images per optimizer step, over all processes.
        accumulate: Gradient-accumulation steps: parts of a batch, computed one after the other.
            Batch statistics, such as variance and covariance terms, are computed per part. Must be
            1 for methods with in-batch negatives, a queue or assignments.
        seed: Seed for initialization, data order and augmentation.
        device: auto, cpu or cuda.
        threads: CPU threads per process; PyTorch's choice by default.
        precision: auto (bfloat16 on CUDA, float32 elsewhere), float32, or bfloat16 (mixed: weights
            stay in float32).
        compile: Compile encoder, projector and objective with torch.compile; by default if
            Triton can build kernels for the GPU.
        cuda_graphs: Compile with torch.compile(mode="reduce-overhead"), which replays CUDA graphs:
            for steps so short that the GPU waits for the CPU. Needs one GPU and accumulate 1.
        score_every: Epochs between online scores; a tenth of the run by default.
        log_every: Steps between lines of metrics.jsonl.
        checkpoint_minutes: Minutes between checkpoints.
        wandb: Project name for Weights & Biases, which needs the extra of that name.
    """

    recipe: str = ""
    out: Path | None = None
    data: DataConfig = field(default_factory=DataConfig)
    size: int = 224
    views: str = "mast5"
    operators: tuple[str, ...] | None = None
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    objective: MethodConfig
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    epochs: int = 1000
    batch_size: int = 2048
    accumulate: int = 1
    seed: int = 0
    device: Device = "auto"
    threads: int | None = None
    precision: Precision = "auto"
    compile: bool | None = None
    cuda_graphs: bool = False
    score_every: int | None = None
    log_every: int = 10
    checkpoint_minutes: float = 2.0
    wandb: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.data, DataConfig) and isinstance(self.encoder, EncoderConfig)):
            return  # which `check` refuses
        if self.encoder.normalization == IMAGENET and self.data.channels != self.encoder.channels:
            moments = usual_normalization(self.data.channels)
            self.encoder = replace(self.encoder, **moments._asdict())

    def check(self) -> None:
        """Refuse invalid values."""
        check_fields(self)
        if self.views not in PRESETS:
            raise unknown("preset of views", self.views, PRESETS)
        _ = self.preset, self.method
        fields.check_numbers(fields.leaves(self), ENDLESS)
        for part in (self.objective, self.encoder, self.optimizer):
            part.check()
        if self.encoder.channels != self.data.channels:
            raise UserError(
                f"encoder.mean and encoder.std: expected {self.data.channels} numbers "
                f"(data.channels), got {self.encoder.channels}"
            )
        fields.check_within(fields.leaves(self), LIMITS)
        check_size(self.size)
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Refuse combinations of values."""
        whole = self.objective.needs_whole_batch
        if whole is not None and self.accumulate > 1:
            raise UserError(
                f"accumulate: expected 1 for {METHODS[self.method].title}, as {whole}; got "
                f"{self.accumulate}"
            )

    def check_trainable(self) -> None:
        """Refuse views that the method cannot use."""
        (least, most), count = self.objective.takes, len(self.preset.views)
        if not least <= count <= most:
            own = f", such as {self.method}" if self.method in PRESETS else ""
            raise UserError(
                f"views: expected {least}{' or more' * (most > least)} views of an image for "
                f"{METHODS[self.method].title}, got {count}; choose another preset{own}"
            )
        self.objective.check_views(self.preset)

    @property
    def method(self) -> str:
        """Name of the method in `METHODS`, found by the objective's type."""
        return method_of(self.objective)

    @property
    def preset(self) -> Preset:
        """The preset of views, restricted to `operators`."""
        channels = self.data.channels
        preset = PRESETS[self.views].of_channels(channels)
        if self.operators is None:
            return preset
        for name in self.operators:
            if channels != 3 and name in OPERATORS and OPERATORS[name].of_colors:
                raise UserError(
                    f"operators: {name} needs red, green and blue, got {channels} channels; leave "
                    "it out, or use band_jitter"
                )
        return preset.only(self.operators)

    def folder(self) -> Path:
        """The run folder."""
        if self.out is not None:
            return Path(self.out)
        data = Path(self.data.spec).name.replace(":", "-").replace("@", "-")
        return Path("runs") / short_name(f"{self.recipe or self.method}-{data}-{self.seed}")


def build_method(config: PretrainConfig) -> Method:
    """The untrained method of a configuration; equal seeds give equal weights.

    Args:
        config: Encoder, method, views and seed are used.
    """
    config.check_trainable()
    with forked(), bounded_weights():
        torch.manual_seed(config.seed)
        encoder = Encoder(config.encoder, config.size)
        kind = METHODS[config.method].method
        for side in {view.size or config.size for view in config.preset.views} - {config.size}:
            encoder.check_side(side)
        method = kind(config.objective, encoder, config.preset.operators, config.seed)
    if config.encoder.freeze:
        method.freeze_encoder()
    elif config.encoder.freeze_statistics:
        method.freeze_statistics()
    return method


# ------------------------------------------------------------------------------ as plain values


def record(config: PretrainConfig) -> dict[str, Any]:
    """A complete configuration as plain values for YAML."""
    return {"method": config.method, **plain(config)}


def deciding(config: PretrainConfig) -> dict[str, Any]:
    """The fields that affect what a run computes, by dotted name."""
    return {
        name: value for name, value in flatten(record(config)).items() if name not in OPERATIONAL
    }


def read(path: str | Path) -> PretrainConfig:
    """The configuration of a run, from its config.yaml.

    Fields that an older version did not write take their plain defaults, not those of a recipe.

    Args:
        path: The file.
    """
    values = load_yaml(path)
    try:
        if (method := str(values.get("method"))) not in METHODS:
            raise unknown("method", method, METHODS)
        return change(PretrainConfig(objective=METHODS[method].config()), values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def configuration_of(folder: RunFolder) -> PretrainConfig:
    """The configuration of a run, checked against the one it was trained with.

    The path of its images may differ.
    """
    config = read(folder.config)
    refuse_changes(folder, config, {"data.spec"})
    return config


def refuse_changes(
    folder: RunFolder, config: PretrainConfig, but: Collection[str] = frozenset()
) -> None:
    """Refuse to resume a run if a field changed that affects what it computes.

    Fields that its files lack, as they are of another version, are not compared, except the
    options of an encoder.

    Args:
        folder: The run.
        config: Its current configuration.
        but: Fields to ignore.
    """
    file = folder.embedding if folder.encoder.is_file() else folder.last
    try:
        if file == folder.last:  # not verified yet
            before = dict(saved(file).get("kept", {}).get("config", {}))
        else:
            before = dict(read_metadata(read_header(file) or {}).get("config", {}))
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{file} has a damaged header: {RETRAIN}") from error
    now = deciding(config)
    names = before.keys() & now.keys()
    if before:
        names |= {name for name in before.keys() | now.keys() if name.startswith(_OPTIONS)}
    for name in sorted(names - set(but)):
        if before.get(name) != now.get(name):
            raise UserError(
                f"{name}: {folder.path} has {now.get(name)!r}, but {file.name} was trained with "
                f"{before.get(name)!r}; restore it, or start a new run with another out"
            )


def load_yaml(path: str | Path) -> dict[str, Any]:
    """The fields of a configuration file."""
    text = read_text(Path(path))
    try:
        values = yaml.safe_load(text)
        aliased = any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if aliased:
        raise UserError(f"{path} has YAML aliases, which may expand endlessly; write their values")
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected fields such as `epochs: 20`, got none")
    return values


def change(config: PretrainConfig, values: Mapping[str, Any]) -> PretrainConfig:
    """`replaced`, then checked."""
    changed = replaced(config, values)
    changed.check()
    return changed


def replaced(config: PretrainConfig, values: Mapping[str, Any]) -> PretrainConfig:
    """A configuration with other values, each of its type.

    Args:
        config: The configuration to change.
        values: By field name; nested ones as dicts or by dotted names. Another `method` starts from
            that method's default objective.
    """
    values = dict(values)
    if values.get("out") == "":
        raise UserError("out: expected a folder, got nothing")
    method = values.pop("method", config.method)
    if not isinstance(method, str) or method not in METHODS:
        raise unknown("method", method, METHODS)
    if method != config.method:
        config = replace(config, objective=METHODS[method].config())
    return fields.change(config, values, "field")
