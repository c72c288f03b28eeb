"""Which shards there are, how many samples each has, and where each sample lies.

Shards are counted once: by an index beside them (`index.json`, in the form that WebDataset's wids
has), by what was counted before, which the cache keeps as long as a file's size and time stay, or
by reading the names in a tar and the footer of a Parquet file. Random access needs a table, made
once by a look at the header of every file of every tar: arrays of a mapped file, six gigabytes for
a hundred million samples.

Legend: S shards, N samples.
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
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, final

import numpy as np
import torch

from mast.core.checkpoint import write_json
from mast.core.display import doing, track
from mast.core.errors import UserError
from mast.core.files import named
from mast.core.locks import locked
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.core.waiting import Threads
from mast.data.cache import Names, named_after
from mast.data.formats import extensions
from mast.data.shards.shard import (
    READERS,
    Shard,
    answered,
    aspect_of,
    classes_of,
    is_local,
    label_of,
    miscounted,
    open_parquet,
    opened,
    reason_of,
    rows_of,
    telling,
)
from mast.data.shards.tar import CANVAS, tar_samples
from mast.data.source import SHARDS, UNLABELLED, numbered, split_column, told_apart

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
            digest.update(f"{PurePosixPath(shard.url).name} {shard.size} {shard.count}\n".encode())
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
    """Checks that there is an image in shards."""
    if images == 0:
        raise UserError(
            f"{spec} has no image: {shards} shards were looked through for files that end in "
            f"{', '.join(extensions())}"
        )


class Found(NamedTuple):
    """Shards, and what the index beside them says.

    Attributes:
        files: Size and state of each, by its URL; in the order of their names.
        counts: Samples and size of each that the index names.
        classes: Names of the classes.
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
        """Samples of the shards that are as the index says, by where they are."""
        return {
            url: self.counts[url][0]
            for url, (size, _) in self.files.items()
            if url in self.counts and self.counts[url][1] in (size, None)
        }


def look_for(spec: str) -> Found:
    """Find the shards of a name; arguments and errors as of `open_index`."""
    whole, column = split_column(spec)
    pattern = whole.removeprefix(SHARDS)
    with doing(f"looking for the shards of {pattern}"):
        files = _find(pattern)
        found = Found(files, *_beside(next(iter(files))), column)
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
    """How many samples shards have, as was counted before or is now."""
    pattern = spec.removeprefix(SHARDS)
    file = cache / f"{named_after(spec)}.shards.json"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    with locked(file.with_suffix(".lock")), Threads(READERS) as pool:
        before = _read_counts(file)
        known = {
            url: before[url][1]
            for url, (_, state) in found.items()
            if url in before and before[url][0] == f"{COUNTED} {state}"
        }
        missing = [url for url in found if url not in known]
        counted = pool.map(functools.partial(_count, column=column), missing)
        counts = track(counted, f"counting {pattern}", len(missing), "shards")
        known |= dict(zip(missing, counts, strict=True))
        if missing:
            states = {url: f"{COUNTED} {state}" for url, (_, state) in found.items()}
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
    def informed(path: str) -> dict[str, Any]:
        return answered(pattern, lambda: system.info(path))

    with Threads(READERS) as pool:
        return dict(zip(paths, pool.map(informed, paths), strict=True))


def _state(details: Mapping[str, Any]) -> str:
    """What changes when a file does, as its store says it."""
    return " ".join(
        [str(details["size"]), *(str(details[key]) for key in STATES if key in details)]
    )


def _beside(shard: str) -> tuple[dict[str, tuple[int, int | None]], tuple[str, ...], str]:
    """By an index beside shards: counts and sizes, names of classes, and what it is of."""
    from fsspec.core import url_to_fs

    folder = shard[: shard.rfind("/") + 1]
    url = f"{folder}{INDEX}"
    with telling(url):
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
        classes = told_apart([_text(name, "a class") for name in classes])
        version = _text(str(index.get("version", "")), "version")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{url} is no index of shards ({type(error).__name__}: {reason_of(error)}): mend or "
            "remove it"
        ) from error
    return counts, classes, version


def check_named(spec: str, label: int, classes: Sequence[str]) -> None:
    """Refuse the number of a class that the index has no name for."""
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
    with telling(url), opened(url) as file:
        if not url.endswith(".parquet"):
            return sum(1 for _ in tar_samples(file, url))
        return int(open_parquet(file, url, column)[0].metadata.num_rows)


def _read_counts(file: Path) -> dict[str, tuple[str, int]]:
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
        if written["digest"] != _digest(written["counts"]):
            raise ValueError("it changed since it was written")
        return {
            url: (_text(state, "state"), _whole_number(count, "count"))
            for url, (state, count) in written["counts"].items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        _log.warning("%s is damaged; the shards are counted again", file)
        return {}


def _write_counts(file: Path, counts: Mapping[str, tuple[str, int]]) -> None:
    written = {url: list(of) for url, of in counts.items()}
    try:
        os.makedirs(file.parent, exist_ok=True)
        write_json(file, {"digest": _digest(written), "counts": written})
    except (OSError, UserError) as error:
        _log.warning("counts of shards are not kept: %s", error)


def _digest(counts: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(counts, sort_keys=True).encode(), digest_size=16).hexdigest()


TABLE_VERSION = 2
_LABELS = 1024  # that are read of a Parquet file at a time


class Place(NamedTuple):
    """Where an image lies.

    Attributes:
        shard: Number of its shard.
        at: Its first byte in a tar, or its row in a Parquet file.
        size: Its bytes; 0 in a Parquet file.
        aspect: Width / height of the original of a canvas; None where the image is whole.
    """

    shard: int
    at: int
    size: int
    aspect: float | None


@final
@dataclass(frozen=True)
class Table:
    """Every sample of a set of shards.

    Attributes:
        count_S: int64, samples of each shard.
        at_N: int64, as in `Place`.
        size_N: int64, as in `Place`.
        label_N: int64, number of the class; -1 where there is none.
        aspect_N: float32, as in `Place`; NaN where the image is whole.
        names: Of the original where `mast shard` wrote the shard, else shard and key.
        classes: Names of the classes where the shards have them.
    """

    count_S: np.ndarray
    at_N: np.ndarray
    size_N: np.ndarray
    label_N: np.ndarray
    aspect_N: np.ndarray
    names: Names
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.at_N)

    @cached_property
    def _end_S(self) -> np.ndarray:
        return self.count_S.cumsum()

    def place(self, index: int) -> Place:
        """Of one sample."""
        shard = int(np.searchsorted(self._end_S, index, side="right"))
        aspect = float(self.aspect_N[index])
        return Place(
            shard, int(self.at_N[index]), int(self.size_N[index]),
            None if np.isnan(aspect) else aspect,
        )  # fmt: skip


def open_table(
    name: str, found: Mapping[str, tuple[int, str]], cache: Path, column: str | None = None
) -> Table:
    """The table of shards, made where there is none of them as they are.

    Args:
        name: What the user calls the set.
        found: Size and state of each shard, by its URL.
        cache: Folder where tables are kept.
        column: The column of images that the user names.
    """
    file, state = _table_file(name, cache), _state_of_all(found)
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    with locked(file.with_suffix(".lock")):
        table = _read_table(file, state, found)
        if table is None:
            with Threads(READERS) as pool:
                look = functools.partial(_look_through, column=column)
                looked = pool.map(look, found, _prefixes(list(found)))
                title = f"looking through {name}"
                parts = list(track(looked, title, len(found), "shards"))
            refuse_empty(name, len(parts), sum(len(part.at_N) for part in parts))
            label_N, classes = _merged(parts)
            whole = Table(
                np.array([len(part.at_N) for part in parts]),
                np.concatenate([part.at_N for part in parts]),
                np.concatenate([part.size_N for part in parts]),
                label_N,
                np.concatenate([part.aspect_N for part in parts]),
                Names.joined([part.names for part in parts]),
                classes,
            )
            keep_table(name, found, cache, whole)
            table = _read_table(file, state, found)
    assert table is not None, file
    return table


def keep_table(name: str, found: Mapping[str, tuple[int, str]], cache: Path, table: Table) -> None:
    """Write a table where `open_table` finds it, whose arguments the others are."""
    arrays = {field: of for field, of in vars(table).items() if isinstance(of, np.ndarray)}
    arrays |= {"names": table.names.text, "ends": table.names.end_N}
    tensors = {field: torch.from_numpy(of) for field, of in arrays.items()}
    described = {"state": _state_of_all(found), "classes": list(table.classes)}
    write_tensors(_table_file(name, cache), tensors, described)


def _table_file(name: str, cache: Path) -> Path:
    return cache / f"{named_after(name)}.samples.safetensors"


def _state_of_all(found: Mapping[str, tuple[int, str]]) -> str:
    """A hash of shards as they are, and of how a table is made."""
    described = json.dumps([TABLE_VERSION, sorted(found.items())])
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()


def _read_table(file: Path, state: str, found: Mapping[str, tuple[int, str]]) -> Table | None:
    """What was kept of shards as they are; None where that is nothing."""
    if not file.is_file():
        return None
    try:
        tensors, header = read_tensors(file, "it is made anew")
        if read_metadata(header).get("state") != state:
            return None
        arrays: dict[str, Any] = {key: tensor.numpy() for key, tensor in tensors.items()}
        names = Names(arrays.pop("names"), arrays.pop("ends"))
        classes = tuple(map(str, read_metadata(header)["classes"]))
        table = Table(**arrays, names=names, classes=classes)
        _check_table(table, found)
    except UserError as error:
        _log.warning("%s", error)
        return None
    except (KeyError, TypeError, ValueError) as error:
        _log.warning("%s is damaged (%s): it is made anew", file, error)
        return None
    return table


def _check_table(table: Table, found: Mapping[str, tuple[int, str]]) -> None:
    """Look whether arrays fit each other and the shards, a shard at a time."""
    count, text = len(table), len(table.names.text)
    for name, dtype, length in (
        ("count_S", np.int64, len(found)), ("at_N", np.int64, count), ("size_N", np.int64, count),
        ("label_N", np.int64, count), ("aspect_N", np.float32, count),
    ):  # fmt: skip
        _check_array(name, getattr(table, name), dtype, (length,))
    _check_array("names", table.names.text, np.uint8, (text,))
    _check_array("ends", table.names.end_N, np.int64, (count,))
    if (table.count_S < 0).any() or sum(table.count_S.tolist()) != count:
        raise ValueError(f"shards of other than {count} images")
    first, begin = 0, 0
    for (url, (size, _)), of_shard in zip(found.items(), table.count_S.tolist(), strict=True):
        if not of_shard:
            continue
        part = slice(first, first + of_shard)
        at_N, size_N, aspect_N = table.at_N[part], table.size_N[part], table.aspect_N[part]
        end_N = table.names.end_N[part]
        limit = of_shard - 1 if url.endswith(".parquet") else size
        if not (
            at_N.min() >= 0 and at_N.max() <= limit
            and size_N.min() >= 0 and (size_N <= limit - at_N).all()
            and table.label_N[part].min() >= -1
            and (np.isnan(aspect_N) | (aspect_N > 0) & (aspect_N < np.inf)).all()
            and begin <= end_N[0] and (end_N[1:] >= end_N[:-1]).all() and end_N[-1] <= text
        ):  # fmt: skip
            raise ValueError(f"{url} has no such images")
        first, begin = first + of_shard, int(end_N[-1])


def _check_array(name: str, array: np.ndarray, dtype: type, shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(f"{name} is {array.dtype} {array.shape}: expected {shape}")


class _Part(NamedTuple):
    """The table of one shard; fields as in `Table`."""

    at_N: np.ndarray
    size_N: np.ndarray
    label_N: np.ndarray
    aspect_N: np.ndarray
    names: Names
    classes: tuple[str, ...] = ()


def _merged(parts: Sequence[_Part]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels of all shards, and names of their classes, sorted unless all shards agree."""
    known = list(dict.fromkeys(part.classes for part in parts if part.classes))
    classes = (
        known[0] if len(known) == 1 else tuple(sorted({of for names in known for of in names}))
    )
    number = {name: label_of(name) for name in classes}
    if all(name == str(of) for name, of in number.items()):
        classes = ()
    else:
        number = {name: at for at, name in enumerate(classes)}
    labels = []
    for part in parts:
        # behind the others, for what has no label
        own_C = np.array([*(number[name] for name in part.classes), UNLABELLED], np.int64)
        labels.append(own_C[part.label_N] if part.classes else part.label_N)
    return np.concatenate(labels), classes


def _prefixes(urls: list[str]) -> list[str]:
    """What names of each shard begin with: its folder, where shards are in several."""
    folders = [url.split("/")[:-1] for url in urls]
    levels = zip(*folders, strict=False)
    common = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    return ["".join(f"{part}/" for part in folder[common:]) for folder in folders]


def _look_through(url: str, prefix: str, column: str | None) -> _Part:
    with telling(url), opened(url) as file:
        if url.endswith(".parquet"):
            return _of_parquet(file, url, prefix, column)
        return _of_tar(file, url, prefix)


def _of_tar(file: IO[bytes], url: str, prefix: str) -> _Part:
    shard = PurePosixPath(url).stem
    rows, names = [], []
    for key, image, parts in tar_samples(file, url, ("cls", "json")):
        content = {ending: part.content for ending, part in parts.items()}
        aspect, name = None, None
        if image.startswith(CANVAS):
            aspect, name = aspect_of(content.get("json")), _original(content.get("json"))
        rows.append((
            parts[image].at, parts[image].size, label_of(content.get("cls")),
            np.nan if aspect is None else aspect,
        ))  # fmt: skip
        names.append(prefix + (f"{shard}/{key}" if name is None else name))
    at, size, label, aspects = zip(*rows, strict=True) if rows else ((), (), (), ())
    return _Part(
        np.array(at, np.int64), np.array(size, np.int64), np.array(label, np.int64),
        np.array(aspects, np.float32), Names.of(names),
    )  # fmt: skip


def _original(known: bytes | None) -> str | None:
    """The name that `mast shard` kept."""
    try:
        name = json.loads(known or b"")["name"]
        return name if isinstance(name, str) and name.encode("utf-8", "surrogateescape") else None
    except (KeyError, TypeError, ValueError):  # of what cannot be encoded, too
        return None


def _of_parquet(file: IO[bytes], url: str, prefix: str, column: str | None) -> _Part:
    parquet, _, label = open_parquet(file, url, column)
    count, groups = parquet.metadata.num_rows, range(parquet.num_row_groups)
    label_N, classes = np.full(count, UNLABELLED, np.int64), tuple[str, ...]()
    if label is not None:
        written = [row[label] for row in rows_of(parquet, groups, [label], _LABELS)]
        if any(isinstance(value, str) for value in written):
            label_N[:], classes = numbered(written)
        else:
            label_N[:] = list(map(label_of, written))
            classes = classes_of(parquet, label)
            label_N[label_N >= (len(classes) or np.inf)] = UNLABELLED
    stem = PurePosixPath(url).stem
    return _Part(
        np.arange(count), np.zeros(count, np.int64), label_N,
        np.full(count, np.nan, np.float32),
        Names.of(f"{prefix}{stem}/{row}" for row in range(count)), classes,
    )  # fmt: skip
