"""Tars, read header by header up to their end: what is missing there is no end of a short tar.

Python's and WebDataset's readers end without a word where a header is damaged or the file is cut.
"""

import functools
import logging
import re
import tarfile
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import groupby
from tarfile import BLOCKSIZE, ReadError
from typing import IO, NamedTuple

from mast.data.formats import extensions

_log = logging.getLogger("mast")

META = re.compile(r"__[^/]*__($|/)")  # members that are no samples, as WebDataset has it
CANVAS = "canvas."  # how the ending of a canvas begins, in shards that `mast shard` wrote
LARGEST = 2**30  # bytes of an image
_NAMED = 5  # kinds of files
_HELD = 64  # files of a group of which each image is a sample that are looked at together
_TEXT = 2**20  # bytes of a name, and of other content
_RECORD = re.compile(rb"(\d{1,9}) ([^=]+)=")  # of a PAX header: how long it is, and its name
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_AHEAD = (  # headers that say something of the next member
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
)  # fmt: skip


class Member(NamedTuple):
    """A file in a tar: its name as written, its first byte, and its number of bytes.

    That is 0 of what is no plain file, such as a link, and of what is too large.
    """

    name: str
    at: int
    size: int


class TarMember(NamedTuple):
    """A file of a sample: its first byte in the tar, its size, and its content where wanted."""

    at: int
    size: int
    content: bytes | None


@functools.cache
def image_endings() -> tuple[str, ...]:
    """Of the images of samples; where a sample has several, the first one counts."""
    known = [ending.removeprefix(".") for ending in extensions()]
    return (*(CANVAS + ending for ending in known), *known)


def tar_samples(
    file: IO[bytes], url: str, wanted: Collection[str] = ()
) -> Iterator[tuple[str, str, dict[str, TarMember]]]:
    """The samples with an image, as WebDataset groups files: by their name up to its first dot.

    Where none of a group is called as an image is (`key.jpg`), each of its images is a sample of
    its own: `key.left.jpg` and `key.right.jpg`, or `key.5mm.jpg`. Warnings count what is left out.

    Yields:
        Key, ending of the image, and the files by their endings, with the content of those that are
        wanted; key and endings from the last dot on where each image is a sample.
    """
    seen, without, several = set[str](), Counter[str](), Counter[str]()
    for key, named in groupby(_parts(file, wanted, without), lambda part: part[0]):
        if key in seen:
            raise ReadError(f"the files of {key} are not adjacent: write them one after the other")
        seen.add(key)
        endings, held, found = set[str](), dict[str, TarMember](), False
        for _, ending, part in named:
            if ending in endings:  # as WebDataset has it
                raise ReadError(f"{key}.{ending} is in it twice")
            endings.add(ending)
            held[ending] = part
            if len(held) == _HELD and not endings.intersection(image_endings()):
                for sample in _each(key, held, several):
                    yield sample
                    found = True
                held = {}
        images = [ending for ending in image_endings() if ending in held]
        if images:
            others = [of for of in held if of not in images and _is_image(of)]
            _count(several, [*images, *others])
            yield key, images[0], held
            continue
        for sample in _each(key, held, several):
            yield sample
            found = True
        if not found:
            without[" and ".join(f".{ending}" for ending in held)] += 1
    _warn_once(url, _counted(without), _counted(several))


def _is_image(ending: str) -> bool:
    return ending.rpartition(".")[2] in image_endings()


def _each(
    key: str, parts: dict[str, TarMember], several: Counter[str]
) -> Iterator[tuple[str, str, dict[str, TarMember]]]:
    """Each image of a group as a sample, with the files named as it is, or as the group."""
    named: dict[str, dict[str, TarMember]] = {}
    for ending, part in parts.items():
        own, _, last = ending.rpartition(".")
        named.setdefault(own, {})[last] = part
    for own, beside in named.items():
        images = [ending for ending in image_endings() if ending in beside]
        if own and images:
            _count(several, images)
            yield f"{key}.{own}", images[0], named.get("", {}) | beside


def _count(several: Counter[str], images: list[str]) -> None:
    if len(images) > 1:
        several[" and ".join(f".{ending}" for ending in images)] += 1


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} of {kind}" for kind, count in kinds.most_common(_NAMED))


@functools.cache
def _warn_once(url: str, without: str, several: str) -> None:
    """What is left out of a shard, in a line each; a name ends at its first dot."""
    if without:
        _log.warning("%s: files that belong to no image of a kind that is read are left out: %s",
                     url, without)  # fmt: skip
    if several:
        _log.warning("%s: of samples with several images the first is read: %s", url, several)


def _parts(
    file: IO[bytes], wanted: Collection[str], without: Counter[str]
) -> Iterator[tuple[str, str, TarMember]]:
    from webdataset.tariterators import base_plus_ext

    for name, at, size in tar_members(file):
        key, ending = base_plus_ext(name)
        if META.match(name) or name.rpartition("/")[2].startswith("."):
            continue
        if key is None:
            without["no ending"] += 1
            continue
        ending, content = ending.lower(), None
        if ending in wanted or ending.rpartition(".")[2] in wanted:
            file.seek(at)
            content = _read(file, size if _is_image(ending) else min(size, _TEXT))
        yield key, ending, TarMember(at, size, content)


def tar_members(file: IO[bytes]) -> Iterator[Member]:
    """All files of a tar, which may be read elsewhere between two members."""
    at, said = 0, dict[bytes, bytes]()  # of the member that follows
    while True:
        file.seek(at)
        block = file.read(BLOCKSIZE)
        if not block.strip(b"\0"):
            break
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            raise ReadError(f"it is damaged at byte {at:,}: {error}") from error
        more = header.type == tarfile.GNUTYPE_SPARSE and block[482]  # headers of a sparse file
        while more:
            block = file.read(BLOCKSIZE)
            more = len(block) == BLOCKSIZE and block[504]
        begin = file.tell()
        ahead = header.type in _AHEAD
        size = header.size if ahead else int(said.get(b"size", header.size))
        if size < 0:
            raise ReadError(f"it is damaged at byte {at:,}: a size of {size}")
        filled = header.isreg() or ahead or header.type not in tarfile.SUPPORTED_TYPES
        at = begin + (-(-size // BLOCKSIZE) * BLOCKSIZE if filled else 0)
        if ahead:
            said |= _said(file, header)
            continue
        if not header.isdir():
            plain = header.type in _PLAIN and not any(of.startswith(b"GNU.sparse") for of in said)
            name = said.get(b"GNU.sparse.name", said.get(b"path"))
            yield Member(
                header.name if name is None else name.decode("utf-8", "surrogateescape"),
                begin,
                size if plain and size <= LARGEST else 0,
            )
        said = {}
    if len(block + file.read(BLOCKSIZE)) < 2 * BLOCKSIZE:
        raise ReadError(
            f"it is cut short: two empty blocks, which end a tar, are not at byte {at:,}"
        )
    file.seek(at)
    while rest := file.read(_TEXT):
        if rest.strip(b"\0"):
            raise ReadError(
                f"more follows the end of the tar at byte {at:,}, as where two were joined: write "
                "one tar of both"
            )


def _said(file: IO[bytes], header: tarfile.TarInfo) -> dict[bytes, bytes]:
    """What a header says of the member that follows, by the names of PAX."""
    if header.type not in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
        return {}
    if header.size > _TEXT:
        raise ReadError(f"a header of {header.size:,} bytes is in it: expected {_TEXT:,} at most")
    content = _read(file, header.size)
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return {b"path": content.partition(b"\0")[0]}
    said, at = dict[bytes, bytes](), 0
    while (record := _RECORD.match(content, at)) and int(record[1]) > 0:
        end = at + int(record[1])
        said[record[2]] = content[record.end() : end - 1]
        at = end
    return said


def _read(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise ReadError(f"it is cut short at byte {file.tell():,}")
    return content
