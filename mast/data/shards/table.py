"""The position of each sample in the shards, found by scanning each tar once.

The table is cached as a mapped file, six gigabytes for a hundred million samples. `mast shard`
writes it next to the shards, which then need no scan.

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
from mast.data.formats import extensions
from mast.data.shards.store import READERS, is_local, naming, open_shard, read_beside
from mast.data.shards.tar import tar_samples

VERSION = 4
TABLE = "samples.safetensors"  # next to the shards
Found = Mapping[str, tuple[int, str]]  # size and state of each shard, by its URL
_log = logging.getLogger("mast")


@final
@dataclass(frozen=True, eq=False)
class SampleTable:
    """Every sample of a set of shards.

    Attributes:
        count_S: int64, number of samples of each shard.
        at_N: int64, first byte in its tar.
        size_N: int64, bytes.
        label_N: int64, class number; -1 without one.
        aspect_N: float32, width / height of a canvas's original; NaN for a whole image.
        end_N: int64, end of each name in `names`.
        names: uint8, names of originals if `mast shard` wrote the shards, else shard and key.
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

    def name(self, index: int) -> str:
        """The name of an image."""
        first = self.end_N[index - 1] if index else 0
        return self.names[first : self.end_N[index]].tobytes().decode("utf-8", "surrogateescape")


def open_table(name: str, found: Found, cache: Path) -> SampleTable:
    """The table next to the shards or in the cache; scans the shards if missing or outdated.

    Args:
        name: The user's name of the set.
        found: The shards.
        cache: Folder of tables; processes that share it scan once.
    """
    file = cache / f"{named_after(name)}.samples.safetensors"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    with locked(file.with_suffix(".lock")):
        if (table := _read(file, found, moved=False) or _written(file, found)) is not None:
            return table
        common = posixpath.commonpath([posixpath.dirname(url) for url in found])
        with Threads(READERS) as pool:
            sizes = (size for size, _ in found.values())
            parts = pool.map(partial(scan_shard, common=common), found, sizes)
            table = join([*track(parts, f"scanning {name}", len(found), "shards")])
        if not len(table):
            raise UserError(
                f"{name}: expected images in {len(found)} shards, with names ending "
                f"in {', '.join(extensions())}, got none"
            )
        try:
            write_tensors(file, _tensors(table), {"state": _state(found, moved=False)})
        except (OSError, UserError) as error:
            _log.warning("the table of samples cannot be cached: %s", error)
        return table


def write_table(folder: Path, found: Found, table: SampleTable) -> None:
    """Write the table of all shards of a folder next to them."""
    write_tensors(folder / TABLE, _tensors(table), {"state": _state(found, moved=True)})


def _tensors(table: SampleTable) -> dict[str, torch.Tensor]:
    return {of.name: torch.from_numpy(getattr(table, of.name)) for of in fields(table)}


def _state(found: Found, moved: bool) -> str:
    """A hash of the shards, or only of their names and sizes, which do not change if moved."""
    shards = sorted(
        (posixpath.basename(url), size, "") if moved else (url, size, state)
        for url, (size, state) in found.items()
    )
    described = json.dumps([VERSION, "" if moved else extensions(), shards])
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()


def _read(file: Path, found: Found, moved: bool) -> SampleTable | None:
    """The stored table of the current shards; None if missing, damaged or outdated."""
    if not file.is_file():
        return None
    try:
        tensors, header = read_tensors(file, "it is rebuilt")
        if read_metadata(header).get("state") != _state(found, moved):
            return None
    except UserError as error:
        _log.warning("%s", error)
        return None
    return SampleTable(**{name: tensor.numpy() for name, tensor in tensors.items()})


def _written(file: Path, found: Found) -> SampleTable | None:
    """The table next to the shards, downloaded to a file; None if missing."""
    shard = next(iter(found))
    if is_local(shard):
        return _read(Path(shard).parent / TABLE, found, moved=True)
    with suppress(OSError, UserError):  # then the shards are scanned
        if content := read_beside(shard, TABLE):
            file.write_bytes(content)
    return _read(file, found, moved=True)


def scan_shard(url: str, size: int, common: str) -> SampleTable:
    """The table of one shard, with names relative to the common folder of all shards."""
    with naming(f"the shard {url} cannot be read"), open_shard(url, size) as file:
        samples = [*tar_samples(file, url)]
    folder = posixpath.relpath(posixpath.dirname(url), common)
    folder = "" if folder == "." else folder
    names = [posixpath.join(folder, of.name).encode("utf-8", "surrogateescape") for of in samples]
    return SampleTable(
        np.array([len(samples)]),
        np.array([of.at for of in samples], np.int64),
        np.array([of.size for of in samples], np.int64),
        np.array([of.label for of in samples], np.int64),
        np.array([of.aspect for of in samples], np.float32),
        np.cumsum([len(name) for name in names], dtype=np.int64),
        np.frombuffer(b"".join(names), np.uint8),
    )


def join(parts: Sequence[SampleTable]) -> SampleTable:
    """The table of all shards."""
    arrays = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(SampleTable)
    }
    length_P = np.array([len(part.names) for part in parts])
    arrays["end_N"] += np.repeat(length_P.cumsum() - length_P, [len(part) for part in parts])
    return SampleTable(**arrays)
