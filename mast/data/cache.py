"""Canvases of a set: cached on disk, in memory, or decoded on demand.

A cached set is one flat file and one manifest, named by their content:

    <set>-<key>-<side>px.<source fingerprint>.u8            canvases, sheets of H × W × 3 bytes
    <set>-<key>-<side>px.<source fingerprint>.safetensors   the manifest, written last

If canvases are smaller than images, test views of each size are cached, too (`….v<size>.u8`).
Files are written under a temporary name and renamed. They are rebuilt if the manifest's digest or
the file's size is wrong, or an image failed its checksum when read. A set above the size limit has
only a manifest: its images are decoded once to find broken ones.

Legend: N images, B batch, T numbers of all images of a batch, H and W height and width of a canvas,
at most side × side pixels.
"""

import hashlib
import logging
import math
import os
import random
import re
import shutil
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, final
from zlib import crc32

import numpy as np
import torch

from mast.core.checkpoint import replacing
from mast.core.display import doing, track
from mast.core.errors import UserError
from mast.core.files import in_gb, locked
from mast.core.reading import RGB, Layout, Reading, read_reading
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.data.decode import BrokenImageError
from mast.data.formats import extensions
from mast.data.pixels import (
    Pixels,
    as_sheets,
    checksum,
    decode_in_order,
    decoded_on_demand,
    lengths,
)
from mast.data.source import Source

VERSION = 9  # version of manifest, canvases and hash
MANIFEST = "safetensors"  # its ending
_LISTED = 10  # broken images to list in a message
_SAMPLED = 64  # sample of images to estimate the size of a set
Canvas = tuple[np.ndarray, float]
_log = logging.getLogger("mast")


def fingerprint_of(source: Source) -> str:
    """Fingerprint of a source and its decoders."""
    known = f"{source.fingerprint()} {extensions()}"
    return hashlib.blake2b(known.encode(), digest_size=16).hexdigest()


# Maps a size V to test views of all images, each 3 × V × V; None if no canvas was shrunk, so that
# views can be cut from canvases.
TestViews: TypeAlias = Callable[[int], Pixels | None]


@final
@dataclass(frozen=True)
class Manifest:
    """Contents of a cache file; names and labels come from the source.

    Attributes:
        key: Key of the request; its first number is the version.
        content: Hash of the canvases and labels.
        index_N: int64, index in the source of each image.
        size_N2: int64, height and width of each in pixels.
        aspect_N: float32, width / height of each original.
        checksum_N: uint32, CRC-32 of each image.
        skipped: Reason by name of every broken file.
        stacks: Indices of files with several pages or frames; only the first is used.
        reading: Mapping of file values to pixels.
    """

    key: Sequence[object]
    content: str
    index_N: np.ndarray
    size_N2: np.ndarray
    aspect_N: np.ndarray
    checksum_N: np.ndarray
    skipped: Mapping[str, str]
    stacks: Sequence[int]
    reading: Reading

    @property
    def nbytes(self) -> int:
        return int(lengths(self.size_N2, self.reading.layout).sum())

    def write(self, path: Path) -> None:
        """Write atomically, with a digest."""
        arrays = {
            "index": self.index_N,
            "size": self.size_N2.astype(np.int32),
            "aspect": self.aspect_N,
            "checksum": self.checksum_N.view(np.int32),
        }
        described = {name: getattr(self, name) for name in ("key", "content", "skipped", "stacks")}
        described["reading"] = asdict(self.reading)
        write_tensors(path, {name: torch.from_numpy(of) for name, of in arrays.items()}, described)

    @classmethod
    def read(cls, path: Path) -> "Manifest | None":
        """None if it is missing, damaged, or of another version."""
        try:
            tensors, header = read_tensors(path)
            known = read_metadata(header)
            if known["key"][0] != VERSION:
                return None
        except (UserError, KeyError):
            return None
        # Copies, as reading a truncated mapped file kills the process.
        index_N, size_N2, aspect_N, checksum_N = (
            tensors[name].numpy().copy() for name in ("index", "size", "aspect", "checksum")
        )
        return cls(
            known["key"], known["content"], index_N, size_N2.astype(np.int64), aspect_N,
            checksum_N.view(np.uint32), known["skipped"], known["stacks"],
            read_reading(known["reading"]),
        )  # fmt: skip


def named_after(name: str, asked: str = "") -> str:
    """Readable and unique file name of a set in the cache."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", name)[-40:].strip("-")
    return f"{readable}-{hashlib.blake2b(os.fsencode(name + asked), digest_size=4).hexdigest()}"


@final
@dataclass(frozen=True)
class Request:
    """A request for the canvases or test views of a source.

    Attributes:
        fingerprint: From `fingerprint_of`.
        side: Side of a square with the largest number of pixels of a canvas.
        folder: The cache folder.
        limit: Bytes up to which images are cached on disk; above it, only the manifest.
        max_broken: Largest share of broken images.
        workers: Number of decoding threads.
        find: Finds the mapping of file values to pixels.
        asked: Options that `find` depends on.
        view: Side of the test views; None for canvases.
    """

    source: Source
    fingerprint: str
    side: int
    folder: Path
    limit: float
    max_broken: float
    workers: int
    find: Callable[[], Reading]
    asked: str = ""
    view: int | None = None

    @property
    def stem(self) -> str:
        """Common prefix of all files of the set."""
        return f"{named_after(self.source.whereabouts, self.asked)}-{self.side}px"

    @property
    def manifest(self) -> Path:
        """The manifest; images have the same name, ending in `.u8`."""
        view = f".v{self.view}" if self.view else ""
        return self.folder / f"{self.stem}.{self.fingerprint[:16]}{view}.{MANIFEST}"

    @property
    def key(self) -> list[object]:
        return [VERSION, self.fingerprint, self.side, self.view]

    def decode(self, index: int, reading: Reading) -> Canvas:
        """A canvas, or a test view with its planes arranged as sheets."""
        if self.view is None:
            return self.source.canvas(index, self.side, reading)
        return as_sheets(self.source.test_view(index, self.view, reading)), 1.0

    def on_demand(
        self, manifest: Manifest, size_N2: np.ndarray, checksum_N: np.ndarray | None = None
    ) -> Pixels:
        """The images of a manifest, decoded whenever they are read."""
        reading = manifest.reading
        return decoded_on_demand(
            manifest.index_N, lambda index: self.decode(index, reading)[0],
            self.workers, size_N2, reading.layout, checksum_N,
        )  # fmt: skip


def obtain(request: Request) -> tuple[Manifest, Pixels]:
    """The images of a source, built first if missing, stale or damaged."""
    try:
        request.folder.mkdir(parents=True, exist_ok=True)
        manifest = _find(request)
        if manifest is None:
            # Without locks, concurrent builds use separate temporary names and the last one wins,
            # which costs time but is correct.
            with locked(request.folder / f"{request.stem}.lock"):
                # another process may have built it meanwhile
                manifest = _find(request) or _build(request)
        if manifest.nbytes > request.limit:
            return manifest, request.on_demand(manifest, manifest.size_N2, manifest.checksum_N)
        return manifest, _verified(request.manifest.with_suffix(".u8"), manifest)
    except OSError as error:
        raise UserError(
            f"cannot write {request.source.name} to the cache {request.folder}: "
            f"{error.strerror or error}. Free some space, or set XDG_CACHE_HOME to another "
            "folder; mast pretrain also has data.cache, and data.cache_limit_gb, above "
            "which it decodes for every batch."
        ) from error


def obtain_test_views(request: Request, canvases: Manifest, size: int) -> Pixels:
    """The test views of a source, of the images that have canvases.

    They are decoded on demand if they would exceed the limit.
    """
    request = replace(request, view=size, find=lambda: canvases.reading)
    square_N2 = np.full((len(canvases.index_N), 2), size)
    if lengths(square_N2, canvases.reading.layout).sum() <= request.limit:
        found, pixels = obtain(request)
        if np.array_equal(found.index_N, canvases.index_N):
            return pixels
    return request.on_demand(canvases, square_N2)


def _find(request: Request) -> Manifest | None:
    """The manifest of a complete cache file; None otherwise."""
    manifest, file = Manifest.read(request.manifest), request.manifest.with_suffix(".u8")
    if manifest is None or manifest.key != request.key:
        return None
    stored = manifest.nbytes <= request.limit
    whole = not stored or (file.is_file() and file.stat().st_size == manifest.nbytes)
    return manifest if whole else None


def _verified(file: Path, manifest: Manifest) -> Pixels:
    """Images of a cache file, verified by checksum when read."""
    size_N2, layout, known_N = manifest.size_N2, manifest.reading.layout, manifest.checksum_N
    mapped = Pixels.packed(np.asarray(np.memmap(file, np.uint8, "r")), size_N2, layout)

    def images(index_B: np.ndarray) -> Iterable[np.ndarray]:
        found = mapped.images(index_B)
        for image, known in zip(found, known_N[index_B].tolist(), strict=True):
            if checksum(image) != known:
                with suppress(OSError):  # so that the next opening rebuilds it
                    file.with_suffix(f".{MANIFEST}").unlink(missing_ok=True)
                raise UserError(
                    f"{file} was damaged since it was written; run the command again, which "
                    "rebuilds it"
                )
        return found

    return Pixels(images, size_N2, layout, known_N)


def expected_bytes(source: Source, side: int, layout: Layout = RGB) -> float:
    """Estimate the bytes of a set's canvases from a sample of image sizes."""
    known = list[int]()
    for index in random.Random(0).sample(range(len(source)), min(_SAMPLED, len(source))):
        try:
            known.append(min(math.prod(source.size(index)), side**2))
        except Exception:  # broken images take no space
            known.append(0)
    return 3.0 * layout.sheets * len(source) * sum(known) / len(known)


def _build(request: Request, stored: bool = False) -> Manifest:
    """Decode every image once; write images, then the manifest.

    Raises as soon as too many are broken. Images are stored if they may fit the limit.
    """
    source, path, reading, written = request.source, request.manifest, request.find(), 0
    if path.exists():
        _log.warning("%s or its images are damaged; rebuilding", path)
    for other in request.folder.glob(f"{request.stem}.*"):
        of_before = request.fingerprint[:16] not in other.name
        if other == path or (of_before and other.suffix in (".u8", path.suffix)):
            other.unlink(missing_ok=True)
    skipped, whole, sizes = dict[str, str](), array("q"), array("q")
    aspects, checksums = array("f"), array("I")
    content = hashlib.blake2b(digest_size=16)
    decode = partial(request.decode, reading=reading)
    outcomes = decode_in_order(decode, range(len(source)), request.workers)
    title = f"test views of {source.name}" if request.view else f"reading {source.name}"
    images = path.with_suffix(".u8")
    needed = expected_bytes(source, request.view or request.side, reading.layout)
    free = shutil.disk_usage(request.folder).free
    if free < needed <= request.limit:
        raise OSError(f"it needs {in_gb(needed)} and {in_gb(free)} are free")
    stored = stored or needed <= 2 * request.limit
    place = replacing(images) if stored else nullcontext(os.devnull)
    # Plain writes, as writing to a mapping kills the process on a full disk.
    with place as unfinished, open(unfinished, "wb") as file:
        for index, outcome in enumerate(track(outcomes, title, len(source), "images")):
            if isinstance(outcome, BrokenImageError):
                skipped[source.identifier(index)] = outcome.reason
                if len(skipped) >= _LISTED:
                    refuse_too_many(source, skipped, len(whole), request.max_broken)
                continue
            pixels = outcome[0].tobytes()
            written += len(pixels)
            if written <= request.limit:
                file.write(pixels)
            content.update(pixels)
            checksums.append(crc32(pixels))
            whole.append(index)
            sizes.extend(outcome[0].shape[-3:-1])
            aspects.append(outcome[1])
        refuse_too_many(source, skipped, len(whole), request.max_broken)
    index_N, aspect_N = np.array(whole, np.int64), np.array(aspects, np.float32)
    size_N2 = np.array(sizes, np.int64).reshape(-1, 2)
    content.update(size_N2.tobytes())
    content.update(aspect_N.tobytes())  # views depend on it
    content.update(b"" if reading == Reading() else repr(reading).encode())
    for label_N in (*source.targets.values(), *source.multilabels.values()):
        content.update(label_N[index_N].tobytes())
    if written > request.limit:
        images.unlink(missing_ok=True)
    elif not stored:  # the estimate was too high
        return _build(request, stored=True)
    manifest = Manifest(
        request.key, content.hexdigest(), index_N, size_N2, aspect_N,
        np.array(checksums, np.uint32), skipped, sorted(source.stacks), reading,
    )  # fmt: skip
    manifest.write(path)
    return manifest


class CachedSet(NamedTuple):
    """A set in a cache folder."""

    name: str  # prefix of its files
    side: int  # side of a square with the largest number of pixels of a canvas
    images: int
    stored: int  # bytes of the canvases; 0 if decoded on demand
    damaged: int | None  # damaged canvases; None if not verified
    readable: bool  # whether the manifest is undamaged and of this version


def cached_sets(folder: Path, verify: bool = False) -> list[CachedSet]:
    """The sets of a cache folder, by name; `verify` checks every canvas."""
    sets = []
    for path in sorted(folder.glob(f"*px.{'?' * 16}.{MANIFEST}")):
        name, file = path.name.partition(".")[0], path.with_suffix(".u8")
        manifest = Manifest.read(path)
        side = int(name.rpartition("-")[2].removesuffix("px"))
        stored = file.stat().st_size if file.is_file() else 0
        damaged = 0 if verify else None
        if verify and stored and manifest is not None:
            with doing(f"verifying {file.name}"):
                values_T, layout = np.memmap(file, np.uint8, "r"), manifest.reading.layout
                stored_N = Pixels.packed(values_T, manifest.size_N2, layout).checksum_N
            damaged = int((stored_N != manifest.checksum_N).sum())
        count = 0 if manifest is None else len(manifest.index_N)
        sets.append(CachedSet(name, side, count, stored, damaged, manifest is not None))
    return sets


def refuse_too_many(
    source: Source, broken: Mapping[str, str], whole: int, max_broken: float
) -> None:
    """Raise if more images are broken than allowed, or none is left."""
    total = len(source)
    if len(broken) == total:
        raise UserError(
            f"data: none of the {total} images of {source.name} can be decoded:\n{_lines(broken)}"
        )
    if len(broken) > max_broken * total:
        raise UserError(
            f"max_broken: {max_broken:g} allows {int(max_broken * total)} broken images of "
            f"{total} in {source.name}, got {len(broken)} in the first "
            f"{len(broken) + whole}. Replace or remove them, or raise "
            f"max_broken:\n{_lines(broken)}"
        )


def warn_of_broken(source: Source, broken: Mapping[str, str]) -> None:
    """Warn about skipped images."""
    if broken:
        _log.warning(
            "%d of %d images of %s are broken and are skipped:\n%s",
            len(broken), len(source), source.name, _lines(broken),
        )  # fmt: skip


def _lines(broken: Mapping[str, str]) -> str:
    """The first ten, one per line."""
    lines = [f"  {name}: {reason}" for name, reason in list(broken.items())[:_LISTED]]
    more = len(broken) - len(lines)
    return "\n".join([*lines, *([f"  … and {more} more"] if more else [])])
