"""Tars, read by Python's `tarfile`, and the samples in them, as WebDataset groups files.

`tarfile` stops silently at a damaged header or where the file is cut, so what follows the last
member is checked here.
"""

import functools
import json
import logging
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import PurePosixPath
from tarfile import BLOCKSIZE, ReadError, TarInfo
from typing import IO

from mast.data.formats import extensions
from mast.data.shards.sample import Sample

CANVAS = "canvas."  # how the ending of a canvas begins, in shards that `mast shard` wrote
_NAME = re.compile(r"(?s)((?:.*/)?[^/.]+)\.([^/]*)")  # key and ending, at the first dot of the name
_META = re.compile(r"__[^/]*__($|/)")  # members that are no samples, as WebDataset has it
_LARGEST = 2**30  # bytes of an image
_TEXT = 2**20  # bytes of other content
_log = logging.getLogger("mast")


@functools.cache
def _image_endings() -> tuple[str, ...]:
    """Of the images of samples; where a sample has several, the first one counts."""
    known = [ending.removeprefix(".") for ending in extensions()]
    return (*(CANVAS + ending for ending in known), *known)


def tar_members(file: IO[bytes]) -> Iterator[TarInfo]:
    """All files of a tar, which may be read elsewhere between two members."""
    with tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            tar.members = []  # type: ignore[attr-defined]  # else it holds all of them
            if member.size < 0:
                raise ReadError(f"it is damaged: {member.name} has a size of {member.size}")
            if not member.isdir():
                yield member
        file.seek(tar.offset)
        length = 0
        while rest := file.read(_TEXT):
            if rest.strip(b"\0"):
                raise ReadError(f"it is damaged at byte {tar.offset:,}, or another tar follows")
            length += len(rest)
    if length < 2 * BLOCKSIZE:
        raise ReadError(f"it is cut short: no two empty blocks, which end a tar, follow byte "
                        f"{tar.offset:,}")  # fmt: skip


def tar_samples(file: IO[bytes], url: str, first: int = 0, images: bool = True) -> Iterator[Sample]:
    """The samples with an image: files with one name up to its first dot.

    Where none of a group is called as an image is (`key.jpg`), each of its images is a sample of
    its own: `key.left.jpg` and `key.right.jpg`, or `key.5mm.jpg`. A warning counts what is left
    out.

    Args:
        file: The tar.
        url: Where it is.
        first: The number of the first sample whose image is read.
        images: Whether images are read at all.
    """
    number, seen, left_out = 0, set[str](), Counter[str]()

    def content(member: TarInfo, ending: str, ahead: int) -> bytes:
        last = ending.rpartition(".")[2]
        if last in ("cls", "json"):
            return _read(file, member, _TEXT)
        wanted = images and number + ahead >= first and last in _image_endings()
        return _read(file, member, _LARGEST) if wanted else b""

    for key, group in groupby(_named(file, left_out), lambda part: part[0]):
        if key in seen:
            raise ReadError(f"the files of {key} are not adjacent: write them one after the other")
        seen.add(key)
        files = dict[str, tuple[TarInfo, bytes]]()
        for _, ending, member in group:
            if ending in files:  # as WebDataset has it
                raise ReadError(f"{key}.{ending} is in it twice")
            files[ending] = member, content(member, ending, len(files))
        found = False
        for name, ending, parts in _images(key, files, left_out):
            number, found = number + 1, True
            yield _sample(f"{PurePosixPath(url).stem}/{name}", ending, parts)
        if not found:
            left_out[" and ".join(f".{ending}" for ending in files)] += 1
    if left_out:
        kinds = (f"{count} of {kind}" for kind, count in left_out.most_common(5))
        _warn_once(url, ", ".join(kinds))


def _named(file: IO[bytes], left_out: Counter[str]) -> Iterator[tuple[str, str, TarInfo]]:
    """The files of samples, by key and ending."""
    for member in tar_members(file):
        if _META.match(member.name) or member.name.rpartition("/")[2].startswith("."):
            continue
        if parts := _NAME.fullmatch(member.name):
            yield parts[1], parts[2].lower(), member
        else:
            left_out["no ending"] += 1


Files = dict[str, tuple[TarInfo, bytes]]


def _images(key: str, files: Files, left_out: Counter[str]) -> Iterator[tuple[str, str, Files]]:
    """The images of a group: name, ending, and the files that belong to it."""
    plain = [ending for ending in _image_endings() if ending in files]
    if plain:
        images = [of for of in files if of.rpartition(".")[2] in _image_endings()]
        if others := [ending for ending in images if ending != plain[0]]:
            left_out[" and ".join(f".{ending}" for ending in others)] += 1
        yield key, plain[0], files
        return
    named: dict[str, Files] = {}
    for ending, part in files.items():
        own, _, last = ending.rpartition(".")
        named.setdefault(own, {})[last] = part
    for own, parts in named.items():
        for ending in [ending for ending in _image_endings() if own and ending in parts][:1]:
            yield f"{key}.{own}", ending, named.get("", {}) | parts


def _sample(key: str, ending: str, files: Files) -> Sample:
    member, image = files[ending]
    _, label = files.get("cls", (None, None))
    size = member.size if _is_plain(member) and member.size <= _LARGEST else 0
    aspect, name = None, None
    if ending.startswith(CANVAS):
        aspect, name = _known(files["json"][1] if "json" in files else b"")
    return Sample(key, image, label, aspect, name, member.offset_data, size)


def _known(text: bytes) -> tuple[float | None, str | None]:
    """Aspect ratio and name of the original of a canvas, where its JSON has them."""
    try:
        known = json.loads(text)
        aspect, name = float(known["aspect"]), known["name"]
        name.encode("utf-8", "surrogateescape")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None, None
    return aspect if 1e-6 < aspect < 1e6 else None, name


def _is_plain(member: TarInfo) -> bool:
    return member.isreg() and not member.issparse()


def _read(file: IO[bytes], member: TarInfo, most: int) -> bytes:
    """The content of a file in a tar; empty for links and files that are too large."""
    if not _is_plain(member) or member.size > most:
        return b""
    file.seek(member.offset_data)
    return file.read(member.size)


@functools.cache
def _warn_once(url: str, kinds: str) -> None:
    _log.warning("%s: files that belong to no readable image, or are the second image of a "
                 "sample, are ignored: %s", url, kinds)  # fmt: skip
