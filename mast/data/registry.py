"""Open sets by name; the word before a colon selects the source.

A name without such a word is a folder.
"""

import logging
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from mast.core.errors import UserError
from mast.core.files import default_cache, named
from mast.data.folder import describe_folder, open_folder
from mast.data.generated import Factors, Toys
from mast.data.libraries import (
    describe_hugging_face,
    describe_torchvision,
    open_hugging_face,
    open_torchvision,
)
from mast.data.listed import as_spec, describe_listed, open_listed
from mast.data.pieces import TilingConfig, in_pieces, split_cut
from mast.data.shards.source import describe_shards, open_shards
from mast.data.source import UNLABELLED, Scheme, SetDescription, Source, unique_names

_log = logging.getLogger("mast")


SOURCES: dict[str, Scheme] = {
    "folder": Scheme(("a folder",), open_folder, describe_folder),
    "list": Scheme(("list:photos.csv",), open_listed, describe_listed),
    "torchvision": Scheme(("torchvision:CIFAR10@train",), open_torchvision, describe_torchvision),
    "hf": Scheme(("hf:owner/name@split",), open_hugging_face, describe_hugging_face),
    "shards": Scheme(
        ("shards:FOLDER", "shards:s3://bucket/train-*.tar"), open_shards, describe_shards
    ),
    **{
        kind.word: Scheme(
            (kind.word, f"{kind.word}@test", f"{kind.word}@train:4096"),
            kind.named,
            kind.described,
            alone=True,
        )
        for kind in (Factors, Toys)
    },
}


def set_name(photos: Any, option: str = "data") -> str:
    """The name of a set; files, a DataFrame or PIL images are first written to the cache."""
    return as_spec(photos, default_cache() / "lists", option)


def open_source(spec: str | Path, root: str | Path | None = None, download: bool = False) -> Source:
    """Opens the images that `spec` names.

    Args:
        spec: A folder, or a name of `SOURCES` (docs/data.md); write `./factors` for a folder of
            that name. Options for pages and tiles may follow, as in `scenes#tile=256`
            (`mast.data.pieces`).
        root: Folder of torchvision and Hugging Face sets and their downloads; the cache if None.
        download: Whether the network may be used.

    Returns:
        The source.

    Raises:
        UserError: If there is no such set, or it has no image.
    """
    text, cut, place = _read(spec, root)
    cut = replace(cut, groups=None)  # of canvases (`mast.data.groups`)
    return in_pieces(_open(text, place, download), cut)


def describe(
    data: str | Path, root: str | Path | None = None, download: bool = False
) -> SetDescription:
    """The usual parts of a labeled set, and its metric.

    Args:
        data: A name without a part, such as `hf:owner/name`; `factors:1024`, with a quarter as
            many images each to validate and test; or a folder with `train`, `test` and perhaps
            `val` in any usual spelling (`Training`, `seg_test`, `valid`), or with a subfolder per
            class.
        root: As in `open_source`.
        download: Whether the network may be used to list the splits of a Hub set.

    Returns:
        The existing parts; for a set by name, without checking that they are on disk.

    Raises:
        UserError: If it names a single split, or the folder does not exist.
    """
    whole, cut, place = _read(data, root)
    described = _scheme(whole).describe(whole, place, download)
    parts = {part: spec + cut.suffix for part, spec in described.parts.items()}
    return replace(described, parts=parts)


def _read(spec: str | Path, root: str | Path | None) -> tuple[str, TilingConfig, Path]:
    """Split off a name's options for pages and tiles; also returns the download folder."""
    if not (text := os.fspath(spec)):
        raise UserError("data: expected a folder or a set, got nothing")
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
            f"no folder {text!r} ({above} exists, the rest does not or is unreadable). "
            f"Other kinds of sets: {examples}."
        )
    source = scheme.open(text, root, download)
    if not len(source):
        raise UserError(f"data: {text} has no image")
    for task in [task for task, of in source.targets.items() if (of == UNLABELLED).all()]:
        _log.warning("%s: no image has a label of %s", source.name, task)
        del source.targets[task], source.classes[task]
    source.classes = {task: unique_names(names) for task, names in source.classes.items()}
    return source
