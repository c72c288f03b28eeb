"""Read tars with Python's `tarfile`, and group files into samples as WebDataset does.

`tarfile` stops silently at damaged headers and truncation, so the end of the archive is checked
here.
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

CANVAS = "canvas."  # prefix of a canvas's extension, in shards of `mast shard`
_NAME = re.compile(r"(?s)((?:.*/)?[^/.]+)\.([^/]*)")  # key and ending, at the first dot of the name
_META = re.compile(r"__[^/]*__($|/)")  # members that are no samples, as in WebDataset
_LARGEST = 2**30  # most bytes of an image
_TEXT = 2**20  # most bytes of other content


class Sample(NamedTuple):
    """An image of a tar.

    Attributes:
        name: Name of the original if `mast shard` wrote the tar; else the tar and the key.
        at: First byte of the encoded file.
        size: Bytes of the file; 0 if it is no plain file, or too large.
        label: Class number; -1 without one.
        aspect: Width / height of a canvas's original; NaN for a whole image.
    """

    name: str
    at: int
    size: int
    label: int
    aspect: float


@functools.cache
def _image_endings() -> tuple[str, ...]:
    """Entries of the images of samples; of several in one sample, the first counts."""
    known = [ending.removeprefix(".") for ending in extensions()]
    return (*(CANVAS + ending for ending in known), *known)


def tar_members(file: IO[bytes]) -> Iterator[TarInfo]:
    """All members of a tar; the caller may read elsewhere in between."""
    with tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            tar.members = []  # type: ignore[attr-defined]  # else it holds all of them
            if member.size < 0:
                raise ReadError(f"damaged: {member.name} has a size of {member.size}")
            if not member.isdir():
                yield member
        file.seek(tar.offset)
        length = 0
        while rest := file.read(_TEXT):
            if rest.strip(b"\0"):
                raise ReadError(f"damaged at byte {tar.offset:,}, or another tar follows")
            length += len(rest)
    if length < 2 * BLOCKSIZE:
        raise ReadError(f"cut short: expected two empty blocks, which end a tar, after byte "
                        f"{tar.offset:,}")  # fmt: skip


def tar_samples(file: IO[bytes], url: str) -> Iterator[Sample]:
    """Samples with an image: files with equal names up to the first dot."""
    seen, stem = set[str](), PurePosixPath(url).stem
    for key, group in groupby(_named(file), lambda part: part[0]):
        if key in seen:
            raise ReadError(f"the files of {key} must be adjacent")
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
    """Files of samples, by key and extension."""
    for member in tar_members(file):
        hidden = _META.match(member.name) or member.name.rpartition("/")[2].startswith(".")
        if not hidden and (parts := _NAME.fullmatch(member.name)):
            yield parts[1], parts[2].lower(), member


def _plain_size(member: TarInfo) -> int:
    """Size of a file; 0 for links and sparse files."""
    return member.size if member.isreg() and not member.issparse() else 0


def _label(text: bytes) -> int:
    """Parse a class number; -1 if it is no whole number from 0."""
    with suppress(ValueError):
        if 0 <= (label := int(text)) < 2**63:
            return label
    return -1


def _known(text: bytes) -> tuple[float, str | None]:
    """Aspect ratio and name of a canvas's original, if its JSON has them."""
    try:
        known = json.loads(text)
        aspect, name = float(known["aspect"]), known["name"]
        name.encode("utf-8", "surrogateescape")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return math.nan, None
    return aspect if 1e-6 < aspect < 1e6 else math.nan, name
