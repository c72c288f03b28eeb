"""Shared by commands: option help, loading an encoder with its images, tables and pages."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import textwrap
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from mast.core.checkpoint import write_atomically
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.files import named, out_file, quoted
from mast.core.kinds import Device, EncoderLike, later
from mast.core.table import Columns, begins, write_table

if TYPE_CHECKING:
    from mast.data import CanvasSet
    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import InvarianceChoice, SearchEncoder
    from mast.page import View


Encoder = later("mast.invariance.encoder", "Encoder")
NamedSets = later("mast.evaluation.named_sets", "NamedSets")
ENCODER = "encoder.safetensors"
SET = re.compile("[:#@]|^(factors|toys)$")  # in the name of a set that may be no folder
WRAPPED: Any = {"subsequent_indent": " " * 8, "break_on_hyphens": False}
P = ParamSpec("P")
T = TypeVar("T")

# Help of options that mean the same in every command; a command's own docstring takes precedence.
TEXTS = {
    "encoder": "Pretrained weights (`timm:resnet18.a1_in1k`), a run or adapted folder, an "
    "`encoder.safetensors`, an .onnx graph, another project's checkpoint, or an .npz or .parquet "
    "file of features (`features` (N, D) and `paths` (N,)). In Python also a `mast.Encoder` or a "
    "module that maps RGB images (B, 3, H, W) in [0, 1] to (B, D). Default: EfficientNet-Lite0, "
    "ImageNet weights.",
    "out": "File to write: a table (.csv, or .parquet with the extra `parquet`) or a page of "
    "thumbnails (.html). None by default.",
    "size": "Input size in pixels; by default the size at which the weights were trained, 224 if "
    "unknown. Required for a module.",
    "ignore": "Changes that should not count: operators (rotate), properties (color: all operators "
    'that change it) or "all". Measured on some of the images, unless `mast adapt` did.',
    "match": "Compare images by these operators or properties and nothing else.",
    "space": "Metric to compare with: a .json file from `mast neighbours --same --different`, or "
    "`depths` (all stages of the encoder, standardized). Excludes ignore and match.",
    "device": "Where to compute; auto takes a GPU if there is one.",
    "weights": "A checkpoint to load into the named architecture.",
    "download": "Allow downloading the weights.",
    "untrained": "Use random weights for a named architecture.",
    "threads": "CPU threads; PyTorch's choice by default.",
}


def command(function: Callable[P, T]) -> Callable[P, T]:
    """`entry`, which also adds `TEXTS` to the docstring for options that it does not describe.

    `data` may be files, a DataFrame or PIL images as well (`set_name`), `encoder` an `Encoder`.
    """
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    shared = [
        "    " + textwrap.fill(f"{name}: {TEXTS[name]}", 92, **WRAPPED)
        for name in signature.parameters
        if name in TEXTS and f"\n    {name}: " not in text
    ]
    before, returns, after = text.partition("\n\nReturns:")
    if shared and returns:  # not where Python leaves docstrings out
        function.__doc__ = "\n".join([before, *shared]) + returns + after
    checked = entry(draws=True)(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind_partial(*args, **kwargs)
        values = bound.arguments
        if isinstance(values.get("encoder"), Encoder):
            values["encoder"] = values["encoder"].module
        if not isinstance(data := values.get("data"), str | Path | NamedSets | None):
            from mast.data import set_name

            values["data"] = set_name(data)
        return checked(*bound.args, **bound.kwargs)

    return called


def or_default(encoder: EncoderLike | None, data: Any) -> EncoderLike:
    """The encoder, or the default one; refuses a missing folder before anything is loaded."""
    if isinstance(data, str | Path) and not (SET.search(str(data)) or os.path.exists(named(data))):
        raise UserError(
            f"data: no folder {quoted(data)}, and no set such as list:photos.csv or hf:owner/name "
            "(docs/data.md)"
        )
    from mast.models.pretrained import DEFAULT

    return DEFAULT if encoder is None else encoder


def open_search(
    options: EncoderOptions,
    data: str | Path,
    invariances: InvarianceChoice,
    device: Device,
) -> tuple[SearchEncoder, CanvasSet]:
    """The encoder to compare images with, and the images."""
    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.data import DataConfig
    from mast.data.photos import opener
    from mast.invariance.choice import load_search_encoder

    photos = opener(DataConfig(str(data), max_broken=1.0))
    by = load_search_encoder(options, invariances, Compute(find_device(device)), photos=photos)
    return by, by.opened(photos)


def listing_file(out: str | Path | None, *columns: str | tuple[str, ...]) -> Path | None:
    """The checked output file of a listing, whose table begins with these columns, if any."""
    from mast.page import is_page

    table = begins(*columns)
    kinds = {".csv": table, ".parquet": table, ".html": is_page}
    return None if out is None else out_file(out, kinds)


def opened(page: Path) -> Path:
    """A page, which opens in a browser if the command was called on a screen."""
    screen = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ
    if screen and sys.stdout.isatty():
        webbrowser.open(page.resolve().as_uri())
    return page


def write_arrays(path: Path, save: Callable[..., None], arrays: Mapping[str, Any]) -> None:
    """Write arrays atomically, with `numpy.savez` or a function like it."""

    def write(partial: Path) -> None:
        with partial.open("wb") as file:  # to a path it would add an ending
            save(file, **arrays)

    write_atomically(path, write)


def write_listing(
    file: Path | None, columns: Columns, title: str, views: Callable[[], Sequence[View]]
) -> None:
    """Write a listing as a table, or as a page of images."""
    from mast.page import write_gallery

    if file is not None and file.suffix == ".html":
        write_gallery(file, title, views())
    elif file is not None:
        write_table(file, columns)
