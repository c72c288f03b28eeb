"""The configuration of a run: read, changed, checked, and turned into a method."""

import difflib
import re
from argparse import ArgumentError
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser

from mast.augment import PRESETS, Preset, ScheduleConfig
from mast.core.errors import UserError, unknown
from mast.core.launch import Device, Precision
from mast.core.optim import OptimizerConfig
from mast.data import DataConfig
from mast.methods import METHODS, MastConfig, Method, MethodConfig
from mast.models import Encoder, EncoderConfig

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
        operators: Names of the preset's operators that act; all of them if not given.
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
    operators: tuple[str, ...] | None = None
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    method: str = "mast"
    objective: MethodConfig = field(default_factory=MastConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    epochs: int = 1000
    batch_size: int = 2048
    accumulate: int = 1
    seed: int = 0
    device: Device = "auto"
    devices: int = 1
    nodes: int = 1
    threads: int | None = None
    precision: Precision = "auto"
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
        _ = self.preset
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

    @property
    def preset(self) -> Preset:
        """The views: the preset with the operators that act."""
        preset = PRESETS[self.views]
        return preset if self.operators is None else preset.only(self.operators)

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
        return method(config.objective, encoder, config.preset.operators, config.seed)


def read(path: Path, base: PretrainConfig | None = None) -> PretrainConfig:
    """Read a configuration from YAML, such as a run's config.yaml.

    Args:
        path: The file; fields that it lacks are those of `base`.
        base: Defaults; plain defaults if None.

    Raises:
        UserError: No such file, or one with unknown fields.
    """
    if not path.is_file():
        raise UserError(f"no configuration file {path}")
    try:
        values = yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if base is None:
        base = PretrainConfig()
        method = values.get("method", base.method)
        if method in METHODS and method != base.method:
            base = replace(base, method=method, objective=METHODS[method].config())
    return parse(base, lambda parser: parser.parse_object(values))


def change(config: PretrainConfig, changes: Mapping[str, Any]) -> PretrainConfig:
    """A configuration with other values, checked like the options of `mast pretrain`.

    Args:
        config: All other values.
        changes: By the field's dotted name.

    Raises:
        UserError: An unknown field or a value of the wrong type.
    """
    return parse(config, lambda parser: parser.parse_object(dict(changes)))


def configuration_parser(base: PretrainConfig) -> ArgumentParser:
    """The parser of `mast pretrain`: every field of the configuration, with a recipe's defaults."""
    parser = ArgumentParser(prog="mast pretrain", exit_on_error=False, allow_abbrev=False)
    parser.add_class_arguments(PretrainConfig, skip={"objective"})
    parser.add_class_arguments(METHODS[base.method].config, "objective")
    parser.set_defaults(_leaves(base))
    return parser


def parse(base: PretrainConfig, parse: Callable[[ArgumentParser], Any]) -> PretrainConfig:
    parser = configuration_parser(base)
    try:
        values = parser.instantiate(parse(parser))
    except ArgumentError as error:
        raise explain(error, parser) from error
    config = PretrainConfig(**dict(values))
    config.check()
    return config


def explain(error: ArgumentError, parser: ArgumentParser) -> UserError:
    """An argument error as one sentence, with the nearest valid option or choice."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    given = re.findall(r"--[\w.]+|Option '([\w.]+)'", text)
    wrong = re.search(r"(?:unrecognized arguments: |Option ')(?:--)?([\w.\-]+)", text)
    options = [
        option.removeprefix("--")
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    ]
    if wrong:
        close = difflib.get_close_matches(wrong[1].replace("-", "_"), options, n=1, cutoff=0.4)
        hint = f" Did you mean --{close[0]}?" if close else ""
        return UserError(f"unknown option --{wrong[1]}.{hint} See `{parser.prog} --help`.")
    choice = re.search(r"Literal\[(.*?)\].*Got value: (\S+)", text)
    if choice:
        names = re.findall(r"'([^']+)'", choice[1])
        key = re.search(r'key "([\w.]+)"', text)
        return unknown(f"value of --{key[1] if key else given[0]}", choice[2], names)
    return UserError(text)


def _leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """The values of nested dataclasses by dotted name; dicts are values."""
    leaves: dict[str, Any] = {}
    for name in (each.name for each in fields(config)):
        value = getattr(config, name)
        if is_dataclass(value):
            leaves |= _leaves(value, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = value
    return leaves
