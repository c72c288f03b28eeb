"""Tars, read by Python's `tarfile`, and the samples in them, as WebDataset groups files.

`tarfile` stops silently at a damaged header or where the file is cut, so what follows the last
member is checked here.
"""

import functools
import json
import math
import re
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import PurePosixPath
from tarfile import BLOCKSIZE, ReadError, TarInfo
from typing import IO, NamedTuple

from mast.data.formats import extensions

CANVAS = "canvas."  # how the ending of a canvas begins, in shards that `mast shard` wrote
_NAME = re.compile(r"(?s)((?:.*/)?[^/.]+)\.([^/]*)")  # key and ending, at the first dot of the name
_META = re.compile(r"__[^/]*__($|/)")  # members that are no samples, as WebDataset has it
_LARGEST = 2**30  # bytes of an image
_TEXT = 2**20  # bytes of other content


class Sample(NamedTuple):
    """An image of a tar.

    Attributes:
        name: Of the original, where `mast shard` wrote the tar; else the tar and the key.
        at: First byte of the encoded file.
        size: Its bytes; 0 where it is no plain file, or is too large.
        label: Number of its class; -1 where it has none.
        aspect: Width / height of the original of a canvas; NaN where the image is whole.
    """

    name: str
    at: int
    size: int
    label: int
    aspect: float


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


def tar_samples(file: IO[bytes], url: str) -> Iterator[Sample]:
    """The samples with an image: files with one name up to its first dot; others are left out."""
    seen, stem = set[str](), PurePosixPath(url).stem
    for key, group in groupby(_named(file), lambda part: part[0]):
        if key in seen:
            raise ReadError(f"the files of {key} are not adjacent: write them one after the other")
        seen.add(key)
        members, texts = dict[str, TarInfo](), {"cls": b"", "json": b""}
        for _, ending, member in group:
            if ending in members:  # as WebDataset has it
                raise ReadError(f"{key}.{ending} is in it twice")
            members[ending] = member
            if ending in texts and (size := _plain_size(member)) <= _TEXT:
                file.seek(member.offset_data)
                texts[ending] = file.read(size)
        chosen = next((ending for ending in _image_endings() if ending in members), None)
        if chosen is not None:
            known = _known(texts["json"]) if chosen.startswith(CANVAS) else (math.nan, None)
            size = _plain_size(members[chosen])
            yield Sample(
                known[1] or f"{stem}/{key}", members[chosen].offset_data,
                size if size <= _LARGEST else 0, _label(texts["cls"]), known[0],
            )  # fmt: skip


def _named(file: IO[bytes]) -> Iterator[tuple[str, str, TarInfo]]:
    """The files of samples, by key and ending."""
    for member in tar_members(file):
        hidden = _META.match(member.name) or member.name.rpartition("/")[2].startswith(".")
        if not hidden and (parts := _NAME.fullmatch(member.name)):
            yield parts[1], parts[2].lower(), member


def _plain_size(member: TarInfo) -> int:
    """The bytes of a file; 0 of a link and of one with holes."""
    return member.size if member.isreg() and not member.issparse() else 0


def _label(text: bytes) -> int:
    """The class number in a text; -1 if it is no whole number from 0."""
    with suppress(ValueError):
        if 0 <= (label := int(text)) < 2**63:
            return label
    return -1


def _known(text: bytes) -> tuple[float, str | None]:
    """Aspect ratio and name of the original of a canvas, where its JSON has them."""
    try:
        known = json.loads(text)
        aspect, name = float(known["aspect"]), known["name"]
        name.encode("utf-8", "surrogateescape")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return math.nan, None
    return aspect if 1e-6 < aspect < 1e6 else math.nan, name
