"""Where each image of a set of shards lies, in arrays of a mapped file.

Made once, by a look at the header of every file of every tar; a hundred million samples take six
gigabytes, of which only what is looked up comes into memory.

Legend: S shards, N samples.
"""

import functools
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, final

import numpy as np
import torch

from mast.core.display import track
from mast.core.errors import UserError
from mast.core.files import locked
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.core.threads import Threads
from mast.data.cache import named_after
from mast.data.labels import numbered
from mast.data.manifest import Names
from mast.data.shards.index import refuse_empty
from mast.data.shards.shard import (
    READERS,
    aspect_of,
    classes_of,
    label_of,
    open_parquet,
    opened,
    rows_of,
    telling,
)
from mast.data.shards.tar import CANVAS, tar_samples
from mast.data.source import UNLABELLED

VERSION = 2
_LABELS = 1024  # that are read of a Parquet file at a time
_log = logging.getLogger("mast")


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
        found: Size and state of each shard, by where it is.
        cache: Folder where tables are kept.
        column: The column of images that the user names.

    Raises:
        UserError: A shard cannot be read, no image is in any, or the table cannot be kept.
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
            table = _read(file, state, found)
    assert table is not None, file
    return table


def keep_table(name: str, found: Mapping[str, tuple[int, str]], cache: Path, table: Table) -> None:
    """Write a table where `open_table` finds it, whose arguments the others are.

    Raises:
        UserError: It cannot be kept.
    """
    arrays = {field: of for field, of in vars(table).items() if isinstance(of, np.ndarray)}
    arrays |= {"names": table.names.text, "ends": table.names.end_N}
    tensors = {field: torch.from_numpy(of) for field, of in arrays.items()}
    described = {"state": _state(found), "classes": list(table.classes)}
    write_tensors(_file(name, cache), tensors, described)


def _file(name: str, cache: Path) -> Path:
    return cache / f"{named_after(name)}.samples.safetensors"


def _state(found: Mapping[str, tuple[int, str]]) -> str:
    """A hash of shards as they are, and of how a table is made."""
    described = json.dumps([VERSION, sorted(found.items())])
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()


def _read(file: Path, state: str, found: Mapping[str, tuple[int, str]]) -> Table | None:
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
        _check(table, found)
    except UserError as error:
        _log.warning("%s", error)
        return None
    except (KeyError, TypeError, ValueError) as error:
        _log.warning("%s is damaged (%s): it is made anew", file, error)
        return None
    return table


def _check(table: Table, found: Mapping[str, tuple[int, str]]) -> None:
    """Look whether arrays fit each other and the shards, a shard at a time.

    Raises:
        ValueError: They do not.
    """
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
    """Labels of all shards, and names of their classes, sorted unless all shards agree.

    Where all names are numbers, these are the labels.
    """
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
