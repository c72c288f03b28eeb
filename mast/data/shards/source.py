"""Images of shards, read one by one or in contiguous ranges."""

import glob
import hashlib
import io
import json
import logging
import os
import posixpath
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import final

import numpy as np

from mast.core.display import doing
from mast.core.errors import UserError, reason_of
from mast.core.files import named, parse_json
from mast.core.reading import Reading
from mast.core.threads import Threads
from mast.data.decode import Opened, naming, open_image, to_canvas
from mast.data.formats import Bands
from mast.data.shards import store
from mast.data.shards.table import open_table
from mast.data.source import (
    SHARDS,
    UNLABELLED,
    WHOLE,
    Look,
    SetDescription,
    Source,
    by_number,
    hash_labels,
    parts_among,
    unique_names,
)

INDEX = "index.json"
TASK = "class"  # of the labels
KIND = "wids-shard-index-v1"
_log = logging.getLogger("mast")


@final
class Shards(Source):
    """Images of shards, located by a table.

    `index.json` next to the shards, in WebDataset's wids format, has the class names and the
    number of samples of each shard, which is verified.

    Args:
        spec: `shards:` and a folder, a pattern with `*` or `{000..099}`, or one file; local or
            in any store of fsspec, such as `s3://bucket/train`.
        cache: Folder of the table; processes that share it scan once.
    """

    def __init__(self, spec: str, cache: Path) -> None:
        self.name = spec
        pattern = spec.removeprefix(SHARDS)
        with doing(f"looking for the shards of {pattern}"):
            found = store.find_shards(pattern)
            counts, classes, self._version = _read_index(next(iter(found)))
        away = [url for url in counts if url not in found]
        if away and not pattern.endswith(store.ENDING) and not set("*?{") & set(pattern):
            _log.warning("%s: %d shards in its %s are missing, such as %s",
                         spec, len(away), INDEX, away[0])  # fmt: skip
        self._shards, self._urls = found, [*found]
        self.table = open_table(spec, found, cache)
        for url, count in zip(found, self.table.count_S.tolist(), strict=True):
            if counts.get(url, count) != count:
                raise UserError(
                    f"the shard {url}: expected {counts[url]} samples, as in {INDEX}, got {count}; "
                    f"restore the shard, or correct {INDEX}"
                )
        label_N = self.table.label_N
        if not classes:
            label_N, classes = by_number(label_N)
        elif (highest := int(label_N.max())) >= len(classes):
            raise UserError(
                f"{spec}: expected {highest + 1} class names or none in {INDEX}, got {len(classes)}"
            )
        labelled = bool((label_N != UNLABELLED).any())
        self.targets = {TASK: label_N} if labelled else {}
        self.classes = {TASK: classes} if labelled else {}

    def __len__(self) -> int:
        return len(self.table)

    def identifier(self, index: int) -> str:
        return self.table.name(index)

    def order_fingerprint(self) -> str:
        """A hash of file names, sizes, counts and version; unchanged if the set is moved.

        An edit that preserves the size of a shard goes unnoticed.
        """
        digest = hashlib.blake2b(self._version.encode(), digest_size=16)
        for (url, (size, _)), count in zip(self._shards.items(), self.table.count_S, strict=True):
            line = f"{posixpath.basename(url)} {size} {count}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """Hash of all shards, including their times or the store's version."""
        states = " ".join(state for _, state in self._shards.values())
        return hash_labels(self.order_fingerprint(), states, self.targets)

    def open(self, index: int, page: int = 0) -> Opened:
        """One image; canvases are stretched back to the original's aspect ratio."""
        content = self.encoded([index])[index]
        image = open_image(io.BytesIO(content), None, page, self.max_pixels)
        aspect = float(self.table.aspect_N[index])
        if np.isnan(aspect) or isinstance(image, Bands):
            return image
        width, height = image.size
        if aspect >= 1:
            return image.resize((width, max(1, round(width / aspect))))
        return image.resize((max(1, round(height * aspect)), height))

    def canvas(
        self, index: int, side: int, reading: Reading | None = None
    ) -> tuple[np.ndarray, float]:
        return self.decode(index, self.encoded([index])[index], side, reading)

    def look(self, index: int, side: int, size: int, reading: Reading) -> Look:
        canvas, aspect = self.canvas(index, side, reading)
        full_size = canvas.shape[-2], canvas.shape[-3]
        return Look(canvas, aspect, self.test_view(index, size, reading), full_size)

    def decode(
        self, index: int, content: bytes, side: int, reading: Reading | None
    ) -> tuple[np.ndarray, float]:
        """The canvas from the bytes of an image."""
        with naming(lambda: self.called(index)), open_image(io.BytesIO(content)) as image:
            self.note(index, image)
            canvas_HWC, aspect = to_canvas(image, side, reading)
        known = float(self.table.aspect_N[index])
        return canvas_HWC, aspect if np.isnan(known) else known

    def encoded(self, indices: Iterable[int]) -> dict[int, bytes]:
        """Encoded images by index; nearby ones are read in one request."""
        ranges = list[list[int]]()
        for index in sorted(indices):
            end = self.table.at_N[index] + self.table.size_N[index]
            near = ranges and self.table.shard(ranges[-1][0]) == self.table.shard(index)
            if near and end - self.table.at_N[ranges[-1][0]] <= store.BLOCK:
                ranges[-1].append(index)
            else:
                ranges.append([index])
        if len(ranges) == 1:
            return self._read(ranges[0])
        with Threads(store.READERS) as pool:
            return {at: of for part in pool.map(self._read, ranges) for at, of in part.items()}

    def _read(self, indices: list[int]) -> dict[int, bytes]:
        """Encoded images of one shard, by one byte range."""
        url = self._urls[self.table.shard(indices[0])]
        begin_B = self.table.at_N[indices]
        end_B, first = begin_B + self.table.size_N[indices], int(begin_B[0])
        with store.naming(f"the shard {url} cannot be read"):
            content = store.read_range(url, first, int(end_B[-1]) - first)
        places = zip(indices, begin_B - first, end_B - first, strict=True)
        return {index: content[begin:end] for index, begin, end in places}


def _read_index(shard: str) -> tuple[dict[str, int], tuple[str, ...], str]:
    """Sample counts by URL, class names and version, from the index next to a shard."""
    folder = shard[: shard.rfind("/") + 1]
    url = f"{folder}{INDEX}"
    text = store.read_beside(shard, INDEX)
    if text is None:
        return {}, (), ""
    try:
        index = parse_json(text)
        counts = {folder + of["url"]: int(of["nsamples"]) for of in index["shardlist"]}
        classes = index.get("classes", [])
        if not all(isinstance(name, str) for name in classes) or isinstance(classes, str):
            raise ValueError("classes is no list of names")
        return counts, unique_names(classes), json.dumps(index.get("version", ""))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UserError(
            f"{url} is not an index of shards ({type(error).__name__}: "
            f"{reason_of(error):.200}): correct or remove it"
        ) from error


def open_shards(spec: str, root: Path, download: bool) -> Shards:
    """Opens a folder, a pattern or a file; the table is cached in `root`."""
    return Shards(spec, root)


def describe_shards(spec: str, _root: Path, _download: bool) -> SetDescription:
    """The parts of a set: folders `train`, `val` and `test`, or files with these prefixes."""
    pattern = spec.removeprefix(SHARDS).rstrip("/")
    place = str(named(pattern)) if store.is_local(pattern) else pattern
    names = dict[str, bool]()  # whether each is a folder
    with store.naming(f"shards:{pattern} cannot be found"):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(place)
        try:
            listed = store.answered(pattern, partial(system.ls, path, detail=True))
        except FileNotFoundError:  # a pattern
            listed = []
        for of in listed:
            name = posixpath.basename(of["name"].rstrip("/"))
            names[name] = of["type"] == "directory" or of["name"].endswith("/")
    escaped = glob.escape(place) if os.path.isdir(place) else place
    begin = [
        name.partition("-")[0] for name in names if name.endswith(store.ENDING) and "-" in name
    ]
    parts = {part: f"{escaped}/{name}-*" for part, (name, *_) in parts_among(begin).items()}
    folders = parts_among(name for name, folder in names.items() if folder)
    parts |= {part: f"{place}/{name}" for part, (name, *_) in folders.items()}
    return SetDescription({part: SHARDS + way for part, way in parts.items()} or {WHOLE: spec})
