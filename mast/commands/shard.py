"""`mast shard`: a set of images as shards of resized images, for `shards:`."""

import hashlib
import io
import json
import logging
import re
import tarfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from PIL import Image

from mast.core.checkpoint import check_writable, write_atomically, write_json
from mast.core.display import track
from mast.core.errors import UserError, unknown
from mast.core.files import out_folder, read_json, special
from mast.core.launch import cores
from mast.core.locks import locked
from mast.core.table import Shown
from mast.core.waiting import Threads
from mast.data import BrokenImageError, Source, default_cache, open_source
from mast.data.shards import CANVAS, ENDINGS, INDEX, KIND, tar_members

_log = logging.getLogger("mast")

PLAN = "plan.json"
LOCK = "writing.lock"
OURS = re.compile(r"\d{6,}\.tar")
END = "__end__"  # the last member of a shard, which readers leave out
FORMATS = ("jpg", "bmp")
_LONGEST = 65_500  # pixels of a side of a JPEG


@dataclass(frozen=True)
class Plan:
    """What decides the shards; kept beside them, so that the same command goes on.

    Attributes:
        source: Fingerprint of the images.
        size: Side of a square with as many pixels as an image may have.
        format: "jpg", or "bmp", which keeps every bit.
        quality: Of the JPEGs.
        images: In a shard.
        seed: Of the order.
        layout: Of the canvases; squares had none.
    """

    source: str
    size: int
    format: str
    quality: int
    images: int
    seed: int
    layout: str = "own shape"


@final
@dataclass(frozen=True, repr=False)
class Sharded(Shown):
    """What was written.

    Attributes:
        path: The folder.
        shards: How many.
        images: How many in all.
        broken: Images that could not be decoded, and were left out.
    """

    path: Path
    shards: int
    images: int
    broken: int

    @property
    def text(self) -> str:
        """In a line."""
        left = f"; {self.broken} broken ones left out" if self.broken else ""
        return f"{self.images:,} images in {self.shards:,} shards{left}: shards:{self.path}"

    def shown(self) -> tuple[str]:
        """The text."""
        return (self.text,)


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
    """Write a set of images as shards of images that are resized once, in a random order.

    A shard is a tar as WebDataset reads it: of every image a canvas in its own shape, its class
    where the set has one kind of labels and, as JSON, the aspect ratio of the original and its
    name. An index says how many each has. The same command goes on where it was stopped.

    Args:
        data: A folder, or a set by name, as of `mast pretrain`.
        out: The folder to write into.
        size: Images of more pixels than a square of this side are shrunk to that
            many; 2.75 times the size of the views, as by default for 224, keeps crops sharp.
        format: jpg, or bmp, which loses nothing and takes ten times the room.
        quality: Of the JPEGs, 1 to 100.
        images: In a shard.
        seed: Of the order.
        max_broken: Share of the images that may be broken; they are left out.
        workers: Threads; as many as there are cores if not given.
        root: Folder of torchvision and Hugging Face sets.
        download: Whether such a set may be downloaded.

    Raises:
        UserError: There are no such images, too many are broken, the folder has something else, or
            it cannot be written.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    for name, value in {"size": size, "images": images, "workers": workers or 1}.items():
        if value < 1:
            raise UserError(f"{name} must be 1 or more, got {value}")
    if not 1 <= quality <= 100:
        raise UserError(f"quality must be 1 to 100, got {quality}")
    if not 0 <= max_broken <= 1:
        raise UserError(f"max_broken is {max_broken}: expected a share of 0 to 1")
    folder = out_folder(out)
    _check_ours(folder)
    source = open_source(data, root or default_cache() / "downloads", download)
    check_writable(folder)
    if len(source.targets) > 1 or source.multilabels:
        kinds = ", ".join([*source.targets, *source.multilabels])
        _log.warning("%s has several kinds of labels (%s), none of which is kept in shards",
                     source.name, kinds)  # fmt: skip
    plan = Plan(source.fingerprint(), size, format, quality, images, seed)
    with locked(folder / LOCK):
        _agree(folder, plan)
        order_N = np.random.default_rng(seed).permutation(len(source))
        parts = [order_N[first : first + images] for first in range(0, len(order_N), images)]
        digits = max(6, len(str(len(parts) - 1)))
        files = [folder / f"{number:0{digits}d}.tar" for number in range(len(parts))]
        writer = _Writer(source, plan, max_broken)
        with Threads(workers or cores()) as pool:
            done = pool.map(writer.write, files, parts)
            written = list(track(done, f"writing {folder}", len(files), "shards"))
        shards = [
            {"url": file.name, "nsamples": count, "filesize": file.stat().st_size}
            for file, count in zip(files, written, strict=True)
        ]
        broken = len(source) - sum(written)  # those of earlier tries among them
        writer.judge(broken)
        classes = next(iter(source.classes.values()), ()) if writer.label_N is not None else ()
        index = {"__kind__": KIND, "wids_version": 1, "name": source.name, "classes": list(classes)}
        index |= {"version": _version(asdict(plan)), "shardlist": shards}
        write_json(folder / INDEX, index)
    return Sharded(folder, len(files), sum(written), broken)


def _check_ours(folder: Path) -> None:
    """Look whether a folder is empty, or has what this command wrote; hidden files do not count.

    Raises:
        UserError: It has something else.
    """
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set[str]()
    others = {name for name in names if name != LOCK and not name.startswith(".")}
    if PLAN in names:
        plan = read_json(folder / PLAN)
        if isinstance(plan, dict) and plan.keys() == {field.name for field in fields(Plan)}:
            others = {name for name in names if name.endswith(ENDINGS) and not OURS.fullmatch(name)}
            if INDEX in names and _version_of(read_json(folder / INDEX)) != _version(plan):
                others.add(INDEX)
    if others:
        raise UserError(
            f"{folder} has {min(others)}, which this command did not write: give another out"
        )


def _version(plan: dict[str, Any]) -> str:
    """What an index says that its shards were made of."""
    return hashlib.blake2b(json.dumps(plan).encode(), digest_size=16).hexdigest()


def _version_of(index: Any) -> Any:
    return index.get("version") if isinstance(index, dict) else None


def _agree(folder: Path, plan: Plan) -> None:
    """Keep the plan, or find the same one.

    Raises:
        UserError: The folder has the shards of another one.
    """
    file = folder / PLAN
    if not file.is_file():
        write_json(file, asdict(plan))
        return
    before = read_json(file)
    if before != asdict(plan):
        known = before if isinstance(before, dict) else {}
        other = [name for name, value in asdict(plan).items() if known.get(name) != value]
        raise UserError(
            f"{folder} has shards of another {' and '.join(other)}: remove them, or give another "
            "out"
        )


class _Writer:
    """Writes shards, several at a time from several threads.

    Args:
        source: The images.
        plan: What decides the shards.
        max_broken: Share of the images that may be broken.
    """

    def __init__(self, source: Source, plan: Plan, max_broken: float) -> None:
        self.source = source
        self.plan = plan
        self.max_broken = max_broken
        self.label_N = next(iter(source.targets.values())) if len(source.targets) == 1 else None
        self.broken: list[BrokenImageError] = []

    def write(self, file: Path, index_N: np.ndarray) -> int:
        """Write one shard, unless it is there.

        Args:
            file: The tar.
            index_N: The images, by their number in the source.

        Returns:
            How many are in it.

        Raises:
            UserError: More images are broken than may be.
        """
        if (written := _whole(file)) is None:
            write_atomically(file, lambda unfinished: self._write(unfinished, index_N))
            written = _whole(file)
        assert written is not None, file
        return written

    def _write(self, file: Path, index_N: np.ndarray) -> None:
        with tarfile.open(file, "w") as tar:
            for index in index_N.tolist():
                try:
                    canvas_HWC, aspect = self.source.canvas(index, self.plan.size)
                except BrokenImageError as error:
                    self._leave_out(error)
                    continue
                if self.plan.format == "jpg" and max(canvas_HWC.shape) > _LONGEST:
                    name = self.source.identifier(index)
                    self._leave_out(BrokenImageError(name, "too long for JPEG; bmp would hold it"))
                    continue
                key, encoded = f"{index:09d}", io.BytesIO()
                form = "JPEG" if self.plan.format == "jpg" else "BMP"
                Image.fromarray(canvas_HWC).save(encoded, form, quality=self.plan.quality)
                _add(tar, f"{key}.{CANVAS}{self.plan.format}", encoded.getvalue())
                if self.label_N is not None:
                    _add(tar, f"{key}.cls", str(self.label_N[index]).encode())
                known = {"aspect": aspect, "name": self.source.identifier(index)}
                _add(tar, f"{key}.json", json.dumps(known).encode())
            _add(tar, END, b"")

    def _leave_out(self, error: BrokenImageError) -> None:
        self.broken.append(error)
        self.judge(len(self.broken))
        _log.warning("left out: %s", error)

    def judge(self, broken: int) -> None:
        """Refuse more broken images than may be.

        Raises:
            UserError: Saying how many there are.
        """
        allowed = int(self.max_broken * len(self.source))
        if broken > allowed:
            last = f"; the last one is {self.broken[-1]}" if self.broken else ""
            raise UserError(
                f"{broken} images of {self.source.name} are broken, and max_broken = "
                f"{self.max_broken:g} allows {allowed}{last}"
            )


def _whole(file: Path) -> int | None:
    """How many images a shard has; None where there is none, or not all of it."""
    try:
        if special(file):
            return None
        with file.open("rb") as tar:
            names = [member.name for member in tar_members(tar)]
    except (FileNotFoundError, tarfile.ReadError):
        return None
    return sum(name.endswith(".json") for name in names) if names[-1:] == [END] else None


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
