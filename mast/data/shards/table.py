"""Where each image of a set of shards lies, in arrays of a mapped file.

Made once, by a look at the header of every file of every tar; a hundred million samples take six
gigabytes, of which only what is looked up comes into memory.

Legend: S shards, N samples.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, final

import numpy as np
import torch

from mast.core.display import track
from mast.core.errors import UserError
from mast.core.locks import locked
from mast.core.tensors import read_tensors, said_of, write_tensors
from mast.data.cache import named_after
from mast.data.names import Names
from mast.data.shards.scan import READERS, tar_samples, telling
from mast.data.shards.shard import CANVAS, aspect_of, label_of, open_parquet, opened

VERSION = 1
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
    """

    count_S: np.ndarray
    at_N: np.ndarray
    size_N: np.ndarray
    label_N: np.ndarray
    aspect_N: np.ndarray
    names: Names

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


def open_table(name: str, found: Mapping[str, tuple[int, str]], cache: Path) -> Table:
    """The table of shards, made where there is none of them as they are.

    Args:
        name: What the user calls the set.
        found: Size and state of each shard, by where it is.
        cache: Folder where tables are kept.

    Raises:
        UserError: A shard cannot be read, or the table cannot be kept.
    """
    file, state = _file(name, cache), _state(found)
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    with locked(file.with_suffix(".lock")):
        table = _read(file, state)
        if table is None:
            with ThreadPoolExecutor(READERS) as pool:
                looked = pool.map(_look_through, found, _prefixes(list(found)))
                title = f"looking through {name}"
                parts = list(track(looked, title, len(found), "shards"))
            whole = Table(
                np.array([len(part.at_N) for part in parts]),
                np.concatenate([part.at_N for part in parts]),
                np.concatenate([part.size_N for part in parts]),
                np.concatenate([part.label_N for part in parts]),
                np.concatenate([part.aspect_N for part in parts]),
                Names.joined([part.names for part in parts]),
            )
            keep_table(name, found, cache, whole)
            table = _read(file, state)
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
    write_tensors(_file(name, cache), tensors, {"state": _state(found)})


def _file(name: str, cache: Path) -> Path:
    return cache / f"{named_after(name)}.samples.safetensors"


def _state(found: Mapping[str, tuple[int, str]]) -> str:
    """A hash of shards as they are, and of how a table is made."""
    described = json.dumps([VERSION, sorted(found.items())])
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()


def _read(file: Path, state: str) -> Table | None:
    """What was kept of shards as they are; None where that is nothing."""
    if not file.is_file():
        return None
    try:
        tensors, header = read_tensors(file, "it is made anew")
        if said_of(header).get("state") != state:
            return None
        arrays: dict[str, Any] = {key: tensor.numpy() for key, tensor in tensors.items()}
        names = Names(arrays.pop("names"), arrays.pop("ends"))
        return Table(**arrays, names=names)
    except (UserError, KeyError, TypeError, ValueError) as error:
        _log.warning("%s", error)
        return None


class _Part(NamedTuple):
    """The table of one shard; fields as in `Table`."""

    at_N: np.ndarray
    size_N: np.ndarray
    label_N: np.ndarray
    aspect_N: np.ndarray
    names: Names


def _prefixes(urls: list[str]) -> list[str]:
    """What names of each shard begin with: its folder, where shards are in several."""
    folders = [url.split("/")[:-1] for url in urls]
    levels = zip(*folders, strict=False)
    common = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    return ["".join(f"{part}/" for part in folder[common:]) for folder in folders]


def _look_through(url: str, prefix: str) -> _Part:
    with telling(url):
        return _of_parquet(url, prefix) if url.endswith(".parquet") else _of_tar(url, prefix)


def _of_tar(url: str, prefix: str) -> _Part:
    shard = PurePosixPath(url).stem
    rows, names = [], []
    for key, image, parts in tar_samples(url, ("cls", "json")):
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


def _of_parquet(url: str, prefix: str) -> _Part:
    with opened(url) as file:
        parquet, _, label = open_parquet(file, url)
        count = parquet.metadata.num_rows
        label_N = np.full(count, -1, np.int64)
        if label is not None:
            written = parquet.read(columns=[label]).column(label).to_pylist()
            label_N[:] = [label_of(each) for each in written]
    stem = PurePosixPath(url).stem
    return _Part(
        np.arange(count), np.zeros(count, np.int64), label_N,
        np.full(count, np.nan, np.float32),
        Names.of(f"{prefix}{stem}/{row}" for row in range(count)),
    )  # fmt: skip
