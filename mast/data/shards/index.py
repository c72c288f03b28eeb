"""Which shards there are, and how many samples each has.

`index.json` next to the shards has the counts, in the format of WebDataset's wids; without it the
shards are scanned once.

Legend: S shards.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, final

import numpy as np

from mast.core.display import doing
from mast.core.errors import UserError
from mast.core.files import parse_json
from mast.data.shards.shard import Shard, miscounted
from mast.data.shards.store import ENDINGS, answered, find_shards, naming, reason_of
from mast.data.shards.table import SampleTable, open_table
from mast.data.source import SHARDS, split_column, unique_names

INDEX = "index.json"
TASK = "class"  # what the labels of shards are of
KIND = "wids-shard-index-v1"
_log = logging.getLogger("mast")


@final
@dataclass(frozen=True, eq=False)
class ShardIndex:
    """The shards of a set.

    Args:
        name: What the user called it.
        shards: In the order of their names.
        classes: Names of the classes; empty where there are no labels, or no names.
        version: From `index.json`; it changes when shards are written from other images.
        table: Where each sample is, if the shards were scanned.
    """

    name: str
    shards: tuple[Shard, ...]
    classes: tuple[str, ...] = ()
    version: str = ""
    table: SampleTable | None = None

    @cached_property
    def count_S(self) -> np.ndarray:
        """Samples of each shard, (S,) int64."""
        return np.array([shard.count for shard in self.shards], np.int64)

    def __len__(self) -> int:
        return int(self.count_S.sum())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of file names, sizes, counts and version, which stays if the set is moved.

        An edit that preserves the size of a shard goes unnoticed.
        """
        digest = hashlib.blake2b(self.version.encode(), digest_size=16)
        for shard in self.shards:
            line = f"{PurePosixPath(shard.url).name} {shard.size} {shard.count}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def open_index(spec: str, cache: Path, scan: bool = False) -> ShardIndex:
    """Find and count the shards of a name.

    Args:
        spec: `shards:` and a folder, a pattern with `*` or `{000..099}`, or one file; of this
            machine, or of a store that fsspec knows, such as `s3://bucket/train`.
        cache: Folder of the sample table; processes that share it scan once.
        scan: Scan the shards even if `index.json` has all counts.
    """
    whole, column = split_column(spec)
    pattern = whole.removeprefix(SHARDS)
    with doing(f"looking for the shards of {pattern}"):
        found = find_shards(pattern)
        known, classes, version = _read_index(next(iter(found)))
    away = [url for url in known if url not in found]
    if away and not pattern.endswith(ENDINGS) and not set("*?{") & set(pattern):
        _log.warning("%s: %d shards that its %s lists are missing, such as %s",
                     spec, len(away), INDEX, away[0])  # fmt: skip
    trusted = [known.get(url, (None, None)) for url in found]
    expected = [
        count if of_size in (None, size) else None
        for (count, of_size), (size, _) in zip(trusted, found.values(), strict=True)
    ]
    table, counts = None, expected
    if scan or not all(expected):  # a shard with an expected count of 0 is scanned, too
        table = open_table(spec, found, cache, column)
        counts = table.count_S.tolist()
    shards = list[Shard]()
    for url, wanted, count in zip(found, expected, counts, strict=True):
        if count is None or wanted not in (None, count):
            raise miscounted(url, wanted)
        shards.append(Shard(url, count, found[url][0], column, found[url][1]))
    return ShardIndex(spec, tuple(shards), classes, version, table)


def _read_index(shard: str) -> tuple[dict[str, tuple[int, int | None]], tuple[str, ...], str]:
    """Counts and sizes by URL, class names and version from the index next to a shard."""
    from fsspec.core import url_to_fs

    folder = shard[: shard.rfind("/") + 1]
    url = f"{folder}{INDEX}"
    with naming(f"{url} cannot be read"):
        system, path = url_to_fs(url)
        try:
            text = answered(url, lambda: system.cat_file(path))
        except FileNotFoundError:
            return {}, (), ""
    try:
        index = parse_json(text)
        counts = {
            folder + of["url"]: (_number(of["nsamples"]), of.get("filesize"))
            for of in index["shardlist"]
        }
        classes = index.get("classes", [])
        if not all(isinstance(name, str) for name in classes) or isinstance(classes, str):
            raise ValueError("classes is no list of names")
        return counts, unique_names(classes), json.dumps(index.get("version", ""))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{url} is not an index of shards ({type(error).__name__}: {reason_of(error):.200}): "
            "correct or remove it"
        ) from error


def _number(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(f"expected a whole number as nsamples, got {value!r:.40}")
    return value


def check_named(spec: str, label: int, classes: Sequence[str]) -> None:
    """Checks that the index has a name for the number of a class."""
    if label >= len(classes):
        raise UserError(
            f"{spec} has images of class {label}, counted from 0, and its index.json names "
            f"{len(classes)} classes: name them all, or none"
        )
