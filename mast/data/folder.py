"""A folder of images, flat or with one subfolder a class."""

import hashlib
import logging
import os
import re
from collections import Counter
from pathlib import Path
from typing import final

import numpy as np
from PIL import Image

from mast.core.errors import UserError
from mast.core.files import as_unicode, named, special
from mast.data.decode import HEIF, extensions, open_image
from mast.data.partition import WHOLE
from mast.data.source import PARTS, SetDescription, Source
from mast.data.walk import Found, walk

_log = logging.getLogger("mast")
_NAMED = 3  # of what is left out, with its most common endings
SPLIT_NAMES = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})


@final
class Folder(Source):
    """Every image below a folder, in the order of their relative paths.

    If all images lie in subfolders, at any depth, the first folder below the root is the class;
    if any lies in the root itself, there are no labels. Hidden files and folders are left out, and
    so are photos of kinds that are not read, with a warning. Links are followed; a folder that
    several paths lead to is read once.

    Args:
        root: The folder; or one image file, which then is the only one.

    Raises:
        UserError: If it holds no image.
    """

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self.root = root
        if root.is_dir():
            found = walk(root)
        else:
            status, self.root = root.stat(), root.parent
            found = Found([(root.name, status.st_size, status.st_mtime_ns)])
        if not found.images:
            unread = f"; {_unread(found.unread)}" if found.unread else ""
            raise UserError(
                f"no image in {root}: looked at any depth for files that end in "
                f"{', '.join(extensions())} (hidden ones are left out){unread}."
            )
        _warn(root, found)
        self._files = sorted(found.images)
        paths = [path for path, _, _ in self._files]
        self.targets, self.classes = _label(paths)
        above = [path for path in paths if "/" not in path]
        if above and 10 * len(above) < len(paths):
            _log.warning(
                "%s: labels are left out, as %d of %d images are in no folder of a class: %s.",
                root, len(above), len(paths), _some(above),
            )  # fmt: skip
        if set(self.classes.get("class", ())) & SPLIT_NAMES:
            _log.warning(
                "%s has the classes %s, which look like splits; name one of them to train on it "
                "alone.", root, ", ".join(self.classes["class"][:5])
            )  # fmt: skip

    def __len__(self) -> int:
        return len(self._files)

    def open(self, index: int) -> Image.Image:
        path, size, modified = self._files[index]
        return open_image(self.root / path, (size, modified))

    def identifier(self, index: int) -> str:
        return self._files[index][0]

    @property
    def whereabouts(self) -> str:
        """The absolute path: a relative one means another folder elsewhere."""
        return os.path.abspath(self.name)

    def fingerprint(self) -> str:
        """A hash of every relative path, size in bytes and time of modification.

        Reading the bytes would cost as much as decoding; an edit that keeps all three does not
        happen by accident. The content itself is hashed when the canvases are made.
        """
        digest = hashlib.blake2b(digest_size=16)
        for path, size, modified in self._files:
            digest.update(f"{path}\0{size}\0{modified}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def open_folder(spec: str, _root: Path, _download: bool) -> Folder:
    """Opens a folder, or one image file, by its path, which is there.

    Raises:
        UserError: It is neither, or no image is in it.
    """
    path = named(spec)
    kind = special(path)
    if not path.is_dir() and (kind or not path.name.lower().endswith(extensions())):
        raise UserError(
            f"{spec} is {kind or 'no image'}: expected the folder that holds the images, or a file "
            f"that ends in {', '.join(extensions())}."
        )
    return Folder(path)


def describe_folder(spec: str) -> SetDescription:
    """The parts of a folder: `train`, `val` and `test` below it, or all of it where none is.

    Raises:
        UserError: There is no such folder.
    """
    root = named(spec)
    if not os.path.isdir(root):
        raise UserError(
            f"no folder {root}; give one with `train` and `test`, or a folder a class, below it"
        )
    parts = {part: str(root / part) for part in PARTS if (root / part).is_dir()}
    return SetDescription(parts or {WHOLE: str(root)})


def _warn(root: Path, found: Found) -> None:
    """Says what is left out, in a line each."""
    if found.unread:
        _log.warning("%s: %s.", root, _unread(found.unread))
    if found.again:
        _log.warning(
            "%s: folders that are reached again are read once; not entered again: %s.",
            root, _some(found.again),
        )  # fmt: skip
    if found.nowhere:
        _log.warning("%s: links that lead nowhere are left out: %s.", root, _some(found.nowhere))


def _unread(paths: list[str]) -> str:
    """How many photos are left out because their kind is not read, and what to do about it."""
    counts = Counter(os.path.splitext(path)[1].lower() for path in paths)
    kinds = ", ".join(f"{count} {ending}" for ending, count in counts.most_common(_NAMED))
    advice = "convert them to JPEG or PNG"
    if any(counts[ending] for ending in HEIF):
        advice = f"`pip install 'mast-ssl[heif]'` to read .heic and .heif, or {advice}"
    return (
        f"{len(paths)} photos of kinds that are not read ({kinds}) are left out: {_some(paths)}; "
        f"{advice}"
    )


def _some(paths: list[str]) -> str:
    """The first few of some paths."""
    return ", ".join([*paths[:_NAMED], *["…"] * (len(paths) > _NAMED)])


def _label(paths: list[str]) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    if not all("/" in path for path in paths):
        return {}, {}
    first = [path.split("/", 1)[0] for path in paths]
    names = tuple(sorted(set(first)))
    number = {name: target for target, name in enumerate(names)}
    target_N = np.array([number[name] for name in first], np.int64)
    # A byte that is no text becomes \xff, so a name that spells this becomes something else.
    shown = (as_unicode(re.sub(r"\\(?=x[0-9a-f]{2})", r"\\x5c", name)) for name in names)
    return {"class": target_N}, {"class": tuple(shown)}
