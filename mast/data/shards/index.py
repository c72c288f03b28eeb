"""Which shards there are, and how many samples each has.

An index beside the shards (`index.json`, in the form that WebDataset's wids has) says how many;
else they are looked through once.

Legend: S shards.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, final

import numpy as np

from mast.core.display import doing
from mast.core.errors import UserError
from mast.core.files import parse_json
from mast.data.shards.shard import Shard
from mast.data.shards.store import answered, find_shards, naming_shard, reason_of
from mast.data.shards.table import open_table
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
        version: What the index beside them says that they were made of.
    """

    name: str
    shards: tuple[Shard, ...]
    classes: tuple[str, ...] = ()
    version: str = ""

    @cached_property
    def count_S(self) -> np.ndarray:
        """Samples of each shard, (S,) int64."""
        return np.array([shard.count for shard in self.shards], np.int64)

    def __len__(self) -> int:
        return int(self.count_S.sum())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names, sizes, counts and version; of where shards are only their names count.

        What is edited in place, and keeps its size, is not noticed.
        """
        digest = hashlib.blake2b(self.version.encode(), digest_size=16)
        for shard in self.shards:
            said = f"{PurePosixPath(shard.url).name} {shard.size} {shard.count}\n"
            digest.update(said.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


class FoundShards(NamedTuple):
    """Shards, and what the index beside them says.

    Attributes:
        files: Size and state of each, by its URL; in the order of their names.
        counts: Samples and size, perhaps, of each that the index names.
        classes: Names of the classes.
        version: What they were made of.
        column: The column of images that the user names.
    """

    files: dict[str, tuple[int, str]]
    counts: dict[str, tuple[int, int | None]]
    classes: tuple[str, ...]
    version: str
    column: str | None

    def indexed(self, spec: str, count_S: Sequence[int] | None = None) -> ShardIndex | None:
        """The index, by counts or by what `index.json` says; None where it does not say all."""
        shards = list[Shard]()
        for at, (url, (size, _)) in enumerate(self.files.items()):
            said, of_size = self.counts.get(url, (0, None))
            shard = Shard(url, said, size, self.column)
            trusted = url in self.counts and of_size in (size, None)
            if count_S is not None:
                if trusted and count_S[at] != said:
                    raise shard.miscounted("more" if count_S[at] > said else "fewer")
                shard = replace(shard, count=int(count_S[at]))
            elif not (trusted and said):  # an empty one is looked at
                return None
            shards.append(shard)
        return ShardIndex(spec, tuple(shards), self.classes, self.version)


def open_index(spec: str, cache: Path) -> ShardIndex:
    """Find and count the shards of a name.

    Args:
        spec: `shards:` and a folder, a pattern with `*` or `{000..099}`, or one file; of this
            machine, or of a store that fsspec knows, such as `s3://bucket/train`.
        cache: Folder where counts are kept; processes that share it count once.
    """
    found = look_for(spec)
    if (index := found.indexed(spec)) is None:
        table = open_table(spec, found.files, cache, found.column)
        index = found.indexed(spec, table.count_S.tolist())
    assert index is not None, spec
    return index


def look_for(spec: str) -> FoundShards:
    """Find the shards of a name; arguments and errors as of `open_index`."""
    whole, column = split_column(spec)
    pattern = whole.removeprefix(SHARDS)
    with doing(f"looking for the shards of {pattern}"):
        files = find_shards(pattern)
        found = FoundShards(files, *_beside(next(iter(files))), column)
    away = [url for url in found.counts if url not in files]
    if away and not pattern.endswith((".tar", ".parquet")) and not set("*?{") & set(pattern):
        _log.warning("%s: %d shards that its %s names are not there, such as %s",
                     spec, len(away), INDEX, away[0])  # fmt: skip
    return found


def _beside(shard: str) -> tuple[dict[str, tuple[int, int | None]], tuple[str, ...], str]:
    """What the index beside shards has: counts and sizes, names of classes, and its version."""
    from fsspec.core import url_to_fs

    folder = shard[: shard.rfind("/") + 1]
    url = f"{folder}{INDEX}"
    with naming_shard(url):
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
            f"{url} is no index of shards ({type(error).__name__}: {reason_of(error):.200}): mend "
            "or remove it"
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
