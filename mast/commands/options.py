"""The configuration of a run from a recipe, a file, the most frequent options and key=value."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mast.core.errors import UserError

if TYPE_CHECKING:
    from mast.config import PretrainConfig

# Options of `mast pretrain`: the type, the field of a configuration, and the text.
OPTIONS: dict[str, tuple[Any, str, str]] = {
    "data": (str | None, "data.spec", "A folder of images (flat, or with one subfolder per class), "
             "or a set by name, such as `shards:FOLDER` or `torchvision:CIFAR10@train` "
             "(docs/data.md)."),
    "changes": (str, "", "Any other field as key=value, such as objective.temperature=0.2 or "
                "operators=rotate,grayscale; `mast show config` lists all fields."),
    "recipe": (str | None, "", "Sets the defaults; `mast show recipes` lists all recipes."),
    "config": (str | None, "", "A YAML file, such as a run's config.yaml, whose fields replace the "
               "recipe's."),
    "out": (str | None, "out", "Run folder; `runs/<recipe>-<data>-<seed>` by default."),
    "encoder": (str | None, "encoder.name", "Architecture: a name of timm or torchvision."),
    "weights": (str | None, "encoder.weights", "Weights to start from: a run folder, a file, or a "
                "tag such as `timm:resnet50.a1_in1k`."),
    "download": (bool | None, "data.download", "Allow downloading the images or the weights."),
    "size": (int | None, "size", "Side of a view in pixels."),
    "views": (str | None, "views", "Preset of views (`mast show operators`)."),
    "epochs": (int | None, "epochs", "Passes over the images."),
    "batch_size": (int | None, "batch_size", "Images per step, over all processes."),
    "seed": (int | None, "seed", "Random seed of weights, order and views."),
    "device": (Literal["auto", "cpu", "cuda"] | None, "device",
               "Where to compute; auto takes a GPU if there is one."),
    "threads": (int | None, "threads", "CPU threads per process; PyTorch's choice by default."),
    "precision": (Literal["auto", "float32", "bfloat16"] | None, "precision",
                  "auto (bfloat16 on CUDA, float32 elsewhere), float32 or bfloat16."),
}  # fmt: skip


def configured(
    data: str | Path | None = None,
    *changes: str,
    recipe: str | None = None,
    config: str | Path | None = None,
    **values: Any,
) -> PretrainConfig:
    """Merge a recipe, a file, `OPTIONS` and other fields into a configuration; later ones win.

    Args:
        data: The images.
        changes: Fields as key=value.
        recipe: Sets the defaults.
        config: A YAML file whose fields replace the recipe's.
        values: Options, and fields by name.
    """
    from mast.recipes import merge

    given = {
        OPTIONS[name][1] if name in OPTIONS else name: value
        for name, value in {"data": data, **values}.items()
        if value is not None
    }
    for word in changes:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"expected one folder of images, then key=value, got {word!r}")
        if name in given:
            raise UserError(f"{name}: expected once, got it twice")
        given[name] = value
    return merge(recipe, config, given)


def with_texts(config: PretrainConfig) -> str:
    """A configuration as YAML, with a comment above each field."""
    import yaml

    from mast.config import record

    texts, lines, path = _texts(config), list[str](), list[str]()
    for line in yaml.safe_dump(record(config), sort_keys=False).splitlines():
        if found := re.match(r"((?:  )*)(\w+):", line):
            indent = f"{found[1]}# "
            path = [*path[: len(found[1]) // 2], found[2]]
            text = texts.get(".".join(path), "")
            lines += textwrap.wrap(text, 88, initial_indent=indent, subsequent_indent=indent)
        lines.append(line)
    return "\n".join([*lines, ""])


def _texts(config: Any, prefix: str = "") -> dict[str, str]:
    """Docstring descriptions of the fields of nested dataclasses, by dotted name."""
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
