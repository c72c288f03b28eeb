"""A folder of images, flat or with one subfolder a class."""

import hashlib
import logging
import os
from pathlib import Path
from typing import final

import numpy as np
from PIL import Image

from mast.core.errors import UserError
from mast.data.decode import EXTENSIONS
from mast.data.source import PARTS, SetDescription, Source

_log = logging.getLogger("mast")
_SPLIT_NAMES = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})


@final
class Folder(Source):
    """Every image below a folder, in the order of their relative paths.

    If all images lie in subfolders, at any depth, the first folder below the root is the class;
    if any lies in the root itself, there are no labels. Hidden files and folders are left out.
    Links are followed; a folder that is reached again from inside itself is not entered twice.

    Args:
        root: The folder.

    Raises:
        UserError: If it holds no image.
    """

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self.root = root
        files: list[tuple[str, int, int]] = []
        _scan(os.fspath(root), "", frozenset(), files)
        if not files:
            raise UserError(
                f"no image in {root}: looked at any depth for files that end in "
                f"{', '.join(EXTENSIONS)} (hidden ones are left out)."
            )
        self._files = sorted(files)
        self.targets, self.classes = _label([path for path, _, _ in self._files])
        if set(self.classes.get("class", ())) & _SPLIT_NAMES:
            _log.warning(
                "%s has the classes %s, which look like splits; name one of them to train on it "
                "alone.", root, ", ".join(self.classes["class"][:5])
            )  # fmt: skip

    def __len__(self) -> int:
        return len(self._files)

    def open(self, index: int) -> Image.Image:
        return Image.open(self.root / self._files[index][0])

    def identifier(self, index: int) -> str:
        return self._files[index][0]

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
    """Opens a folder by its path, which is there.

    Raises:
        UserError: It is a file, or no image is in it.
    """
    path = Path(spec).expanduser()
    if path.is_file():
        raise UserError(f"{spec} is a file: expected the folder that holds the images.")
    return Folder(path)


def describe_folder(spec: str) -> SetDescription:
    """The parts of a folder: those of `train`, `val` and `test` that lie below it.

    Raises:
        UserError: There is no such folder.
    """
    root = Path(spec).expanduser()
    if not root.is_dir():
        raise UserError(f"no folder {root}; give one with `train` and `test` below it")
    return SetDescription({part: str(root / part) for part in PARTS if (root / part).is_dir()})


def _scan(
    folder: str,
    prefix: str,
    above: frozenset[tuple[int, int]],
    files: list[tuple[str, int, int]],
) -> None:
    """Appends (relative path, bytes, mtime in ns) of every image; `above` breaks loops of links."""
    status = os.stat(folder)
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    try:
        entries = list(os.scandir(folder))
    except PermissionError as error:
        raise UserError(
            f"cannot read the folder {folder}: give yourself the permission."
        ) from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            _scan(entry.path, f"{prefix}{entry.name}/", above | {identity}, files)
        elif entry.name.lower().endswith(EXTENSIONS):
            try:
                file = entry.stat()
                files.append((prefix + entry.name, file.st_size, file.st_mtime_ns))
            except OSError:  # a link that leads nowhere: kept, so that it is counted as broken
                files.append((prefix + entry.name, -1, -1))


def _label(paths: list[str]) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    if not all("/" in path for path in paths):
        return {}, {}
    first = [path.split("/", 1)[0] for path in paths]
    names = tuple(sorted(set(first)))
    number = {name: target for target, name in enumerate(names)}
    return {"class": np.array([number[name] for name in first], np.int64)}, {"class": names}
