"""Which shards there are, and how many samples each has.

Shards are counted once: by an index beside them (`index.json`, in the form that WebDataset's wids
has), by what was counted before, which the cache keeps as long as a file's size and time stay, or
by reading the names in a tar and the footer of a Parquet file.
"""

import hashlib
import json
import logging
import os
import re
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, final

import numpy as np

from mast.core.checkpoint import write_json
from mast.core.display import doing, track
from mast.core.errors import UserError
from mast.core.files import named
from mast.data.shards.shard import (
    Shard,
    image_of,
    is_local,
    open_once,
    open_parquet,
    opened,
    reason_of,
)
from mast.data.sources import SHARDS

ENDINGS = (".tar", ".parquet")
INDEX = "index.json"
KIND = "wids-shard-index-v1"
_READERS = 32  # shards that are looked at at a time: a store answers many
_log = logging.getLogger("mast")


@final
@dataclass(frozen=True)
class ShardIndex:
    """The shards of a set.

    Args:
        name: What the user called it.
        shards: In the order of their names.
        classes: Names of the classes; empty where there are no labels, or no names.
    """

    name: str
    shards: tuple[Shard, ...]
    classes: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> np.ndarray:
        """Samples of each shard, (S,) int64."""
        return np.array([shard.count for shard in self.shards], np.int64)

    def __len__(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names, sizes and counts: of where shards are only what is behind the folder."""
        digest = hashlib.blake2b(digest_size=16)
        for shard in self.shards:
            digest.update(f"{PurePosixPath(shard.url).name} {shard.size} {shard.count}\n".encode())
        return digest.hexdigest()


def open_index(spec: str, cache: Path, workers: int = _READERS) -> ShardIndex:
    """Find and count the shards of a name.

    Args:
        spec: `shards:` and a folder, a pattern with `*` or `{000..099}`, or one file; of this
            machine, or of a store that fsspec knows, such as `s3://bucket/train`.
        cache: Folder where counts are kept.
        workers: Shards that are counted at a time.

    Raises:
        UserError: There is none, or one cannot be read.
    """
    pattern = spec.removeprefix(SHARDS)
    with doing(f"looking for the shards of {pattern}"):
        found = _find(pattern)
        beside, classes = _beside(found)
    key = hashlib.blake2b(spec.encode(), digest_size=8).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9]+", "-", pattern)[-40:].strip("-")
    file = cache / f"{readable}-{key}.shards.json"
    counted = _read_counts(file)
    known = {
        url: counted[url][1]
        for url, (_, state) in found.items()
        if url in counted and counted[url][0] == state
    }
    known |= {
        url: beside[url][0]
        for url, (size, _) in found.items()
        if url in beside and beside[url][1] in (size, None)
    }
    missing = [url for url in found if url not in known]
    with ThreadPoolExecutor(workers) as pool:
        counts = pool.map(_count, missing)
        for url, count in zip(
            missing, track(counts, f"counting {pattern}", len(missing), "shards"), strict=True
        ):
            known[url] = count
    if missing:
        _write_counts(file, {url: (state, known[url]) for url, (_, state) in found.items()})
    shards = tuple(
        Shard(url, known[url], size, state) for url, (size, state) in sorted(found.items())
    )
    index = ShardIndex(spec, shards, classes)
    if len(index) == 0:
        raise UserError(f"{spec} has {len(shards)} shards, and no image in them")
    return index


def _find(pattern: str) -> dict[str, tuple[int, str]]:
    """Size and state of each shard, by where it is.

    Raises:
        UserError: There is none, or its store does not answer.
    """
    import fsspec
    from braceexpand import braceexpand
    from fsspec.core import has_magic

    place = str(named(pattern)) if is_local(pattern) else pattern
    try:
        places = list(braceexpand(place))
        system, first = fsspec.core.url_to_fs(places[0])
        if len(places) > 1 or not has_magic(first):
            paths = [system._strip_protocol(each) for each in places]
            details = _details(system, paths)
        else:
            details = system.glob(first, detail=True)
    except (ValueError, ImportError) as error:
        raise UserError(f"shards:{pattern} cannot be opened: {error}") from error
    except Exception as error:  # each kind of store raises its own
        raise UserError(f"shards:{pattern} cannot be found: {reason_of(error)}") from error
    found = {
        str(system.unstrip_protocol(path) if not is_local(pattern) else path): (
            int(of["size"]),
            _state(of),
        )
        for path, of in details.items()
        if path.endswith(ENDINGS) and of["type"] == "file"
    }
    if not found:
        raise UserError(
            f"shards:{pattern} names no shard: expected files that end in {' or '.join(ENDINGS)}, "
            "a folder of them, or a pattern such as train-*.tar or train-{000..099}.tar"
        )
    return found


def _details(system: Any, paths: list[str]) -> dict[str, dict[str, Any]]:
    """What a store says of files, those in folders among them."""
    if len(paths) == 1 and system.isdir(paths[0]):
        return {of["name"]: of for of in system.ls(paths[0], detail=True)}
    with ThreadPoolExecutor(_READERS) as pool:
        return dict(zip(paths, pool.map(system.info, paths), strict=True))


def _state(details: Mapping[str, Any]) -> str:
    """What changes when a file does, as its store says it."""
    known = ("mtime", "ETag", "etag", "LastModified", "last_modified", "updated")
    return " ".join([str(details["size"]), *(str(details[key]) for key in known if key in details)])


def _beside(found: Mapping[str, Any]) -> tuple[dict[str, tuple[int, int | None]], tuple[str, ...]]:
    """Counts and sizes by an index beside the shards, and names of classes; empty without one."""
    folder = next(iter(found)).rpartition("/")[0]
    try:
        with open_once(f"{folder}/{INDEX}") as file:
            index = json.load(file)
        counts = {
            f"{folder}/{of['url']}": (int(of["nsamples"]), of.get("filesize"))
            for of in index["shardlist"]
        }
        return counts, tuple(map(str, index.get("classes", ())))
    except Exception:  # none there, or of another kind: shards are counted
        return {}, ()


def _count(url: str) -> int:
    """Count the samples of a shard.

    Raises:
        UserError: It cannot be read.
    """
    try:
        with opened(url) as file:
            if url.endswith(".parquet"):
                return int(open_parquet(file, url)[0].metadata.num_rows)
            # what is far is streamed: a request for every name would take longer
            with tarfile.open(fileobj=file, mode="r:" if is_local(url) else "r|") as tar:
                return _samples(tar)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"the shard {url} cannot be read: {reason_of(error)}") from error


def _samples(tar: tarfile.TarFile) -> int:
    """Samples with an image, as WebDataset groups files."""
    from webdataset.tariterators import base_plus_ext

    names = []
    for member in tar:
        if member.isreg():
            names.append(base_plus_ext(member.name))
        tar.members = []  # type: ignore[attr-defined]  # they would be kept
    count = 0
    for key, parts in groupby(names, lambda name: name[0]):
        endings = {ending.lower() for _, ending in parts if ending}
        count += key is not None and image_of(endings) is not None
    return count


def _read_counts(file: Path) -> dict[str, tuple[str, int]]:
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
        if written["digest"] != _digest(written["counts"]):
            raise ValueError("it changed since it was written")
        return {url: (str(state), int(count)) for url, (state, count) in written["counts"].items()}
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
    except OSError as error:
        _log.warning("counts of shards are not kept: %s", error)


def _digest(counts: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(counts, sort_keys=True).encode(), digest_size=16).hexdigest()
