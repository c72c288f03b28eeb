"""Images of shards, looked at one by one: what every command does but `mast pretrain`.

Where each lies is in a table, made once by a look at the header of every file of every tar: arrays
of a mapped file, six gigabytes for a hundred million samples.

Legend: S shards, N samples.
"""

import functools
import glob
import hashlib
import io
import json
import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO, Any, final

import numpy as np
import torch

from mast.core.display import track
from mast.core.errors import UserError
from mast.core.files import locked
from mast.core.reading import Reading
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.core.threads import Threads
from mast.data.cache import named_after
from mast.data.decode import Opened, open_image
from mast.data.formats import Bands, readers
from mast.data.shards.index import TASK, ShardIndex, check_named, is_there, look_for, refuse_empty
from mast.data.shards.names import Names
from mast.data.shards.shard import (
    READERS,
    Sample,
    Shard,
    aspect_of,
    classes_of,
    label_of,
    miscounted,
    naming_shard,
    open_parquet,
    opened,
    read_range,
    read_rows,
    rows_of,
)
from mast.data.shards.tar import CANVAS, tar_samples
from mast.data.source import (
    SHARDS,
    UNLABELLED,
    WHOLE,
    SetDescription,
    Source,
    by_number,
    hash_labels,
    numbered,
    parts_among,
    split_column,
)

# What parts are called, the usual name last.
NAMED = {
    "train": ("training", "train"),
    "val": ("dev", "validation", "valid", "val"),
    "test": ("testing", "test"),
}
_log = logging.getLogger("mast")
_GROUPS = 8  # row groups of Parquet files that are kept in memory


@final
class Shards(Source):
    """A set in shards with random access; where each sample lies is kept in a cache folder."""

    def __init__(self, spec: str, cache: Path) -> None:
        self.name = spec
        found = look_for(spec)
        self._state = " ".join(state for _, state in found.files.values())
        self._column = found.column
        self._table = open_table(spec, found.files, cache, found.column)
        counts = self._table.count_S.tolist()
        said = found.said
        for url, count in zip(found.files, counts, strict=True):
            if said.get(url, count) != count:
                raise miscounted(url, "more" if count > said[url] else "fewer", said[url])
        shards = tuple(
            Shard(url, count, size)
            for (url, (size, _)), count in zip(found.files.items(), counts, strict=True)
        )
        self._index = ShardIndex(spec, shards, found.classes, found.version)
        label_N, classes = np.asarray(self._table.label_N), self._table.classes or found.classes
        if classes:
            check_named(spec, int(label_N.max()), classes)
        else:
            label_N, classes = by_number(label_N)
        labelled = bool((label_N != UNLABELLED).any())
        self.targets = {TASK: label_N} if labelled else {}
        self.classes = {TASK: classes} if labelled else {}
        self._lock = Lock()
        self._recent: deque[tuple[int, int, list[bytes]]] = deque(maxlen=_GROUPS)

    def __len__(self) -> int:
        return len(self._table)

    def identifier(self, index: int) -> str:
        return self._table.names[index]

    def fingerprint(self) -> str:
        """Of all shards, and of their times or whatever else their store says of a version."""
        return hash_labels(self._index.fingerprint, self._state, self.targets)

    def open(self, index: int, page: int = 0) -> Opened:
        """One image; a canvas in the shape of its original, as large as it can be."""
        image = open_image(io.BytesIO(self._encoded(index)), None, page, self.max_pixels)
        aspect = self._table.aspect(index)
        if aspect is None or isinstance(image, Bands):
            return image
        width, height = image.size
        if aspect >= 1:
            return image.resize((width, max(1, round(width / aspect))))
        return image.resize((max(1, round(height * aspect)), height))

    def canvas(
        self, index: int, side: int, reading: Reading | None = None
    ) -> tuple[np.ndarray, float]:
        key = f"{self.name}/{self.identifier(index)}"
        sample = Sample(key, self._encoded(index), aspect=self._table.aspect(index))
        return sample.canvas(side, reading, partial(self.note, index))

    def look(
        self, index: int, side: int, size: int, reading: Reading
    ) -> tuple[np.ndarray, float, np.ndarray]:
        return *self.canvas(index, side, reading), self.test_view(index, size, reading)

    def _encoded(self, index: int) -> bytes:
        """The file of an image."""
        shard, at = self._table.shard(index), int(self._table.at_N[index])
        url = self._index.shards[shard].url
        with naming_shard(url):
            if not url.endswith(".parquet"):
                return read_range(url, at, int(self._table.size_N[index]))
            with self._lock:  # threads that want the next images wait for the same rows
                for of, first, rows in self._recent:
                    if of == shard and first <= at < first + len(rows):
                        return rows[at - first]
                first, rows = read_rows(url, at, self._column)
                self._recent.append((shard, first, rows))
                return rows[at - first]


def open_shards(spec: str, root: Path, download: bool) -> Shards:
    """Opens a folder, a pattern or a file; what is known of them is kept in `root`."""
    return Shards(spec, root)


def describe_shards(spec: str, _root: Path, _download: bool) -> SetDescription:
    """The parts of a set: folders `train`, `val` and `test`, or files whose names begin so."""
    whole, column = split_column(spec)
    place, end = whole.removeprefix(SHARDS).rstrip("/"), f"#{column}" if column else ""
    escaped = glob.escape(place) if os.path.isdir(place) else place
    ways = [
        (part, way)
        for part, words in NAMED.items()
        for word in words
        for way in (f"{escaped}/{word}-*", f"{place}/{word}")
    ]
    if os.path.isdir(place):  # whatever their case and affix
        among = parts_among(entry.name for entry in os.scandir(place) if entry.is_dir())
        ways = [(part, f"{place}/{name}") for part, (name, *_) in among.items()] + ways
    parts = {part: SHARDS + way + end for part, way in ways if is_there(SHARDS + way)}
    return SetDescription(parts or {WHOLE: spec})


# ------------------------------------------------------------------------------------- the table

VERSION = 2
_LABELS = 1024  # that are read of a Parquet file at a time


@final
@dataclass(frozen=True)
class SampleTable:
    """Every sample of a set of shards.

    Attributes:
        count_S: int64, samples of each shard.
        at_N: int64, first byte in a tar, or row in a Parquet file.
        size_N: int64, bytes; 0 in a Parquet file.
        label_N: int64, number of the class; -1 where there is none.
        aspect_N: float32, width / height of the original of a canvas; NaN of a whole image.
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

    def shard(self, index: int) -> int:
        """The number of the shard of a sample."""
        return int(np.searchsorted(self._end_S, index, side="right"))

    def aspect(self, index: int) -> float | None:
        """Width / height of the original of a canvas; None where the image is whole."""
        aspect = float(self.aspect_N[index])
        return None if np.isnan(aspect) else aspect


def open_table(
    name: str, found: Mapping[str, tuple[int, str]], cache: Path, column: str | None = None
) -> SampleTable:
    """The table of shards, made where there is none of them as they are.

    Args:
        name: What the user calls the set.
        found: Size and state of each shard, by its URL.
        cache: Folder where tables are kept.
        column: The column of images that the user names.
    """
    file, state = _file(name, cache), _state(found)
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    with locked(file.with_suffix(".lock")):
        table = _read(file, state, found)
        if table is None:
            with Threads(READERS) as pool:
                look = functools.partial(_look_through, column=column)
                looked = pool.map(look, found, _prefixes(list(found)))
                title = f"looking through {name}"
                parts = list(track(looked, title, len(found), "shards"))
            refuse_empty(name, len(parts), sum(map(len, parts)))
            keep_table(name, found, cache, _joined(parts))
            table = _read(file, state, found)
    assert table is not None, file
    return table


def keep_table(
    name: str, found: Mapping[str, tuple[int, str]], cache: Path, table: SampleTable
) -> None:
    """Write a table where `open_table` finds it, whose arguments the others are."""
    arrays = {field: of for field, of in vars(table).items() if isinstance(of, np.ndarray)}
    arrays |= {"names": table.names.text, "ends": table.names.end_N}
    tensors = {field: torch.from_numpy(of) for field, of in arrays.items()}
    described = {"state": _state(found), "classes": list(table.classes)}
    write_tensors(_file(name, cache), tensors, described)


def _file(name: str, cache: Path) -> Path:
    return cache / f"{named_after(name)}.samples.safetensors"


def _state(found: Mapping[str, tuple[int, str]]) -> str:
    """A hash of shards as they are, and of how a table is made."""
    described = json.dumps([VERSION, readers(), sorted(found.items())])
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()


def _read(file: Path, state: str, found: Mapping[str, tuple[int, str]]) -> SampleTable | None:
    """The table of shards as they are; None where there is none."""
    if not file.is_file():
        return None
    try:
        tensors, header = read_tensors(file, "it is made anew")
        if read_metadata(header).get("state") != state:
            return None
        arrays: dict[str, Any] = {key: tensor.numpy() for key, tensor in tensors.items()}
        names = Names(arrays.pop("names"), arrays.pop("ends"))
        classes = tuple(map(str, read_metadata(header)["classes"]))
        table = SampleTable(**arrays, names=names, classes=classes)
        _check(table, found)
    except UserError as error:
        _log.warning("%s", error)
        return None
    except (KeyError, TypeError, ValueError) as error:
        _log.warning("%s is damaged (%s): it is made anew", file, error)
        return None
    return table


def _check(table: SampleTable, found: Mapping[str, tuple[int, str]]) -> None:
    """Look whether arrays fit each other and the shards, a shard at a time."""
    count, text = len(table), len(table.names.text)
    for name, array, dtype, length in (
        ("count_S", table.count_S, np.int64, len(found)), ("at_N", table.at_N, np.int64, count),
        ("size_N", table.size_N, np.int64, count), ("label_N", table.label_N, np.int64, count),
        ("aspect_N", table.aspect_N, np.float32, count),
        ("names", table.names.text, np.uint8, text), ("ends", table.names.end_N, np.int64, count),
    ):  # fmt: skip
        if array.dtype != dtype or array.shape != (length,):
            raise ValueError(f"{name} is {array.dtype} {array.shape}: expected {(length,)}")
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


def _joined(parts: Sequence[SampleTable]) -> SampleTable:
    """The table of all shards; names of classes are sorted unless all shards agree."""
    known = list(dict.fromkeys(part.classes for part in parts if part.classes))
    classes = (
        known[0] if len(known) == 1 else tuple(sorted({of for names in known for of in names}))
    )
    number = {name: label_of(name) for name in classes}
    if all(name == str(of) for name, of in number.items()):  # then these are the labels
        classes = ()
    else:
        number = {name: at for at, name in enumerate(classes)}
    labels = []
    for part in parts:
        # behind the others, for what has no label
        own_C = np.array([*(number[name] for name in part.classes), UNLABELLED], np.int64)
        labels.append(own_C[part.label_N] if part.classes else part.label_N)
    return SampleTable(
        np.concatenate([part.count_S for part in parts]),
        np.concatenate([part.at_N for part in parts]),
        np.concatenate([part.size_N for part in parts]),
        np.concatenate(labels),
        np.concatenate([part.aspect_N for part in parts]),
        Names.joined([part.names for part in parts]),
        classes,
    )


def _prefixes(urls: list[str]) -> list[str]:
    """What names of each shard begin with: its folder, where shards are in several."""
    folders = [url.split("/")[:-1] for url in urls]
    levels = zip(*folders, strict=False)
    common = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    return ["".join(f"{part}/" for part in folder[common:]) for folder in folders]


def _look_through(url: str, prefix: str, column: str | None) -> SampleTable:
    with naming_shard(url), opened(url) as file:
        if url.endswith(".parquet"):
            return _of_parquet(file, url, prefix, column)
        return _of_tar(file, url, prefix)


def _of_tar(file: IO[bytes], url: str, prefix: str) -> SampleTable:
    shard = PurePosixPath(url).stem
    places, labels, aspects, names = [], [], [], []
    for key, image, parts in tar_samples(file, url, ("cls", "json")):
        content = {ending: part.content for ending, part in parts.items()}
        aspect, name = None, None
        if image.startswith(CANVAS):
            aspect, name = aspect_of(content.get("json")), _original(content.get("json"))
        places.append((parts[image].at, parts[image].size))
        labels.append(label_of(content.get("cls")))
        aspects.append(np.nan if aspect is None else aspect)
        names.append(prefix + (f"{shard}/{key}" if name is None else name))
    at_N, size_N = np.array(places, np.int64).reshape(-1, 2).T.copy()
    return SampleTable(
        np.array([len(names)]), at_N, size_N, np.array(labels, np.int64),
        np.array(aspects, np.float32), Names.of(names),
    )  # fmt: skip


def _original(known: bytes | None) -> str | None:
    """The name that `mast shard` kept."""
    try:
        name = json.loads(known or b"")["name"]
        return name if isinstance(name, str) and name.encode("utf-8", "surrogateescape") else None
    except (KeyError, TypeError, ValueError):  # of what cannot be encoded, too
        return None


def _of_parquet(file: IO[bytes], url: str, prefix: str, column: str | None) -> SampleTable:
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
    return SampleTable(
        np.array([count]), np.arange(count), np.zeros(count, np.int64), label_N,
        np.full(count, np.nan, np.float32),
        Names.of(f"{prefix}{stem}/{row}" for row in range(count)), classes,
    )  # fmt: skip
