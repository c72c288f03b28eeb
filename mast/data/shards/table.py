"""Where each sample is: a tar is a folder with offsets, scanned once.

The table is cached as arrays of a mapped file, six gigabytes for a hundred million samples.

Legend: S shards, N samples.
"""

import hashlib
import json
import logging
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import final

import numpy as np
import torch

from mast.core.display import track
from mast.core.errors import UserError
from mast.core.files import locked
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.core.threads import Threads
from mast.data.cache import named_after
from mast.data.formats import extensions, readers
from mast.data.shards.sample import label_of
from mast.data.shards.shard import Shard
from mast.data.shards.store import READERS

VERSION = 3
_log = logging.getLogger("mast")


@final
@dataclass(frozen=True, eq=False)
class SampleTable:
    """Every sample of a set of shards.

    Attributes:
        count_S: int64, samples of each shard.
        at_N: int64, first byte in a tar, or row in a Parquet file.
        size_N: int64, bytes; 0 in a Parquet file.
        label_N: int64, number of the class; -1 where there is none.
        aspect_N: float32, width / height of the original of a canvas; NaN of a whole image.
        end_N: int64, where the name of each ends in `names`.
        names: uint8, of the originals where `mast shard` wrote the shards, else shard and key.
    """

    count_S: np.ndarray
    at_N: np.ndarray
    size_N: np.ndarray
    label_N: np.ndarray
    aspect_N: np.ndarray
    end_N: np.ndarray
    names: np.ndarray

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

    def name(self, index: int) -> str:
        """What an image is called."""
        first = self.end_N[index - 1] if index else 0
        return self.names[first : self.end_N[index]].tobytes().decode("utf-8", "surrogateescape")


def open_table(
    name: str, found: Mapping[str, tuple[int, str]], cache: Path, column: str | None = None
) -> SampleTable:
    """The cached table of shards, or a new one if there is none or they changed.

    Args:
        name: What the user calls the set.
        found: Size and state of each shard, by its URL.
        cache: Folder of tables; processes that share it scan once.
        column: The column of images that the user names.
    """
    file = _file(name, cache)
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    with locked(file.with_suffix(".lock")):
        if (table := _read(file, _state(found))) is not None:
            return table
        common = posixpath.commonpath([posixpath.dirname(url) for url in found])
        shards = [Shard(url, 0, size, column) for url, (size, _) in found.items()]
        with Threads(READERS) as pool:
            scanned = pool.map(partial(_scan, common=common), shards)
            parts = list(track(scanned, f"scanning {name}", len(found), "shards"))
        table = _joined(parts)
        if not len(table):
            raise UserError(
                f"{name} has no image: {len(parts)} shards were searched for files that end "
                f"in {', '.join(extensions())}"
            )
        try:
            keep_table(name, found, cache, table)
        except (OSError, UserError) as error:
            _log.warning("the table of samples cannot be cached: %s", error)
        return table


def keep_table(
    name: str, found: Mapping[str, tuple[int, str]], cache: Path, table: SampleTable
) -> None:
    """Write a table where `open_table` finds it, whose arguments the others are."""
    tensors = {
        field: torch.from_numpy(of)
        for field, of in vars(table).items()
        if isinstance(of, np.ndarray) and field in SampleTable.__dataclass_fields__
    }
    write_tensors(_file(name, cache), tensors, {"state": _state(found)})


def _file(name: str, cache: Path) -> Path:
    return cache / f"{named_after(name)}.samples.safetensors"


def _state(found: Mapping[str, tuple[int, str]]) -> str:
    """A hash of shards as they are, and of how a table is made."""
    described = json.dumps([VERSION, readers(), sorted(found.items())])
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()


def _read(file: Path, state: str) -> SampleTable | None:
    """The table of shards as they are; None where there is none."""
    if not file.is_file():
        return None
    try:
        tensors, header = read_tensors(file, "it is rebuilt")
    except UserError as error:
        _log.warning("%s", error)
        return None
    if read_metadata(header).get("state") != state:
        return None
    return SampleTable(**{name: tensor.numpy() for name, tensor in tensors.items()})


def _scan(shard: Shard, common: str) -> SampleTable:
    """The table of one shard, with names relative to the common folder of all shards."""
    places, labels, aspects, names = [], [], [], list[bytes]()
    folder = posixpath.relpath(posixpath.dirname(shard.url), common)
    for sample in shard.every_sample(images=False):
        places.append((sample.at, sample.size))
        labels.append(label_of(sample.label))
        aspects.append(np.nan if sample.aspect is None else sample.aspect)
        name = posixpath.join("" if folder == "." else folder, sample.name or sample.key)
        names.append(name.encode("utf-8", "surrogateescape"))
    at_N, size_N = np.array(places, np.int64).reshape(-1, 2).T.copy()
    return SampleTable(
        np.array([len(names)]), at_N, size_N, np.array(labels, np.int64),
        np.array(aspects, np.float32),
        np.cumsum([len(name) for name in names], dtype=np.int64),
        np.frombuffer(b"".join(names), np.uint8),
    )  # fmt: skip


def _joined(parts: Sequence[SampleTable]) -> SampleTable:
    """The table of all shards."""
    arrays = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(SampleTable)
    }
    length_P = np.array([len(part.names) for part in parts])
    arrays["end_N"] += np.repeat(length_P.cumsum() - length_P, [len(part) for part in parts])
    return SampleTable(**arrays)
