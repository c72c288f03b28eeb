"""Random access to images of shards, for every command except `mast pretrain`."""

import glob
import io
import os
import posixpath
from collections import deque
from functools import partial
from pathlib import Path
from threading import Lock
from typing import final

import numpy as np

from mast.core.files import named
from mast.core.reading import Reading
from mast.data.decode import Opened, open_image
from mast.data.formats import Bands
from mast.data.shards.index import TASK, check_named, open_index
from mast.data.shards.parquet import read_rows
from mast.data.shards.sample import Sample
from mast.data.shards.store import ENDINGS, answered, is_local, naming, read_range
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
    split_column,
)

_GROUPS = 8  # row groups of Parquet files in memory


@final
class Shards(Source):
    """Random access to the images of shards, through a table in a cache folder."""

    def __init__(self, spec: str, cache: Path) -> None:
        self.name = spec
        self._index = open_index(spec, cache, scan=True)
        assert self._index.table is not None, spec
        self._table = self._index.table
        label_N, classes = self._table.label_N, self._index.classes
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
        return self._table.name(index)

    def fingerprint(self) -> str:
        """Of all shards, and of their times or whatever else their store says of a version."""
        states = " ".join(shard.state for shard in self._index.shards)
        return hash_labels(self._index.fingerprint, states, self.targets)

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

    def look(self, index: int, side: int, size: int, reading: Reading) -> Look:
        canvas, aspect = self.canvas(index, side, reading)
        full_size = canvas.shape[-2], canvas.shape[-3]
        return Look(canvas, aspect, self.test_view(index, size, reading), full_size)

    def _encoded(self, index: int) -> bytes:
        """The file of an image."""
        number, at = self._table.shard(index), int(self._table.at_N[index])
        shard = self._index.shards[number]
        if not shard.is_parquet:
            with naming(f"the shard {shard.url} cannot be read"):
                return read_range(shard.url, at, int(self._table.size_N[index]))
        with self._lock:  # threads that want the next images wait for the same rows
            for of, first, rows in self._recent:
                if of == number and first <= at < first + len(rows):
                    return rows[at - first]
            with shard.opened() as file:
                first, rows = read_rows(file, shard.url, at, shard.column)
            self._recent.append((number, first, rows))
            return rows[at - first]


def open_shards(spec: str, root: Path, download: bool) -> Shards:
    """Opens a folder, a pattern or a file; the table of its samples is cached in `root`."""
    return Shards(spec, root)


def describe_shards(spec: str, _root: Path, _download: bool) -> SetDescription:
    """The parts of a set: folders `train`, `val` and `test`, or files whose names begin so."""
    whole, column = split_column(spec)
    pattern, end = whole.removeprefix(SHARDS).rstrip("/"), f"#{column}" if column else ""
    place = str(named(pattern)) if is_local(pattern) else pattern
    names = dict[str, bool]()  # whether each is a folder
    with naming(f"shards:{pattern} cannot be found"):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(place)
        try:
            listed = answered(pattern, lambda: system.ls(path, detail=True))
        except FileNotFoundError:  # a pattern
            listed = []
        for of in listed:
            name = posixpath.basename(of["name"].rstrip("/"))
            names[name] = of["type"] == "directory" or of["name"].endswith("/")
    escaped = glob.escape(place) if os.path.isdir(place) else place
    begin = [name.partition("-")[0] for name in names if name.endswith(ENDINGS) and "-" in name]
    parts = {part: f"{escaped}/{name}-*" for part, (name, *_) in parts_among(begin).items()}
    folders = parts_among(name for name, folder in names.items() if folder)
    parts |= {part: f"{place}/{name}" for part, (name, *_) in folders.items()}
    return SetDescription(
        {part: SHARDS + way + end for part, way in parts.items()} or {WHOLE: spec}
    )
