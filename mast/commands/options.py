"""The configuration of a run from a recipe, a file, the most frequent options and key=value."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.core.errors import UserError
from mast.core.kinds import Device, Precision

if TYPE_CHECKING:
    from mast.config import PretrainConfig

# Options that have another name than their field.
FIELDS = {
    "data": "data.spec", "encoder": "encoder.name", "weights": "encoder.weights",
    "download": "data.download",
}  # fmt: skip


def configured(
    data: str | Path | None = None,
    *changes: str,
    recipe: str | None = None,
    config: str | Path | None = None,
    out: str | Path | None = None,
    encoder: str | None = None,
    weights: str | Path | None = None,
    download: bool | None = None,
    size: int | None = None,
    views: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    device: Device | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    threads: int | None = None,
    precision: Precision | None = None,
    **others: Any,
) -> PretrainConfig:
    """A configuration: the recipe's, in its place the file's, then what is given here.

    Args:
        data: A folder of images (flat, or with one subfolder per class), or a set by name, such as
            `shards:FOLDER` or `torchvision:CIFAR10@train` (docs/data.md).
        changes: Any other field as key=value, such as objective.temperature=0.2 or
            operators=rotate,grayscale; `mast show config` lists all fields.
        recipe: What sets the defaults; `mast show recipes` lists them.
        config: A YAML file, such as a run's config.yaml, whose fields replace the recipe's.
        out: Run folder; `runs/<recipe>-<data>-<seed>` by default.
        encoder: A name from timm or torchvision.
        weights: Weights to start from: a run folder, a file, or a tag such as
            `timm:resnet50.a1_in1k`.
        download: Allow downloading the images or the weights.
        size: Side of a view in pixels.
        views: Preset of views (`mast show operators`).
        epochs: Passes over the images.
        batch_size: Images per step, over all processes.
        seed: Decides weights, order and views.
        device: Where to compute.
        devices: Processes on this machine (torchrun overrides it).
        nodes: Machines (torchrun overrides it).
        threads: CPU threads per process; PyTorch's choice by default.
        precision: auto (bfloat16 on CUDA, float32 elsewhere), float32 or bfloat16.
    """
    given = dict(locals())
    from mast.config import change
    from mast.recipes import merge

    values = {
        FIELDS.get(name, name): value for name, value in given.items()
        if value is not None and name not in ("changes", "recipe", "config", "others")
    }  # fmt: skip
    values |= others
    for word in changes:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"expected one folder of images, then key=value, got {word!r}")
        if name in values:
            raise UserError(f"{name} is given twice")
        values[name] = value
    return change(merge(recipe, config), values)


def with_texts(config: PretrainConfig) -> str:
    """A configuration as YAML, with what each field is above it."""
    import yaml

    from mast.config import record

    texts, lines, path = _texts(config), list[str](), list[str]()
    for line in yaml.safe_dump(record(config), sort_keys=False).splitlines():
        if found := re.match(r"((?:  )*)(\w+):", line):
            indent = found[1]
            path = [*path[: len(indent) // 2], found[2]]
            text = texts.get(".".join(path), "")
            lines += textwrap.wrap(text, 88, initial_indent=f"{indent}# ",
                                   subsequent_indent=f"{indent}# ")  # fmt: skip
        lines.append(line)
    return "\n".join([*lines, ""])


def _texts(config: Any, prefix: str = "") -> dict[str, str]:
    """What docstrings say of the fields of nested dataclasses, by dotted name."""
    import docstring_parser

    texts = {}
    for kind in filter(is_dataclass, reversed(type(config).__mro__)):
        for each in docstring_parser.parse(inspect.getdoc(kind) or "").params:
            texts[prefix + each.arg_name] = " ".join((each.description or "").split())
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            texts |= _texts(value, f"{prefix}{field.name}.")
    return texts
