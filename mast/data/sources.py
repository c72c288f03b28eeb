"""From what the user names to a source.

`factors`, a folder, a set of torchvision or Hugging Face, or one annotated as COCO or VOC.
"""

import os
import re
from pathlib import Path

from mast.core.errors import UserError
from mast.data.annotated import Annotated, joined
from mast.data.coco import open_coco
from mast.data.factors import Factors
from mast.data.folder import Folder
from mast.data.source import Source
from mast.data.voc import open_voc

FORMS = (
    "a folder, factors, factors@test, factors@train:4096, torchvision:CIFAR10@train, "
    "hf:owner/name@split, coco:FOLDER@train2017, coco:FILE.json@FOLDER, "
    "voc:VOCdevkit/VOC2007@trainval"
)


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/mast`, or `~/.cache/mast` where that is not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mast"


def open_source(spec: str | Path, root: Path | None = None, download: bool = False) -> Source:
    """Opens the images that `spec` names.

    Args:
        spec: A folder; `factors`, `factors@test` or `factors@train:4096` (generated);
            `torchvision:CIFAR10@train`; `hf:owner/name@split`; `coco:FOLDER@train2017` or
            `coco:FILE.json@FOLDER`; `voc:VOCdevkit/VOC2007@trainval`; several of the last three
            joined by "+". A folder that is itself
            called `factors` is written `./factors`.
        root: Where torchvision and Hugging Face sets lie or are downloaded to; the cache if None.
        download: Whether the network may be used.

    Returns:
        The source.

    Raises:
        UserError: If nothing goes by that name, or it holds no image.
    """
    text = os.fspath(spec)
    if text == "factors" or text.startswith("factors@"):
        return _factors(text)
    if text.startswith(("torchvision:", "hf:")):
        from mast.data.named import HuggingFace, Torchvision

        kind, _, rest = text.partition(":")
        name, _, split = rest.partition("@")
        where = root or default_cache() / "downloads"
        named = Torchvision if kind == "torchvision" else HuggingFace
        return named(name, split or "train", where, download)
    parts = re.split(r"\+(?=(?:coco|voc):)", text)
    if len(parts) > 1:
        return joined(text, [_annotated(part) for part in parts])
    if text.startswith(("coco:", "voc:")):
        return _annotated(text)
    return _folder(text)


def _annotated(text: str) -> Annotated:
    if text.startswith("coco:"):
        return open_coco(text)
    if text.startswith("voc:"):
        return open_voc(text)
    raise UserError(
        f"cannot join {text!r} with annotated sets: expected coco:… or voc:…, such as "
        "voc:VOCdevkit/VOC2007@trainval+voc:VOCdevkit/VOC2012@trainval"
    )


def _factors(text: str) -> Factors:
    match = re.fullmatch(r"factors(?:@(\w+)(?::(\d+))?)?", text)
    if match is None:
        raise UserError(
            f"cannot read {text!r}: expected factors, factors@test or factors@train:4096."
        )
    split, count = match.groups()
    return Factors(split or "train", int(count) if count else None)


def _folder(text: str) -> Folder:
    path = Path(text).expanduser()
    if path.is_dir():
        return Folder(path)
    if path.is_file():
        raise UserError(f"{text} is a file: expected the folder that holds the images.")
    above = path.absolute().parent
    while not above.is_dir():
        above = above.parent
    raise UserError(
        f"no folder {text!r} ({above} exists, what follows does not). Data are named by: {FORMS}."
    )
