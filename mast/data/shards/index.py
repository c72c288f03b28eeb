"""Which shards there are, and how many samples each has.

Shards are counted once: by an index beside them (`index.json`, in the form that WebDataset's wids
has), by what was counted before, which the cache keeps as long as a file's size and time stay, or
by reading the names in a tar and the footer of a Parquet file.

Legend: S shards.
"""

import functools
import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, final

import numpy as np

from mast.core.display import doing, track
from mast.core.errors import UserError
from mast.core.files import locked, named
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.core.threads import Threads
from mast.data.cache import named_after
from mast.data.formats import extensions, readers
from mast.data.shards.shard import (
    READERS,
    Shard,
    answered,
    is_local,
    miscounted,
    naming_shard,
    open_parquet,
    opened,
    reason_of,
)
from mast.data.shards.tar import tar_samples
from mast.data.source import SHARDS, split_column, unique_names

ENDINGS = (".tar", ".parquet")
INDEX = "index.json"
LONGEST = 2**28  # bytes of an index
TASK = "class"  # what the labels of shards are of
KIND = "wids-shard-index-v1"
COUNTED = 2  # version of how samples are counted
# What stores call the time or the version of a file.
STATES = ("mtime", "ETag", "etag", "LastModified", "Last-Modified", "last_modified", "updated",
          "blob_id")  # fmt: skip
_log = logging.getLogger("mast")
_PACKED = re.compile(r"\.(tar\.(gz|bz2|xz|zst)|tgz|TAR|PARQUET)$")


@final
@dataclass(frozen=True)
class ShardIndex:
    """The shards of a set.

    Args:
        name: What the user called it.
        shards: In the order of their names.
        classes: Names of the classes; empty where there are no labels, or no names.
        version: What the index beside them says that they were made of.
    """

    name: str
    shards: tuple[Shard, ...]
    classes: tuple[str, ...] = ()
    version: str = ""

    @cached_property
    def counts(self) -> np.ndarray:
        """Samples of each shard, (S,) int64."""
        return np.array([shard.count for shard in self.shards], np.int64)

    def __len__(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names, sizes, counts and version; of where shards are only their names count.

        What is edited in place, and keeps its size, is not noticed.
        """
        digest = hashlib.blake2b(self.version.encode(), digest_size=16)
        for shard in self.shards:
            digest.update(
                f"{PurePosixPath(shard.url).name} {shard.size} {shard.count}\n".encode(
                    "utf-8", "surrogateescape"
                )
            )
        return digest.hexdigest()


def open_index(spec: str, cache: Path) -> ShardIndex:
    """Find and count the shards of a name.

    Args:
        spec: `shards:` and a folder, a pattern with `*` or `{000..099}`, or one file; of this
            machine, or of a store that fsspec knows, such as `s3://bucket/train`.
        cache: Folder where counts are kept; processes that share it count once.
    """
    found = look_for(spec)
    known = {url: count for url, count in found.said.items() if count}  # an empty one is looked at
    if missing := {url: of for url, of in found.files.items() if url not in known}:
        known |= _counted(spec, missing, cache, found.column)
        for url in missing.keys() & found.said.keys():
            if known[url]:
                raise miscounted(url, "more", 0)
    shards = tuple(
        Shard(url, known[url], size, found.column) for url, (size, _) in found.files.items()
    )
    index = ShardIndex(spec, shards, found.classes, found.version)
    refuse_empty(spec, len(shards), len(index))
    return index


def refuse_empty(spec: str, shards: int, images: int) -> None:
    if images == 0:
        raise UserError(
            f"{spec} has no image: {shards} shards were looked through for files that end in "
            f"{', '.join(extensions())}"
        )


class FoundShards(NamedTuple):
    """Shards, and what the index beside them says.

    Attributes:
        files: Size and state of each, by its URL; in the order of their names.
        counts: Samples and size of each that the index names.
        version: What they were made of.
        column: The column of images that the user names.
    """

    files: dict[str, tuple[int, str]]
    counts: dict[str, tuple[int, int | None]]
    classes: tuple[str, ...]
    version: str
    column: str | None = None

    @property
    def said(self) -> dict[str, int]:
        """Samples of the shards whose size is as the index says, by URL."""
        return {
            url: self.counts[url][0]
            for url, (size, _) in self.files.items()
            if url in self.counts and self.counts[url][1] in (size, None)
        }


def look_for(spec: str) -> FoundShards:
    """Find the shards of a name; arguments and errors as of `open_index`."""
    whole, column = split_column(spec)
    pattern = whole.removeprefix(SHARDS)
    with doing(f"looking for the shards of {pattern}"):
        files = _find(pattern)
        found = FoundShards(files, *_beside(next(iter(files))), column)
    partly = pattern.endswith(ENDINGS) or any(sign in pattern for sign in "*?[{")
    if is_local(pattern):
        partly = not os.path.isdir(named(pattern))
    if not partly and (away := [url for url in found.counts if url not in files]):
        _log.warning("%s: %d shards that its %s names are not there, such as %s",
                     spec, len(away), INDEX, away[0])  # fmt: skip
    return found


def is_there(spec: str) -> bool:
    """Whether a name stands for shards."""
    try:
        return bool(_find(spec.removeprefix(SHARDS)))
    except UserError as error:
        if isinstance(error.__cause__, TimeoutError):
            raise
        return False


def _counted(
    spec: str, found: Mapping[str, tuple[int, str]], cache: Path, column: str | None
) -> dict[str, int]:
    """How many samples shards have, as counted before or now."""
    pattern, made = spec.removeprefix(SHARDS), f"{COUNTED} {readers()}"
    file = cache / f"{named_after(spec)}.shards.safetensors"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    with locked(file.with_suffix(".lock")), Threads(READERS) as pool:
        before = _read_counts(file)
        known = {
            url: before[url][1]
            for url, (_, state) in found.items()
            if url in before and before[url][0] == f"{made} {state}"
        }
        missing = [url for url in found if url not in known]
        counted = pool.map(functools.partial(_count, column=column), missing)
        counts = track(counted, f"counting {pattern}", len(missing), "shards")
        known |= dict(zip(missing, counts, strict=True))
        if missing:
            states = {url: f"{made} {state}" for url, (_, state) in found.items()}
            _write_counts(file, {url: (state, known[url]) for url, state in states.items()})
    return known


def _find(pattern: str) -> dict[str, tuple[int, str]]:
    """Size and state of each shard, by where it is."""
    place = str(named(pattern)) if is_local(pattern) else pattern
    try:
        from braceexpand import braceexpand
        from fsspec.core import has_magic, url_to_fs

        literal = is_local(pattern) and os.path.exists(place)
        places = [place] if literal else list(braceexpand(place))
        system, _ = url_to_fs(places[0])
        details: dict[str, dict[str, Any]] = {}
        plain: list[str] = []
        for each in places:
            path = each if literal else str(system._strip_protocol(each))
            if has_magic(path) and not literal:
                details |= answered(pattern, functools.partial(system.glob, path, detail=True))
            else:
                plain.append(path)
        details |= _details(pattern, system, plain)
        unsized = [path for path, of in details.items() if of.get("size") is None]
        details |= _informed(pattern, system, [path for path in unsized if path.endswith(ENDINGS)])
        found = {
            path if is_local(pattern) else str(system.unstrip_protocol(path)): (
                int(of["size"]),
                _state(of),
            )
            for path, of in details.items()
            if path.endswith(ENDINGS) and of["type"] == "file"
        }
    except ImportError as error:
        raise UserError(
            f"shards:{pattern} needs another package, as from pip install 'mast-ssl[shards]': "
            f"{error}"
        ) from error
    except ValueError as error:  # such as braces that are not closed
        raise UserError(f"shards:{pattern} cannot be opened: {error}") from error
    except Exception as error:  # each kind of store raises its own
        raise UserError(f"shards:{pattern} cannot be found: {reason_of(error)}") from error
    if packed := [path for path in details if _PACKED.search(path)]:
        _log.warning("shards:%s: %d files are left out, as shards end in %s: %s", pattern,
                     len(packed), " or ".join(ENDINGS), ", ".join(packed[:3]))  # fmt: skip
    if not found:
        raise UserError(
            f"shards:{pattern} names no shard: expected files that end in {' or '.join(ENDINGS)}, "
            "a folder of them, or a pattern such as train-*.tar or train-{000..099}.tar"
        )
    return dict(sorted(found.items()))


def _details(pattern: str, system: Any, paths: list[str]) -> dict[str, dict[str, Any]]:
    """What a store says of files, and of those in folders."""
    found: dict[str, dict[str, Any]] = {}
    for path, of in _informed(pattern, system, paths).items():
        if of["type"] == "directory" or path.endswith("/"):  # one of https:// says no more
            listed = answered(pattern, functools.partial(system.ls, path, detail=True))
            found |= {each["name"]: each for each in listed}
        else:
            found[path] = of
    return found


def _informed(pattern: str, system: Any, paths: list[str]) -> dict[str, dict[str, Any]]:
    with Threads(READERS) as pool:
        asked = (functools.partial(system.info, path) for path in paths)
        answers = pool.map(functools.partial(answered, pattern), asked)
        return dict(zip(paths, answers, strict=True))


def _state(details: Mapping[str, Any]) -> str:
    """What changes when a file does, as its store says it."""
    return " ".join(
        [str(details["size"]), *(str(details[key]) for key in STATES if key in details)]
    )


def _beside(shard: str) -> tuple[dict[str, tuple[int, int | None]], tuple[str, ...], str]:
    """What the index beside shards has: counts and sizes, names of classes, and its version."""
    from fsspec.core import url_to_fs

    folder = shard[: shard.rfind("/") + 1]
    url = f"{folder}{INDEX}"
    with naming_shard(url):
        system, path = url_to_fs(url)
        if not answered(url, lambda: system.exists(path)):
            return {}, (), ""
        with opened(url) as file:
            text = file.read(LONGEST)
            if file.read(1):
                raise UserError(f"{url} of more than {LONGEST:,} bytes is no index of shards")
    try:
        index = json.loads(text)
        counts: dict[str, tuple[int, int | None]] = {}
        for of in index["shardlist"]:
            name, size = _text(of["url"], "url"), of.get("filesize")
            if f"{folder}{name}" in counts:
                raise ValueError(f"{name} is in it twice")
            counts[f"{folder}{name}"] = (
                _whole_number(of["nsamples"], "nsamples"),
                None if size is None else _whole_number(size, "filesize"),
            )
        classes = index.get("classes", [])
        if not isinstance(classes, list):
            raise ValueError("classes is no list of names")
        classes = unique_names([_text(name, "a class") for name in classes])
        version = _text(str(index.get("version", "")), "version")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{url} is no index of shards ({type(error).__name__}: {reason_of(error)}): mend or "
            "remove it"
        ) from error
    return counts, classes, version


def check_named(spec: str, label: int, classes: Sequence[str]) -> None:
    """Checks that the index has a name for the number of a class."""
    if label >= len(classes):
        raise UserError(
            f"{spec} has images of class {label}, counted from 0, and its index.json names "
            f"{len(classes)} classes: name them all, or none"
        )


def _whole_number(value: Any, name: str) -> int:
    """A count, of whatever JSON has in its place."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < 2**53 or value != int(value):
        raise ValueError(f"expected a whole number as {name}, got {str(value)[:40]}")
    return int(value)


def _text(value: Any, name: str) -> str:
    """A name that can be written."""
    if not isinstance(value, str):
        raise ValueError(f"expected text as {name}, got {str(value)[:40]}")
    value.encode()
    return value


def _count(url: str, column: str | None) -> int:
    """Count the samples of a shard."""
    with naming_shard(url), opened(url) as file:
        if not url.endswith(".parquet"):
            return sum(1 for _ in tar_samples(file, url))
        return int(open_parquet(file, url, column)[0].metadata.num_rows)


def _read_counts(file: Path) -> dict[str, tuple[str, int]]:
    if not file.is_file():
        return {}
    try:
        written = read_metadata(read_tensors(file)[1])["counts"]
        return {
            url: (_text(state, "state"), _whole_number(count, "count"))
            for url, (state, count) in written.items()
        }
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        _log.warning("%s is damaged; the shards are counted again", file)
        return {}


def _write_counts(file: Path, counts: Mapping[str, tuple[str, int]]) -> None:
    try:
        write_tensors(file, {}, {"counts": counts})
    except (OSError, UserError) as error:
        _log.warning("counts of shards are not kept: %s", error)
