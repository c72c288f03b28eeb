"""`mast shard`: a set of images as shards of resized images, for `shards:`."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import sqlite3
import tarfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

from mast.commands.common import command
from mast.core.checkpoint import check_writable, write_atomically, write_json
from mast.core.display import track
from mast.core.errors import UserError
from mast.core.files import default_cache, locked, out_folder, read_json, refuse_others
from mast.core.table import ShownText
from mast.core.threads import Threads

if TYPE_CHECKING:
    import numpy as np

    from mast.data import BrokenImageError, Source
    from mast.data.shards.table import SampleTable

_log = logging.getLogger("mast")
PLAN = "plan.json"  # the options that determine the shards, so that the same command resumes
_LOCK = ".lock"
_CUT = ".cut.sqlite"  # tiles, encoded in the order of their scenes


@final
@dataclass(frozen=True, repr=False)
class Sharded(ShownText):
    """The shards that were written.

    Attributes:
        path: The folder.
        shards: Number of shards.
        images: Number of images.
        broken: Number of images that could not be decoded and were left out.
    """

    path: Path
    shards: int
    images: int
    broken: int

    @property
    def text(self) -> str:
        """One-line summary."""
        left = f"; {self.broken} broken ones left out" if self.broken else ""
        return f"{self.images:,} images in {self.shards:,} shards{left}: shards:{self.path}"


@command
def shard(
    data: str | Path,
    out: str | Path,
    *,
    size: int = 616,
    format: Literal["jpg", "bmp"] = "jpg",
    quality: int = 92,
    images: int = 2000,
    seed: int = 0,
    max_broken: float = 0.01,
    workers: int | None = None,
    root: str | Path | None = None,
    download: bool = False,
) -> Sharded:
    """Write a set of images as shards, resized and in random order.

    A shard is a WebDataset tar. For each image it holds the resized image, its class if the
    set has one kind of labels, and JSON with the original's name and aspect ratio. An index lists
    the classes; a table lists the position of each image. The same command resumes.

    Args:
        data: A folder or a set by name, as in `mast pretrain`; `FOLDER#tile=256` for its tiles.
        out: The output folder.
        size: Larger images are shrunk to size × size pixels in total, keeping their aspect ratio;
            2.75 times the view size keeps crops sharp (the default suits views of 224).
        format: jpg, or bmp, which is lossless and takes ten times the space.
        quality: JPEG quality, 1 to 100.
        images: Images per shard.
        seed: Seed of the random order.
        max_broken: Largest share of broken images to accept; they are left out.
        workers: Threads; by default one per core.
        root: Folder with torchvision and Hugging Face sets.
        download: Allow downloading the set.
    """
    for name, value in {"size": size, "images": images}.items():
        if value < 1:
            raise UserError(f"{name}: expected 1 or more, got {value}")
    folder = out_folder(out)
    _check_ours(folder)
    import numpy as np

    from mast.core.launch import cores
    from mast.data import open_source
    from mast.data.formats import Bands
    from mast.data.pieces import Tiles
    from mast.data.shards.source import INDEX, KIND
    from mast.data.shards.table import join, write_table
    from mast.data.source import sampled, warn_of_stacks

    source = open_source(data, Path(root or default_cache() / "downloads"), download)
    whole = source.source if isinstance(source, Tiles) else source
    if any(isinstance(image, Bands) for image in sampled(whole)):
        raise UserError(
            f"data: expected 8-bit RGB, got more bits or other channels in {source.name}; "
            "train on the files directly"
        )
    check_writable(folder)
    if len(source.targets) > 1 or source.multilabels:
        kinds = ", ".join([*source.targets, *source.multilabels])
        _log.warning("%s has several kinds of labels (%s), so the shards have none",
                     source.name, kinds)  # fmt: skip
    plan = {"source": source.fingerprint(), "size": size, "format": format, "quality": quality,
            "images": images, "seed": seed}  # fmt: skip
    with locked(folder / _LOCK):
        _check_ours(folder, plan)
        write_json(folder / PLAN, plan)
        order_N = np.random.default_rng(seed).permutation(len(source))
        parts = [order_N[first : first + images] for first in range(0, len(order_N), images)]
        digits = max(6, len(str(len(parts) - 1)))
        files = [folder / f"{number:0{digits}d}.tar" for number in range(len(parts))]
        threads = workers or cores()
        writer = _Writer(source, size, format, quality, max_broken)
        if isinstance(source, Tiles) and source.shared:
            writer.cut(folder / _CUT, threads)
        with Threads(threads) as pool:
            done = pool.map(writer.write, files, parts)
            tables = list(track(done, f"writing {folder}", len(files), "shards"))
        shards = [
            {"url": file.name, "nsamples": len(each), "filesize": file.stat().st_size}
            for file, each in zip(files, tables, strict=True)
        ]
        table = join(tables)
        broken = len(source) - len(table)  # including those of earlier attempts
        writer.judge(broken)
        classes = next(iter(source.classes.values()), ()) if _labels(source) is not None else ()
        index = {"__kind__": KIND, "wids_version": 1, "name": source.name, "classes": list(classes)}
        version = hashlib.blake2b(json.dumps(plan).encode(), digest_size=16).hexdigest()
        write_json(folder / INDEX, index | {"version": version, "shardlist": shards})
        write_table(folder, {str(file): (file.stat().st_size, "") for file in files}, table)
        (folder / _CUT).unlink(missing_ok=True)
    stacks = [source.identifier(index) for index in sorted(source.stacks)]
    warn_of_stacks(source.name, stacks, len(source))
    return Sharded(folder, len(files), len(table), broken)


def _check_ours(folder: Path, plan: Mapping[str, object] | None = None) -> None:
    """Refuse a folder that `mast shard` did not write, or wrote with other options."""
    before = read_json(folder / PLAN) if (folder / PLAN).exists() else {}
    if not (isinstance(before, dict) and "source" in before):
        refuse_others(folder, (), "mast shard")
    if plan and (other := [of for of in plan if before.get(of, plan[of]) != plan[of]]):
        raise UserError(
            f"out: {folder} has shards with another {' and '.join(other)}; remove them or choose "
            "another folder"
        )


@dataclass
class _Writer:
    """Writes shards from several threads; arguments as of `shard`."""

    source: Source
    side: int
    form: str
    quality: int
    max_broken: float
    tiles: Path | None = None  # database of encoded tiles, once `cut` has run
    broken: list[BrokenImageError] = field(default_factory=list)

    def write(self, file: Path, index_N: np.ndarray) -> SampleTable:
        """Write one shard unless it exists undamaged; return its samples."""
        from mast.data.shards.table import scan_shard

        if not file.exists():
            write_atomically(file, lambda unfinished: self._write(unfinished, index_N))
        try:
            return scan_shard(str(file), file.stat().st_size, str(file.parent))
        except UserError:  # damaged since it was written
            file.unlink()
            return self.write(file, index_N)

    def cut(self, file: Path, workers: int) -> None:
        """Encode all tiles in the order of the source, which decodes each of its files once."""
        from mast.data import BrokenImageError
        from mast.data.pixels import decode_in_order

        count = len(self.source)
        with closing(sqlite3.connect(file, isolation_level=None)) as tiles:
            tiles.execute("PRAGMA synchronous = OFF")
            tiles.execute("CREATE TABLE IF NOT EXISTS tile (number INTEGER PRIMARY KEY, "
                          "encoded BLOB, aspect REAL)")  # fmt: skip
            (done,) = tiles.execute("SELECT coalesce(max(number), -1) + 1 FROM tile").fetchone()
            left = range(done, count)
            encoded = decode_in_order(self._encode, left, workers)
            for number in track(left, f"cutting {self.source.name}", len(left), "images"):
                outcome = next(encoded)
                if isinstance(outcome, BrokenImageError):
                    self._leave_out(outcome)
                else:
                    tiles.execute("INSERT INTO tile VALUES (?, ?, ?)", (number, *outcome))
        self.tiles = file

    def _encode(self, index: int) -> tuple[bytes, float]:
        """An encoded canvas, and width / height of its original."""
        from PIL import Image

        from mast.data.decode import naming

        canvas_HWC, aspect = self.source.canvas(index, self.side)
        encoded, form = io.BytesIO(), "JPEG" if self.form == "jpg" else "BMP"
        with naming(lambda: self.source.identifier(index)):  # no JPEG is longer than 65,535 pixels
            Image.fromarray(canvas_HWC).save(encoded, form, quality=self.quality)
        return encoded.getvalue(), aspect

    def _write(self, file: Path, index_N: np.ndarray) -> None:
        from mast.data import BrokenImageError
        from mast.data.shards.tar import CANVAS

        label_N = _labels(self.source)
        with tarfile.open(file, "w") as tar:
            for index in index_N.tolist():
                try:
                    found = self._encode(index) if self.tiles is None else _tile(self.tiles, index)
                except BrokenImageError as error:
                    self._leave_out(error)
                    continue
                if found is None:  # a tile that was left out
                    continue
                encoded, aspect = found
                key = f"{index:09d}"
                _add(tar, f"{key}.{CANVAS}{self.form}", encoded)
                if label_N is not None:
                    _add(tar, f"{key}.cls", str(label_N[index]).encode())
                known = {"aspect": aspect, "name": self.source.identifier(index)}
                _add(tar, f"{key}.json", json.dumps(known).encode())

    def _leave_out(self, error: BrokenImageError) -> None:
        self.broken.append(error)
        self.judge(len(self.broken))
        _log.warning("left out: %s", error)

    def judge(self, broken: int) -> None:
        """Raise if more images are broken than `max_broken` allows."""
        allowed = int(self.max_broken * len(self.source))
        if broken > allowed:
            last = f"; the last: {self.broken[-1]}" if self.broken else ""
            raise UserError(
                f"max_broken: {self.max_broken:g} allows {allowed} broken images in "
                f"{self.source.name}, got {broken}{last}"
            )


def _labels(source: Source) -> np.ndarray | None:
    """The labels, if the set has exactly one kind."""
    return next(iter(source.targets.values())) if len(source.targets) == 1 else None


def _tile(file: Path, number: int) -> tuple[bytes, float] | None:
    with closing(sqlite3.connect(file)) as tiles:
        found = tiles.execute("SELECT encoded, aspect FROM tile WHERE number = ?", (number,))
        tile: tuple[bytes, float] | None = found.fetchone()
        return tile


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
