"""The canvases of a set: in memory, decoded on demand, or in the cache, where they are verified.

Two files per set, named after what they hold:

    <set>-<key>-<side>px.<source fingerprint>.u8      every canvas, its sheets of H × W × 3 bytes
    <set>-<key>-<side>px.<source fingerprint>.safetensors    the manifest, written last

and two more for each size of test views that was asked for, if canvases are smaller than images:

    <set>-<key>-<side>px.<source fingerprint>.v<size>.u8     every view, its planes of size × size
    <set>-<key>-<side>px.<source fingerprint>.v<size>.safetensors   their checksums, written last

All are written under a temporary name and then renamed, so a killed build leaves nothing that looks
finished. A set over the size limit has the manifest alone: its images were all decoded once, so
that the broken ones are known.

Legend: N images, B batch, T numbers of all images of a batch, H and W height and width of a canvas,
at most side × side pixels, V pixels of a view along an axis.
"""

import errno
import functools
import hashlib
import logging
import math
import operator
import os
import random
import re
import shutil
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, NoReturn, TypeAlias, TypeVar, final, overload
from zlib import crc32

import numpy as np
import torch

from mast.core.checkpoint import replacing
from mast.core.display import track
from mast.core.errors import UserError
from mast.core.files import in_gb, locked
from mast.core.reading import RGB, Layout, Reading, read_reading
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.core.threads import Threads
from mast.data.decode import BrokenImageError
from mast.data.formats import readers
from mast.data.source import Source, warn_of_stacks


class Pixels(ABC):
    """Images of different sizes, by index.

    Attributes:
        size_N2: int64, height and width of each in pixels.
        checksum_N: uint32, CRC-32 of each.
        layout: Of all of them.
    """

    size_N2: np.ndarray
    checksum_N: np.ndarray
    layout: Layout = RGB

    def __len__(self) -> int:
        return len(self.size_N2)

    @property
    def nbytes(self) -> int:
        """Of all images."""
        return int(lengths(self.size_N2, self.layout).sum())

    @abstractmethod
    def read(self, index_B: np.ndarray) -> np.ndarray:
        """Some images, one after the other, each its sheets: (T,) uint8, in memory of its own."""

    def _room(self, index_B: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Memory for some images, and the part of each."""
        length_B = lengths(self.size_N2[index_B], self.layout)
        values_T = np.empty(length_B.sum(), np.uint8)
        spans = zip(length_B.tolist(), length_B.cumsum().tolist(), strict=True)
        return values_T, [values_T[end - length : end] for length, end in spans]


@final
class InMemory(Pixels):
    """Images one after the other in an array of uint8."""

    def __init__(self, values_T: np.ndarray, size_N2: np.ndarray, layout: Layout = RGB) -> None:
        self.size_N2 = size_N2
        self.layout = layout
        self._values_T = values_T
        self._start_N = starts(size_N2, layout)

    @classmethod
    def of(cls, images: Iterable[np.ndarray], layout: Layout = RGB) -> "InMemory":
        """Of arrays, the sheets (S, H, W, 3) of each, or one (H, W, 3)."""
        arrays = list(images)
        flat = [image_SHWC.ravel() for image_SHWC in arrays] or [np.empty(0, np.uint8)]
        sizes = [image_SHWC.shape[-3:-1] for image_SHWC in arrays]
        return cls(np.concatenate(flat), np.array(sizes, np.int64).reshape(-1, 2), layout)

    def read(self, index_B: np.ndarray) -> np.ndarray:
        parts = [self._image(index) for index in index_B.tolist()]
        return np.concatenate([*parts, np.empty(0, np.uint8)])

    @cached_property
    def checksum_N(self) -> np.ndarray:  # type: ignore[override]  # here it is computed
        return np.array([crc32(self._image(index).data) for index in range(len(self))], np.uint32)

    def _image(self, index: int) -> np.ndarray:
        start = self._start_N[index]
        return self._values_T[start : start + lengths(self.size_N2[index], self.layout)]


@final
class Subset(Pixels):
    """Some images of a set."""

    def __init__(self, pixels: Pixels, index_N: np.ndarray) -> None:
        self.size_N2 = pixels.size_N2[index_N]
        self.layout = pixels.layout
        self._pixels = pixels
        self._index_N = index_N

    @property
    def checksum_N(self) -> np.ndarray:  # type: ignore[override]  # those of a set in memory wait
        return self._pixels.checksum_N[self._index_N]

    def read(self, index_B: np.ndarray) -> np.ndarray:
        return self._pixels.read(self._index_N[index_B])


def lengths(size_N2: np.ndarray, layout: Layout) -> np.ndarray:
    """How many bytes images of these sizes take."""
    return np.asarray(3 * layout.sheets * size_N2.prod(-1))


def starts(size_N2: np.ndarray, layout: Layout) -> np.ndarray:
    """Where each image begins, if they lie one after the other."""
    length_N = lengths(size_N2, layout)
    return np.cumsum(length_N) - length_N


Canvas = tuple[np.ndarray, float]
_T = TypeVar("_T")


def decode_in_order(
    decode: Callable[[int], _T], indices: Sequence[int], workers: int
) -> Iterator[_T | BrokenImageError]:
    """Decodes with threads, in the order of the indices; yields the error in place of a broken one.

    Threads suffice: Pillow releases the interpreter's lock while it decodes and resizes.
    """

    def tried(index: int) -> _T | BrokenImageError:
        try:
            return decode(index)
        except BrokenImageError as error:
            return error

    window = 32 * workers  # bounds what waits in memory
    with Threads(workers) as pool:
        for start in range(0, len(indices), window):
            yield from pool.map(tried, indices[start : start + window])


@final
@dataclass(eq=False)
class OnTheFly(Pixels):
    """Images that are decoded whenever they are read.

    Attributes:
        source_index_N: Their indices in the source; all were whole when the set was opened.
        decode: From an index in the source to an array of uint8.
        workers: Number of threads.
        size_N2: Height and width of each when the set was opened.
        checksum_N: CRC-32 of each, taken then.
    """

    source: Source
    source_index_N: np.ndarray
    decode: Callable[[int], np.ndarray]
    workers: int
    size_N2: np.ndarray
    checksum_N: np.ndarray
    layout: Layout = RGB

    def read(self, index_B: np.ndarray) -> np.ndarray:
        source_index_B = self.source_index_N[index_B].tolist()
        values_T, parts = self._room(index_B)
        decoded = decode_in_order(self.decode, source_index_B, self.workers)
        expected = zip(source_index_B, self.size_N2[index_B].tolist(), parts, strict=True)
        for outcome, (index, size, part) in zip(decoded, expected, strict=True):
            if isinstance(outcome, BrokenImageError):
                self._refuse(outcome.name, outcome.reason)
            shape = [*outcome.shape]  # S × H × W × 3 of a canvas, P × V × V of a test view
            if outcome.size != len(part) or size not in (shape[-3:-1], shape[-2:]):
                self._refuse(self.source.identifier(index), "it has another size")
            part[:] = outcome.ravel()
        return values_T

    def _refuse(self, name: str, reason: str) -> NoReturn:
        raise UserError(
            f"{name}: {reason}. It was whole when the set was opened: restore it, or start again "
            "to have the folder read again."
        )


_log = logging.getLogger("mast")


@final
class Cached(Pixels):
    """Canvases one after the other in a file; each is verified when it is read.

    A canvas that is not what was written is decoded again, and the file is mended.
    """

    def __init__(self, file: Path, decoded: OnTheFly) -> None:
        self.size_N2 = decoded.size_N2
        self.checksum_N = decoded.checksum_N
        self.layout = decoded.layout
        self._start_N = starts(self.size_N2, self.layout)
        self._file = file
        self._open = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._open)
        self._decoded = decoded
        self._warned = False
        self._lock = threading.Lock()

    def read(self, index_B: np.ndarray) -> np.ndarray:
        values_T, parts = self._room(index_B)
        for number, canvas in zip(index_B.tolist(), parts, strict=True):
            self._read(number, canvas.data)
            if crc32(canvas.data) != self.checksum_N[number]:
                canvas[:] = self._restored(number)
        return values_T

    def _read(self, number: int, memory: memoryview) -> None:
        """Fills memory with one canvas as far as the file can be read."""
        # Not mapped: where the file is cut short, or its disk fails, SIGBUS would end the process.
        with suppress(OSError):
            if sys.platform != "win32":
                os.preadv(self._open, [memory], int(self._start_N[number]))
                return
            with self._lock:
                os.lseek(self._open, int(self._start_N[number]), os.SEEK_SET)
                content = os.read(self._open, len(memory))
                memory[: len(content)] = content

    def _restored(self, number: int) -> np.ndarray:
        """A damaged canvas from its image; the file gets it, too, if it can be written."""
        file = self._file
        canvas = self._decoded.read(np.array([number]))
        if crc32(canvas.data) != self.checksum_N[number]:
            raise UserError(
                f"{file} is damaged, and the image of its canvas {number} is no longer what it "
                "was: delete the file to have it built anew"
            )
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s changed on the disk since it was written, first at canvas %d; what is damaged "
                "is decoded again", file, number,
            )  # fmt: skip
        try:
            if file.is_symlink() or file.stat().st_nlink > 1:  # who else reads it is not known
                raise OSError(errno.EMLINK, "it is a link")
            with file.open("r+b") as canvases:
                canvases.seek(int(self._start_N[number]))
                canvases.write(canvas.tobytes())
        except OSError as error:
            _log.warning("%s cannot be mended: %s", file, error.strerror)
        return canvas


# From a size V to test views of all images of a set, each 3 × V × V; None where they are those of
# the canvases, which shrank no image.
TestViews: TypeAlias = Callable[[int], Pixels | None]


def some_views(views: TestViews | None, index_B: np.ndarray) -> TestViews | None:
    """The test views of some images."""
    if views is None:
        return None

    @functools.cache
    def some(size: int) -> Pixels | None:
        pixels = views(size)
        return None if pixels is None else Subset(pixels, index_B)

    return some


_AT_ONCE = 65_536  # names that are decoded at a time


@final
class Names(Sequence[str]):
    """Strings that are decoded when they are read.

    Args:
        text: uint8, all names one after the other, in UTF-8; other bytes are kept as Python does.
        end_N: int64, where each ends.
    """

    def __init__(self, text: np.ndarray, end_N: np.ndarray) -> None:
        self.text = text
        self.end_N = end_N

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        text, ends = bytearray(), []
        for name in names:
            text += name.encode("utf-8", "surrogateescape")
            ends.append(len(text))
        return cls(np.frombuffer(text, np.uint8), np.array(ends, np.int64))

    @classmethod
    def joined(cls, parts: "Sequence[Names]") -> "Names":
        begin_P = np.cumsum([0, *(len(part.text) for part in parts)])
        ends = [part.end_N + begin for part, begin in zip(parts, begin_P[:-1], strict=True)]
        return cls(np.concatenate([part.text for part in parts]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.end_N)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        at = operator.index(index)
        at += len(self) if at < 0 else 0
        if not 0 <= at < len(self):
            raise IndexError(f"{index} of {len(self)} names")
        begin = int(self.end_N[at - 1]) if at else 0
        return _string(self.text[begin : int(self.end_N[at])].tobytes())

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _AT_ONCE):
            ends = self.end_N[first : first + _AT_ONCE].tolist()
            begin = start = int(self.end_N[first - 1]) if first else 0
            text = self.text[start : ends[-1]].tobytes()
            for end in ends:
                yield _string(text[begin - start : end - start])
                begin = end

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]


def _string(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


_TYPES = {
    "kept": torch.int64, "height": torch.int32, "width": torch.int32,
    "aspect": torch.float32, "checksum": torch.int32, "names": torch.uint8, "ends": torch.int64,
}  # fmt: skip


@final
@dataclass(frozen=True)
class Manifest:
    """What a canvas file holds; labels and names of classes are the source's.

    Attributes:
        version: Of the layout and of how canvases are made.
        source: Fingerprint of the source when this was built.
        side: Of a square with as many pixels as a canvas may have.
        content: Hash of the canvases and labels.
        index_N: int64, index in the source of each canvas.
        size_N2: int64, height and width of each canvas in pixels.
        aspect_N: float32, width / height of each original.
        checksum_N: uint32, CRC-32 of each canvas.
        skipped: Reason by name of every broken file.
        stacks: Names of files with several pages or frames, of which the first is here.
    """

    version: int
    source: str
    side: int
    content: str
    index_N: np.ndarray
    size_N2: np.ndarray
    aspect_N: np.ndarray
    checksum_N: np.ndarray
    identifiers: Names
    skipped: Mapping[str, str]
    stacks: Sequence[str] = ()
    reading: Reading = field(default_factory=Reading)

    def write(self, path: Path) -> None:
        """Atomically, with a digest."""
        arrays = {
            "kept": self.index_N,
            "height": self.size_N2[:, 0].astype(np.int32),
            "width": self.size_N2[:, 1].astype(np.int32),
            "aspect": self.aspect_N,
            "checksum": self.checksum_N.view(np.int32),
            "names": self.identifiers.text,
            "ends": self.identifiers.end_N,
        }
        described = {
            **{name: getattr(self, name) for name in ("version", "source", "side", "content")},
            "skipped": dict(self.skipped),
            "stacks": list(self.stacks),
            "reading": asdict(self.reading),
        }
        write_tensors(path, {name: torch.from_numpy(of) for name, of in arrays.items()}, described)

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        tensors, header = read_tensors(path, "it is built anew")
        said = read_metadata(header)
        try:
            if any(
                tensors[name].shape[1:] or tensors[name].dtype != of for name, of in _TYPES.items()
            ):
                raise ValueError("other arrays than are written")
            names = Names(tensors["names"].numpy(), tensors["ends"].numpy())
            size_N2 = np.stack([tensors["height"], tensors["width"]], axis=1).astype(np.int64)
            manifest = cls(
                int(said["version"]), str(said["source"]), int(said["side"]), str(said["content"]),
                tensors["kept"].numpy(), size_N2, tensors["aspect"].numpy(),
                tensors["checksum"].numpy().view(np.uint32),
                names, dict(said["skipped"]), tuple(said["stacks"]),
                read_reading(said["reading"]),
            )  # fmt: skip
            manifest._check()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{path} is damaged, it is no manifest: it is built anew") from error
        return manifest

    def _check(self) -> None:
        """Refuses what was written whole, but cannot be what a canvas file holds."""
        index_N, aspect_N, end_N = self.index_N, self.aspect_N, self.identifiers.end_N
        if not (
            self.side > 0
            and (self.size_N2 > 0).all()
            and len(index_N) == len(self.size_N2) == len(aspect_N) == len(self.checksum_N)
            and len(index_N) == len(end_N) > 0
            and index_N[0] >= 0
            and (index_N[1:] > index_N[:-1]).all()
            and ((aspect_N > 0) & np.isfinite(aspect_N)).all()
            and end_N[0] >= 0
            and (end_N[1:] >= end_N[:-1]).all()
            and end_N[-1] == len(self.identifiers.text)
            and all(isinstance(said, str) for said in (*self.skipped.values(), *self.stacks))
        ):
            raise ValueError("arrays that do not fit each other")


VERSION = 8  # of the layout, of how a canvas is made and of what its hash covers
MANIFEST = "safetensors"  # its ending
_LISTED = 10  # broken images that a message names
_SEEN = 64  # images of a set, by whose sizes its bytes are estimated


def named_after(name: str, asked: str = "") -> str:
    """How the files of a set are called in the cache: readable, and unique."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", name)[-40:].strip("-")
    return f"{readable}-{hashlib.blake2b(os.fsencode(name + asked), digest_size=4).hexdigest()}"


@dataclass(frozen=True)
class Request:
    """A request for the cache of a source.

    Attributes:
        side: Of a square with as many pixels as a canvas may have.
        folder: The cache folder.
        limit: Bytes up to which canvases are kept on disk; above, only the manifest is.
        max_broken: Share of the images that may be broken.
        workers: Number of decoding threads.
        find: From indices of images, or none for a sample, to how the files are read.
        asked: What `find` depends on beside the files.
    """

    source: Source
    side: int
    folder: Path
    limit: float
    max_broken: float
    workers: int
    find: Callable[[Sequence[int]], Reading] = lambda _: Reading()
    asked: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """That of the source and its readers; names of files have its beginning."""
        said = f"{self.source.fingerprint()} {readers()}"
        return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()

    @cached_property
    def reading(self) -> Reading:
        """How the files are read, where no manifest says it."""
        return self.find(())

    @cached_property
    def stem(self) -> str:
        """How the names of all files of the set begin, whatever its state."""
        return f"{named_after(self.source.whereabouts, self.asked)}-{self.side}px"

    def file(self, ending: str) -> Path:
        return self.folder / f"{self.stem}.{self.fingerprint[:16]}.{ending}"

    @property
    def lock(self) -> Path:
        return self.folder / f"{self.stem}.lock"


@dataclass(frozen=True)
class CachedSet:
    """A set in a cache folder.

    Attributes:
        name: How the names of its files begin.
        side: Of a square with as many pixels as a canvas may have.
        images: How many there are.
        stored: Bytes of the canvases; 0 where they are decoded on the fly.
        damaged: Canvases that changed since they were written; None where that is not known.
        readable: Whether the manifest is whole, and of this version.
    """

    name: str
    side: int
    images: int
    stored: int
    damaged: int | None = None
    readable: bool = True


def cached_sets(folder: Path, verify: bool = False) -> list[CachedSet]:
    """The sets of a cache folder, by name; `verify` reads every canvas for its checksum."""
    sets = []
    for path in sorted(folder.glob("*px.????????????????.safetensors")):
        name, file = path.name.partition(".")[0], path.with_suffix(".u8")
        stored = file.stat().st_size if file.is_file() else 0
        try:
            manifest = Manifest.read(path)
        except UserError:
            sets.append(CachedSet(name, 0, 0, stored, readable=False))
            continue
        damaged = _damaged(manifest, file) if verify else None
        sets.append(CachedSet(name, manifest.side, len(manifest.index_N), stored, damaged))
    return sets


def _damaged(manifest: Manifest, file: Path) -> int:
    """How many canvases of a file are not what was written."""
    if not file.is_file():
        return 0
    length_N = lengths(manifest.size_N2, manifest.reading.layout)
    count = len(manifest.checksum_N)
    written = list(zip(length_N.tolist(), manifest.checksum_N.tolist(), strict=True))
    with file.open("rb") as canvases:
        shown = track(written, f"verifying {file.name}", count, "images")
        return sum(crc32(canvases.read(length)) != checksum for length, checksum in shown)


def obtain(request: Request) -> tuple[Manifest, Path | None]:
    """Opens the cache of a source, building it first if it is missing, stale or damaged.

    Returns:
        The manifest, and the file of the canvases, None where they exceed the limit.
    """
    try:
        request.folder.mkdir(parents=True, exist_ok=True)
        cached = _read(request, tell=_log.debug)
        if cached is None:
            # Without locks, builds run side by side under names of their own and the last one
            # stays, which costs time but is right.
            with locked(request.lock):
                cached = _read(request)  # another process may have built it meanwhile
                if cached is None:
                    for path in request.folder.glob(f"{request.stem}.*"):  # of earlier states
                        ours = path.suffix in (".u8", f".{MANIFEST}")
                        if ours and request.fingerprint[:16] not in path.name:
                            path.unlink(missing_ok=True)
                    _build(request)
                    cached = _read(request)
    except OSError as error:
        raise UserError(
            f"cannot keep {request.source.name} in the cache {request.folder}: "
            f"{error.strerror or error}. Free some space, or name another folder as "
            "XDG_CACHE_HOME; mast pretrain has data.cache too, and data.cache_limit_gb, over "
            "which it decodes on the fly."
        ) from error
    assert cached is not None, f"{request.stem} does not fit its manifest right after it was built"
    refuse_too_many(request.source, cached[0].skipped, len(cached[0].index_N), request.max_broken)
    warn_of_broken(request.source, cached[0].skipped)
    warn_of_stacks(request.source.name, cached[0].stacks, len(request.source))
    return cached


def obtain_test_views(
    request: Request, index_N: np.ndarray, reading: Reading, size: int
) -> tuple[np.ndarray | None, Path | None]:
    """Opens the file of the test views of a source, writing it first if there is none that fits.

    Returns:
        CRC-32 of each view, and the file; neither where that would exceed the limit, or, with a
        warning, where the folder cannot be written.
    """
    if (needed := 3 * reading.layout.sheets * size**2 * len(index_N)) > request.limit:
        return None, None
    stored, sums = (request.file(f"v{size}.{ending}") for ending in ("u8", MANIFEST))
    said = {"version": VERSION, "source": request.fingerprint, "size": size}

    def read() -> np.ndarray | None:
        try:
            tensors, header = read_tensors(sums, "it is built anew")
            checksum_N = tensors["checksum"].numpy().view(np.uint32).copy()  # the file may be cut
            found = len(checksum_N), stored.stat().st_size
        except (UserError, OSError, KeyError):
            return None
        fits = found == (len(index_N), needed) and read_metadata(header).items() >= said.items()
        return checksum_N if fits else None

    def write() -> np.ndarray:
        checksums = array("I")
        view = partial(request.source.test_view, size=size, reading=reading)
        outcomes = decode_in_order(view, index_N.tolist(), request.workers)
        with replacing(stored) as unfinished, open(unfinished, "wb") as file:
            name = f"test views of {request.source.name}"
            for outcome in track(outcomes, name, len(index_N), "images"):
                if isinstance(outcome, BrokenImageError):
                    raise outcome
                file.write(outcome.tobytes())
                checksums.append(crc32(outcome.data))
        checksum_N = np.array(checksums, np.uint32)
        write_tensors(sums, {"checksum": torch.from_numpy(checksum_N.view(np.int32))}, said)
        return checksum_N

    try:
        with locked(request.lock):
            kept = read()
            return (write() if kept is None else kept), stored
    except OSError as error:
        _log.warning(
            "the test views of %s cannot be kept in %s (%s): every evaluation cuts them anew",
            request.source.name, request.folder, error.strerror or error,
        )  # fmt: skip
        return None, None


def _read(
    request: Request, tell: Callable[..., None] = _log.warning
) -> tuple[Manifest, Path | None] | None:
    """The finished cache, or None if there is none that fits."""
    path, stored = request.file(MANIFEST), request.file("u8")
    if not path.exists():
        return None
    try:
        manifest = Manifest.read(path)
    except UserError as error:
        tell("%s", error)
        return None
    expected_key = (VERSION, request.fingerprint, request.side)
    if (manifest.version, manifest.source, manifest.side) != expected_key:
        return None
    if manifest.index_N[-1] >= len(request.source):
        tell("%s does not match the %d images of %s; it is built anew.", path,
             len(request.source), request.source.name)  # fmt: skip
        return None
    expected = int(lengths(manifest.size_N2, manifest.reading.layout).sum())
    if expected > request.limit:
        return manifest, None
    if not stored.exists():
        return None
    actual = stored.stat().st_size
    if actual != expected:
        tell("%s has %d bytes where %d belong; it is built anew.", stored, actual, expected)
        return None
    return manifest, stored


def expected_bytes(source: Source, side: int, layout: Layout = RGB) -> float:
    """How many bytes the canvases of a set take, by the sizes of some images."""
    known = list[int]()
    for index in random.Random(0).sample(range(len(source)), min(_SEEN, len(source))):
        try:
            known.append(min(math.prod(source.size(index)), side**2))
        except Exception:  # a broken one takes no room
            known.append(0)
    return 3.0 * layout.sheets * len(source) * sum(known) / len(known)


def _build(request: Request, store: bool = False) -> None:
    """Decodes every image once and writes canvases and manifest, the manifest last.

    Canvases are stored if they may be within the limit, or `store` says that they are.
    """
    needed = expected_bytes(request.source, request.side, request.reading.layout)
    free = shutil.disk_usage(request.folder).free
    store = store or needed <= 2 * request.limit
    if needed <= request.limit and needed > free:
        raise OSError(f"it needs {in_gb(needed)} and {in_gb(free)} are free")
    # Plain writes, not a mapping: on a full disk a mapping kills the process without a word.
    with (
        replacing(request.file("u8")) if store else nullcontext(os.devnull) as unfinished,
        open(unfinished, "wb") as file,
    ):
        manifest = _decode_all(request, file)
        if (deep := sorted(request.source.deep)) and not request.reading.layout.deep:
            _log.warning(
                "%d images of %s have more than 8 bits, and none of them was in the sample: all "
                "are read again by their range", len(deep), request.source.name,
            )  # fmt: skip
            vars(request)["reading"] = request.find(deep)
            if store:
                file.seek(0)
                file.truncate()
            manifest = _decode_all(request, file)
    fits = lengths(manifest.size_N2, manifest.reading.layout).sum() <= request.limit
    if fits and not store:  # the estimate was too high
        _build(request, store=True)
        return
    if not fits:
        request.file("u8").unlink(missing_ok=True)
    request.file(MANIFEST).unlink(missing_ok=True)  # whatever is in its place
    manifest.write(request.file(MANIFEST))


def _decode_all(request: Request, file: IO[bytes]) -> Manifest:
    """Writes every canvas that decodes; raises as soon as too many images are broken."""
    source = request.source
    skipped: dict[str, str] = {}
    kept, sizes, identifiers = array("q"), array("q"), list[str]()
    aspect, checksums = array("f"), array("I")
    content, written = hashlib.blake2b(digest_size=16), 0
    canvas = partial(source.canvas, side=request.side, reading=request.reading)
    outcomes = decode_in_order(canvas, range(len(source)), request.workers)
    shown = track(outcomes, f"reading {source.name}", len(source), "images")
    for index, outcome in enumerate(shown):
        if isinstance(outcome, BrokenImageError):
            skipped[source.identifier(index)] = outcome.reason
            if len(skipped) >= _LISTED:
                refuse_too_many(source, skipped, len(kept), request.max_broken)
            continue
        pixels = outcome[0].tobytes()
        written += len(pixels)
        if written <= request.limit:
            file.write(pixels)
        content.update(pixels)
        checksums.append(crc32(pixels))
        kept.append(index)
        sizes.extend(outcome[0].shape[-3:-1])
        identifiers.append(source.identifier(index))
        aspect.append(outcome[1])
    refuse_too_many(source, skipped, len(kept), request.max_broken)
    index_N, aspect_N = np.array(kept, np.int64), np.array(aspect, np.float32)
    size_N2 = np.array(sizes, np.int64).reshape(-1, 2)
    content.update(size_N2.tobytes())
    content.update(aspect_N.tobytes())  # views are cut by it
    content.update(b"" if request.reading == Reading() else repr(request.reading).encode())
    for label_N in (*source.targets.values(), *source.multilabels.values()):
        content.update(label_N[index_N].tobytes())
    return Manifest(
        VERSION, request.fingerprint, request.side, content.hexdigest(), index_N, size_N2, aspect_N,
        np.array(checksums, np.uint32), Names.of(identifiers), skipped,
        [source.identifier(index) for index in sorted(source.stacks)], request.reading,
    )  # fmt: skip


def refuse_too_many(
    source: Source, broken: Mapping[str, str], whole: int, max_broken: float
) -> None:
    """Raises if more images are broken than the user allows, or none is left."""
    total = len(source)
    if len(broken) == total:
        raise UserError(
            f"none of the {total} images of {source.name} can be decoded:\n{_lines(broken)}"
        )
    if len(broken) > max_broken * total:
        raise UserError(
            f"{len(broken)} of the first {len(broken) + whole} images of "
            f"{source.name} are broken, and max_broken = {max_broken:g} allows "
            f"{int(max_broken * total)} of all {total}. Replace or remove them, or raise "
            f"max_broken:\n{_lines(broken)}"
        )


def warn_of_broken(source: Source, broken: Mapping[str, str]) -> None:
    """Names images that are left out."""
    if broken:
        _log.warning(
            "%d of %d images of %s are broken and are skipped:\n%s",
            len(broken), len(source), source.name, _lines(broken),
        )  # fmt: skip


def _lines(broken: Mapping[str, str]) -> str:
    """The first ten, a line each."""
    lines = [f"  {name}: {reason}" for name, reason in list(broken.items())[:_LISTED]]
    more = len(broken) - len(lines)
    return "\n".join([*lines, *([f"  … and {more} more"] if more else [])])
