"""Images of shards, looked at one by one: what every command does but `mast pretrain`."""

import glob
import io
import os
from collections import deque
from pathlib import Path
from threading import Lock
from typing import final

import numpy as np

from mast.core.reading import Reading
from mast.data.decode import to_pixels
from mast.data.formats import Bands, Opened, open_image
from mast.data.shards.index import (
    TASK,
    Place,
    ShardIndex,
    check_named,
    is_there,
    look_for,
    open_table,
)
from mast.data.shards.shard import Sample, Shard, miscounted, read_range, read_rows, telling
from mast.data.source import (
    SHARDS,
    UNLABELLED,
    WHOLE,
    SetDescription,
    Source,
    by_number,
    hash_labels,
    parts_among,
    split_column,
)

# What parts are called, the usual name last.
NAMED = {
    "train": ("training", "train"),
    "val": ("dev", "validation", "valid", "val"),
    "test": ("testing", "test"),
}
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
        place = self._table.place(index)
        return self._opened(place, self._encoded(place), page)

    def load(self, index: int) -> np.ndarray:
        place = self._table.place(index)
        encoded = self._encoded(place)
        try:
            with self._opened(place, encoded) as image:
                return to_pixels(image)
        except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
            raise self._broken(index, error) from error

    def _opened(self, place: Place, encoded: bytes, page: int = 0) -> Opened:
        image = open_image(io.BytesIO(encoded), None, page, self.max_pixels)
        if place.aspect is None or isinstance(image, Bands):
            return image
        width, height = image.size
        if place.aspect >= 1:
            return image.resize((width, max(1, round(width / place.aspect))))
        return image.resize((max(1, round(height * place.aspect)), height))

    def canvas(
        self, index: int, side: int, reading: Reading | None = None
    ) -> tuple[np.ndarray, float]:
        place = self._table.place(index)
        key = f"{self.name}/{self.identifier(index)}"
        sample = Sample(key, self._encoded(place), aspect=place.aspect)
        return sample.canvas(side, reading, lambda: self.stacks.add(index))

    def _encoded(self, place: Place) -> bytes:
        """The file of an image."""
        url = self._index.shards[place.shard].url
        with telling(url):
            if not url.endswith(".parquet"):
                return read_range(url, place.at, place.size)
            with self._lock:  # threads that want the next images wait for the same rows
                for shard, first, rows in self._recent:
                    if shard == place.shard and first <= place.at < first + len(rows):
                        return rows[place.at - first]
                first, rows = read_rows(url, place.at, self._column)
                self._recent.append((place.shard, first, rows))
                return rows[place.at - first]


def open_shards(spec: str, root: Path, download: bool) -> Shards:
    """Opens a folder, a pattern or a file; what is known of them is kept in `root`."""
    return Shards(spec, root)


def describe_shards(spec: str) -> SetDescription:
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
