"""What lies below a folder of images; each folder is looked into once, whatever links to it."""

import os
import stat
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from mast.core.display import Work, doing
from mast.core.errors import UserError
from mast.data.formats import ARRAY, DICOM, UNREAD, extensions

_NOBODYS = frozenset({"@eadir", "__macosx"})  # what systems and stores put there
_TEXTS = ("readme", "license", "licence", "makefile")  # that have no ending


@dataclass
class Found:
    """What lies below a folder, by path relative to it.

    Attributes:
        images: Path, bytes and time of modification in ns of every image; both are -1 for what is
            no file, which is kept so that it is counted as broken.
        unread: Files of a kind that is not read and may be images.
        again: Folders that were looked into by another path before; they are not entered twice.
        nowhere: Links that lead nowhere, other than those called as images are.
    """

    images: list[tuple[str, int, int]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    nowhere: list[str] = field(default_factory=list)


def walk(root: Path) -> Found:
    """Looks through a folder at any depth; hidden files and folders are left out.

    Arrays are images if most of what is found are: others are kept beside images.

    Links are followed after everything else, so that a folder that lies below `root` goes by its
    own path, whatever leads to it as well.

    Args:
        root: A folder.

    Raises:
        UserError: A folder cannot be read.
    """
    with doing("found", unit="images") as work:
        found = _walk(root, work)
    arrays = [path for path, _, _ in found.images if path.lower().endswith(ARRAY)]
    if 2 * len(arrays) <= len(found.images):
        found.unread += arrays
        found.images = [of for of in found.images if not of[0].lower().endswith(ARRAY)]
    return found


def _walk(root: Path, work: Work) -> Found:
    found, seen = Found(), set()
    folders, links = [""], deque[str]()
    while folders or links:
        work.update(len(found.images))
        prefix = folders.pop() if folders else links.popleft()
        path = os.path.join(root, prefix)
        try:
            status = os.stat(path)
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError as error:
            raise UserError(f"cannot read the folder {path}: {error.strerror}.") from error
        if (status.st_dev, status.st_ino) in seen:
            found.again.append(prefix)
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            if not wanted(entry):
                continue
            if is_folder(entry):
                (links if entry.is_symlink() else folders).append(f"{prefix}{entry.name}/")
            else:
                _sort_in(entry, prefix + entry.name, found)
    return found


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is one, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _sort_in(entry: os.DirEntry[str], path: str, found: Found) -> None:
    """Adds what is no folder to what was found; files that are neither image nor photo are not."""
    name = entry.name.lower()
    if name.endswith(extensions()) or (not ending_of(name) and _is_dicom(entry)):
        found.images.append((path, *_state(entry)))
    elif entry.is_symlink() and not os.path.exists(entry.path):
        found.nowhere.append(path)
    elif name.endswith(UNREAD) or not (ending_of(name) or name in _TEXTS):
        found.unread.append(path)


def _is_dicom(entry: os.DirEntry[str]) -> bool:
    """Whether a file is one by its content, where these are read."""
    try:
        if DICOM[0] not in extensions() or not entry.is_file():  # a pipe would not answer
            return False
        with open(entry.path, "rb") as file:
            return file.read(132).endswith(b"DICM")
    except OSError:
        return False


def wanted(entry: os.DirEntry[str]) -> bool:
    """Whether what is in a folder is the user's own: not hidden, and not made by a system."""
    return not entry.name.startswith(".") and entry.name.lower() not in _NOBODYS


def ending_of(path: str) -> str:
    """The ending of a name in small letters; nothing where it has none or a number, as of DICOM."""
    ending = os.path.splitext(path)[1].lower()
    return "" if ending[1:].isdecimal() else ending


def _state(entry: os.DirEntry[str]) -> tuple[int, int]:
    """Bytes and time of modification of a file; -1 of what is none."""
    try:
        status = entry.stat()
    except OSError:
        return -1, -1
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (-1, -1)
