"""From the name of a set to its source: the word before a colon says where images come from.

What has no such word is a folder.
"""

import logging
import os
import pkgutil
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mast.core.errors import UserError
from mast.core.files import default_cache, named
from mast.data.folder import describe_folder, open_folder
from mast.data.listed import as_spec, describe_listed, open_listed
from mast.data.pieces import TilingConfig, in_pieces, split_cut
from mast.data.source import UNLABELLED, Scheme, SetDescription, Source, unique_names

_log = logging.getLogger("mast")


def _later(place: str) -> Callable[..., Any]:
    """A function as `MODULE:NAME`, which is imported when it is called."""

    def call(*arguments: Any) -> Any:
        return pkgutil.resolve_name(f"mast.data.{place}")(*arguments)

    return call


SOURCES: dict[str, Scheme] = {
    "folder": Scheme(("a folder",), open_folder, describe_folder),
    "list": Scheme(("list:photos.csv",), open_listed, describe_listed),
    "factors": Scheme(
        ("factors", "factors@test", "factors@train:4096"),
        _later("generated:Factors.named"),
        _later("generated:Factors.described"),
        alone=True,
    ),
    "toys": Scheme(
        ("toys", "toys@test", "toys@train:4096"),
        _later("generated:Toys.named"),
        _later("generated:Toys.described"),
        alone=True,
    ),
    "torchvision": Scheme(
        ("torchvision:CIFAR10@train",),
        _later("libraries:open_torchvision"),
        _later("libraries:describe_torchvision"),
    ),
    "hf": Scheme(
        ("hf:owner/name@split",),
        _later("libraries:open_hugging_face"),
        _later("libraries:describe_hugging_face"),
    ),
    "shards": Scheme(
        ("shards:FOLDER", "shards:s3://bucket/train-*.tar"),
        _later("shards:open_shards"),
        _later("shards:describe_shards"),
    ),
}


def set_name(photos: Any, option: str = "data") -> str:
    """The name of a set, of a folder, files, a DataFrame or PIL images; the last three are kept."""
    return as_spec(photos, default_cache() / "lists", option)


def open_source(spec: str | Path, root: str | Path | None = None, download: bool = False) -> Source:
    """Opens the images that `spec` names.

    Args:
        spec: A folder, or one of `SOURCES` by its examples (docs/data.md has all); a folder that is
            itself called `factors` is written `./factors`. Behind any of these may stand which
            parts of a file are images, as in `scenes#tile=256` (`mast.data.pieces`).
        root: Where torchvision and Hugging Face sets are or are downloaded to; the cache if None.
        download: Whether the network may be used.

    Returns:
        The source.

    Raises:
        UserError: If nothing goes by that name, or it holds no image.
    """
    text, cut, place = _read(spec, root)
    cut = replace(cut, groups=None)  # of canvases (`mast.data.groups`)
    return in_pieces(_open(text, place, download), cut)


def describe(
    data: str | Path, root: str | Path | None = None, download: bool = False
) -> SetDescription:
    """The usual parts of a labelled set, and what is reported on it.

    Args:
        data: A name without a part, such as `hf:owner/name`; `factors:1024`, with a quarter of so
            many images to validate and to test; or a folder with `train`, `test` and perhaps `val`
            below it, whatever their case and affix (`Training`, `seg_test`, `valid`), or with a
            subfolder per class.
        root: As of `open_source`, and `download`.
        download: Whether the network may be used to see which splits a set of the hub has.

    Returns:
        The parts that there are; of a set by name without looking whether they are on disk.

    Raises:
        UserError: If it names a single split, or there is no such folder.
    """
    whole, cut, place = _read(data, root)
    described = _scheme(whole).describe(whole, place, download)
    parts = {part: spec + cut.suffix for part, spec in described.parts.items()}
    return replace(described, parts=parts)


def _read(spec: str | Path, root: str | Path | None) -> tuple[str, TilingConfig, Path]:
    """A name without what of each file is an image, that, and where sets are downloaded to."""
    if not (text := os.fspath(spec)):
        raise UserError("data is empty: name a folder or a set")
    return *split_cut(text), default_cache() / "downloads" if root is None else named(root)


def _scheme(text: str) -> Scheme:
    word, sign = re.findall(r"^(\w*)(.?)", text, re.DOTALL)[0]
    scheme = SOURCES.get(word, SOURCES["folder"])
    is_named = sign == ":" or (scheme.alone and sign in ("", "@"))
    return scheme if is_named else SOURCES["folder"]


def _open(text: str, root: Path, download: bool) -> Source:
    scheme = _scheme(text)
    if scheme is SOURCES["folder"] and not os.path.exists(named(text)):
        above = next(of for of in named(text).absolute().parents if os.path.isdir(of))
        examples = ", ".join(name for scheme in SOURCES.values() for name in scheme.examples)
        raise UserError(
            f"no folder {text!r} ({above} exists, what follows does not or cannot be read). "
            f"Data are named by: {examples}."
        )
    source = scheme.open(text, root, download)
    if not len(source):
        raise UserError(f"{text} holds no image")
    for task in [task for task, of in source.targets.items() if (of == UNLABELLED).all()]:
        _log.warning("%s: no image has a label of %s", source.name, task)
        del source.targets[task], source.classes[task]
    source.classes = {task: unique_names(names) for task, names in source.classes.items()}
    return source
