"""`mast shard`: a set of images as shards of resized images, for `shards:`."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import shutil
import tarfile
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from mast.commands.common import command
from mast.core.checkpoint import check_writable, write_atomically, write_json
from mast.core.display import Work, doing, track
from mast.core.errors import UserError
from mast.core.files import default_cache, locked, out_folder, read_json, special
from mast.core.table import ShownText
from mast.core.threads import Threads

if TYPE_CHECKING:
    import numpy as np

    from mast.data import BrokenImageError, Source


_log = logging.getLogger("mast")

PLAN = "plan.json"
LOCK = "writing.lock"
OURS = re.compile(r"\d{6,}\.tar")
END = "__end__"  # the last member of a shard, which readers leave out
_LONGEST = 65_500  # pixels of a side of a JPEG


@dataclass(frozen=True)
class ShardPlan:
    """What decides the shards; kept beside them, so that the same command goes on.

    Attributes:
        source: Fingerprint of the images.
        size: Side of a square with as many pixels as an image may have.
        format: "jpg", or "bmp", which keeps every bit.
        quality: Of the JPEGs.
        images: Images a shard.
        seed: Seed of the order.
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
class Sharded(ShownText):
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

    A shard is a WebDataset tar. For each image it holds a canvas in the image's own shape, its
    class if the set has one kind of labels and, as JSON, the original's aspect ratio and name. An
    index lists the number of images per shard. The same command resumes where it stopped.

    Args:
        data: A folder or a set by name, as in `mast pretrain`; of its tiles `FOLDER#tile=256`.
        out: The output folder.
        size: Images with more pixels than a square of this side are shrunk to that many;
            2.75 times the view size (the default for views of 224) keeps crops sharp.
        format: jpg, or bmp, which is lossless and takes ten times the space.
        quality: JPEG quality, 1 to 100.
        images: Images per shard.
        seed: Seed of the random order.
        max_broken: Largest share of broken images to accept; they are left out.
        workers: Threads; by default one per core.
        root: Folder of torchvision and Hugging Face sets.
        download: Allow downloading such a set.

    Raises:
        UserError: There are no such images, too many are broken, the folder has something else, or
            it cannot be written; or files have more than 8 bits or other channels than RGB.
    """
    for name, value in {"size": size, "images": images, "workers": workers}.items():
        if value is not None and value < 1:
            raise UserError(f"{name} must be 1 or more, got {value}")
    if not 1 <= quality <= 100:
        raise UserError(f"quality must be 1 to 100, got {quality}")
    if not 0 <= max_broken <= 1:
        raise UserError(f"max_broken is {max_broken}: expected a share of 0 to 1")
    folder = out_folder(out)
    _check_ours(folder)
    import numpy as np

    from mast.core.launch import cores
    from mast.data import Pieces, open_source
    from mast.data.formats import Bands
    from mast.data.shards import INDEX, KIND
    from mast.data.source import sampled, warn_of_stacks

    source = open_source(data, Path(root or default_cache() / "downloads"), download)
    whole = source.source if isinstance(source, Pieces) else source
    if any(isinstance(image, Bands) for image in sampled(whole)):
        raise UserError(
            f"{source.name} has files of more than 8 bits or of other channels, and shards keep "
            "RGB of 8 bits: train on the files themselves"
        )
    check_writable(folder)
    if len(source.targets) > 1 or source.multilabels:
        kinds = ", ".join([*source.targets, *source.multilabels])
        _log.warning("%s has several kinds of labels (%s), none of which is kept in shards",
                     source.name, kinds)  # fmt: skip
    plan = ShardPlan(source.fingerprint(), size, format, quality, images, seed)
    with locked(folder / LOCK):
        _agree(folder, plan)
        order_N = np.random.default_rng(seed).permutation(len(source))
        parts = [order_N[first : first + images] for first in range(0, len(order_N), images)]
        digits = max(6, len(str(len(parts) - 1)))
        files = [folder / f"{number:0{digits}d}.tar" for number in range(len(parts))]
        writer = _Writer(source, plan, max_broken)
        ordered = folder / f".{_version(asdict(plan))}.ordered"
        if isinstance(source, Pieces) and source.shared and None in map(_whole, files):
            writer.decode_in_order(ordered, workers or cores())
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
        for others in folder.glob(".*.ordered"):
            shutil.rmtree(others)
    stacks = [source.identifier(index) for index in sorted(source.stacks)]
    warn_of_stacks(source.name, stacks, len(source))
    return Sharded(folder, len(files), sum(written), broken)


def _check_ours(folder: Path) -> None:
    """Look whether a folder is empty, or has what this command wrote; hidden files do not count."""
    from mast.data.shards import ENDINGS, INDEX

    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set[str]()
    others = {name for name in names if name != LOCK and not name.startswith(".")}
    if PLAN in names:
        plan = read_json(folder / PLAN)
        if isinstance(plan, dict) and plan.keys() == {field.name for field in fields(ShardPlan)}:
            others = {name for name in names if name.endswith(ENDINGS) and not OURS.fullmatch(name)}
            index = read_json(folder / INDEX) if INDEX in names else {"version": _version(plan)}
            if not isinstance(index, dict) or index.get("version") != _version(plan):
                others.add(INDEX)
    if others:
        raise UserError(
            f"{folder} has {min(others)}, which this command did not write: give another out"
        )


def _version(plan: dict[str, Any]) -> str:
    """What an index says that its shards were made of."""
    return hashlib.blake2b(json.dumps(plan).encode(), digest_size=16).hexdigest()


def _agree(folder: Path, plan: ShardPlan) -> None:
    """Keep the plan, or find the same one."""
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

    def __init__(self, source: Source, plan: ShardPlan, max_broken: float) -> None:
        self.source = source
        self.plan = plan
        self.max_broken = max_broken
        self.label_N = next(iter(source.targets.values())) if len(source.targets) == 1 else None
        self.broken: list[BrokenImageError] = []
        self._ordered: dict[int, tuple[Path, int, int]] | None = None  # file, begin and bytes

    def write(self, file: Path, index_N: np.ndarray) -> int:
        """Write one shard, unless it is there."""
        if (written := _whole(file)) is None:
            write_atomically(file, lambda unfinished: self._write(unfinished, index_N))
            written = _whole(file)
        assert written is not None, file
        return written

    def decode_in_order(self, folder: Path, workers: int) -> None:
        """Encode all images in the order of the source, which decodes each of its files once."""
        from mast.data.shards import tar_members

        folder.mkdir(exist_ok=True)
        self._ordered = {}
        count = len(self.source)
        with doing(f"cutting {self.source.name}", count, "images") as work:
            for first in range(0, count, self.plan.images):
                part = range(first, min(first + self.plan.images, count))
                file = folder / f"{first:09d}.tar"
                if _whole(file) is None:
                    write = partial(self._write_ordered, part=part, workers=workers, work=work)
                    write_atomically(file, write)
                with file.open("rb") as tar:
                    for member in tar_members(tar):
                        if member.name != END:
                            self._ordered[int(member.name)] = file, member.at, member.size

    def _write_ordered(self, file: Path, part: range, workers: int, work: Work) -> None:
        from mast.data import BrokenImageError
        from mast.data.cache import decode_in_order

        with tarfile.open(file, "w") as tar:
            encoded = decode_in_order(self._encoded, part, workers)
            for index, outcome in zip(part, encoded, strict=True):
                work.update(index)
                if isinstance(outcome, BrokenImageError):
                    self._leave_out(outcome)
                else:
                    _add(tar, str(index), outcome[0])
            _add(tar, END, b"")

    def _encoded(self, index: int) -> tuple[bytes, float]:
        """The file of a canvas, and width / height of its original."""
        from PIL import Image

        from mast.data import BrokenImageError

        canvas_HWC, aspect = self.source.canvas(index, self.plan.size)
        if self.plan.format == "jpg" and max(canvas_HWC.shape) > _LONGEST:
            name = self.source.identifier(index)
            raise BrokenImageError(name, "too long for JPEG; bmp would hold it")
        encoded, form = io.BytesIO(), "JPEG" if self.plan.format == "jpg" else "BMP"
        Image.fromarray(canvas_HWC).save(encoded, form, quality=self.plan.quality)
        return encoded.getvalue(), aspect

    def _copied(self, index: int) -> tuple[bytes, float]:
        """As `_encoded`, of an image that was encoded in order."""
        assert self._ordered is not None
        file, begin, size = self._ordered[index]
        height, width = self.source.size(index)
        with file.open("rb") as ordered:
            ordered.seek(begin)
            return ordered.read(size), width / height

    def _write(self, file: Path, index_N: np.ndarray) -> None:
        from mast.data import BrokenImageError
        from mast.data.shards import CANVAS

        encode = self._encoded if self._ordered is None else self._copied
        with tarfile.open(file, "w") as tar:
            for index in index_N.tolist():
                try:
                    encoded, aspect = encode(index)
                except BrokenImageError as error:
                    self._leave_out(error)
                    continue
                except KeyError:  # it was left out before
                    continue
                key = f"{index:09d}"
                _add(tar, f"{key}.{CANVAS}{self.plan.format}", encoded)
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
        """Refuse more broken images than may be."""
        allowed = int(self.max_broken * len(self.source))
        if broken > allowed:
            last = f"; the last one is {self.broken[-1]}" if self.broken else ""
            raise UserError(
                f"{broken} images of {self.source.name} are broken, and max_broken = "
                f"{self.max_broken:g} allows {allowed}{last}"
            )


def _whole(file: Path) -> int | None:
    """How many images a shard has; None where there is none, or not all of it."""
    from mast.data.shards import tar_members

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
