"""The canvas file and its manifest on disk: found, checked, or built.

Two files a set, named after what they hold:

    <set>-<key>-<side>px.<source fingerprint>.u8      every canvas, its sheets of H × W × 3 bytes
    <set>-<key>-<side>px.<source fingerprint>.safetensors    the manifest, written last

and two more for each size of test views that was asked for, if canvases are smaller than images:

    <set>-<key>-<side>px.<source fingerprint>.v<size>.u8     every view, its planes of size × size
    <set>-<key>-<side>px.<source fingerprint>.v<size>.safetensors   their checksums, written last

Both are written under a temporary name and then renamed, so a killed build leaves nothing that
looks finished. A set over the size limit has the manifest alone: its images were all decoded once,
so that the broken ones are known.

Legend: N images, H and W height and width of a canvas, at most side × side pixels.
"""

import hashlib
import logging
import math
import os
import random
import re
import shutil
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO
from zlib import crc32

import numpy as np
import torch

from mast.core.checkpoint import replacing
from mast.core.display import track
from mast.core.errors import UserError
from mast.core.files import locked
from mast.core.reading import RGB, Layout, Reading
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.data.decode import BrokenImageError
from mast.data.manifest import Manifest, Names
from mast.data.pixels import decode_in_order, lengths
from mast.data.source import Source, tell_of_stacks

VERSION = 7  # of the layout, of how a canvas is made and of what its hash covers

MANIFEST = "safetensors"  # its ending
_LISTED = 10  # broken images that a message names
_SEEN = 64  # images of a set, by whose sizes its bytes are estimated

_log = logging.getLogger("mast")


def named_after(name: str, asked: str = "") -> str:
    """How the files of a set are called in the cache: readable, and unique."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", name)[-40:].strip("-")
    return f"{readable}-{hashlib.blake2b(os.fsencode(name + asked), digest_size=4).hexdigest()}"


@dataclass(frozen=True)
class Request:
    """A request for the cache of a source.

    Attributes:
        source: The images.
        side: Of a square with as many pixels as a canvas may have.
        folder: The cache folder.
        limit: Bytes up to which canvases are kept on disk; above, only the manifest is.
        max_broken: Share of the images that may be broken.
        workers: Number of decoding threads.
        find: Finds how the files are read, where that is not known, by those of some indices; by a
            sample if there are none.
        asked: What that depends on beside the files; nothing by default.
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
        """The source's state, of which the files bear the beginning in their names."""
        return self.source.fingerprint()

    @cached_property
    def reading(self) -> Reading:
        """How the files are read, where no manifest says it."""
        return self.find(())

    @cached_property
    def stem(self) -> str:
        """What the files of all states of one set have in common; readable, and unique."""
        return f"{named_after(self.source.whereabouts, self.asked)}-{self.side}px"

    def file(self, ending: str) -> Path:
        """The file of this state with a given ending."""
        return self.folder / f"{self.stem}.{self.fingerprint[:16]}.{ending}"


@dataclass(frozen=True)
class Kept:
    """A set in a cache folder.

    Attributes:
        name: Readable beginning of its files' names.
        side: Of a square with as many pixels as a canvas may have.
        images: How many there are.
        stored: Bytes of the canvases; 0 where they are decoded on the fly.
        damaged: Canvases that changed since they were written; None: not verified, or the manifest
            itself is damaged.
        readable: Whether the manifest is whole.
        earlier: Whether an earlier version of this program wrote it.
    """

    name: str
    side: int
    images: int
    stored: int
    damaged: int | None = None
    readable: bool = True
    earlier: bool = False


def kept(folder: Path, verify: bool = False) -> list[Kept]:
    """The sets of a cache folder, by name.

    Args:
        folder: It need not exist.
        verify: Read every canvas and compare its checksum.
    """
    sets = []
    for path in sorted(folder.glob("*px.????????????????.safetensors")):
        name, file = path.name.partition(".")[0], path.with_suffix(".u8")
        stored = file.stat().st_size if file.is_file() else 0
        try:
            manifest = Manifest.read(path)
        except UserError:
            earlier = Manifest.version_of(path) in range(VERSION)
            sets.append(Kept(name, 0, 0, stored, readable=False, earlier=earlier))
            continue
        damaged = _damaged(manifest, file) if verify else None
        sets.append(Kept(name, manifest.side, len(manifest.kept_N), stored, damaged))
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

    Args:
        request: The set and how to keep it.

    Returns:
        The manifest, and the file of the canvases, None where they exceed the limit.

    Raises:
        UserError: If too many images are broken, or the folder cannot be written.
    """
    try:
        request.folder.mkdir(parents=True, exist_ok=True)
        cached = _read(request, tell=_log.debug)
        if cached is None:
            # Without locks, builds run side by side under names of their own and the last one
            # stays, which costs time but is right.
            with locked(request.folder / f"{request.stem}.lock") as alone:
                cached = _read(request)  # another process may have built it meanwhile
                if cached is None:
                    _remove_stale(request, unfinished=alone)
                    _build(request)
                    cached = _read(request)
    except OSError as error:
        raise UserError(
            f"cannot keep {request.source.name} in the cache {request.folder}: "
            f"{error.strerror or error}. Free some space, or name another folder as "
            "XDG_CACHE_HOME; mast pretrain has --data.cache too, and --data.cache_limit_gb, over "
            "which it decodes on the fly."
        ) from error
    assert cached is not None, f"{request.stem} does not fit its manifest right after it was built"
    _refuse_too_many(request, cached[0].skipped, len(cached[0].kept_N))
    if broken := cached[0].skipped:
        _log.warning(
            "%d of %d images of %s are broken and are skipped:\n%s",
            len(broken), len(request.source), request.source.name, _lines(broken),
        )  # fmt: skip
    tell_of_stacks(request.source.name, cached[0].stacks, len(request.source))
    return cached


def obtain_test_views(
    request: Request, kept_N: np.ndarray, reading: Reading, size: int
) -> tuple[np.ndarray | None, Path | None]:
    """Opens the file of the test views of a source, writing it first if there is none that fits.

    Args:
        request: The set, of which canvases are there.
        kept_N: Index in the source of each image.
        reading: How they are read.
        size: Side of the views in pixels.

    Returns:
        CRC-32 of each view, and the file; neither where that would exceed the limit, or, with a
        warning, where the folder cannot be written.

    Raises:
        UserError: If an image is no longer what it was.
    """
    if (needed := 3 * reading.layout.sheets * size**2 * len(kept_N)) > request.limit:
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
        fits = found == (len(kept_N), needed) and read_metadata(header).items() >= said.items()
        return checksum_N if fits else None

    def write() -> np.ndarray:
        checksums = array("I")
        view = partial(request.source.test_view, size=size, reading=reading)
        outcomes = decode_in_order(view, kept_N.tolist(), request.workers)
        with replacing(stored) as unfinished, open(unfinished, "wb") as file:
            name = f"test views of {request.source.name}"
            for outcome in track(outcomes, name, len(kept_N), "images"):
                if isinstance(outcome, BrokenImageError):
                    raise outcome
                file.write(outcome.tobytes())
                checksums.append(crc32(outcome.data))
        checksum_N = np.array(checksums, np.uint32)
        write_tensors(sums, {"checksum": torch.from_numpy(checksum_N.view(np.int32))}, said)
        return checksum_N

    try:
        with locked(request.folder / f"{request.stem}.lock"):
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
    """The finished cache, or None if there is none that fits; damage is told of."""
    path, stored = request.file(MANIFEST), request.file("u8")
    if not path.exists():
        return None
    if Manifest.version_of(path) not in (VERSION, None):
        return None
    try:
        manifest = Manifest.read(path)
    except UserError as error:
        tell("%s", error)
        return None
    expected_key = (VERSION, request.fingerprint, request.side)
    if (manifest.version, manifest.source, manifest.side) != expected_key:
        return None
    known = len(manifest.kept_N) + len(manifest.skipped)
    if manifest.kept_N[-1] >= len(request.source) or known < len(request.source):
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
    """How many bytes the canvases of a set take, by the sizes of some images.

    Args:
        source: The images.
        side: Of a square with as many pixels as a canvas may have.
        layout: Of the canvases.
    """
    known = list[int]()
    for index in random.Random(0).sample(range(len(source)), min(_SEEN, len(source))):
        try:
            known.append(min(math.prod(source.size(index)), side**2))
        except Exception:  # a broken one takes no room
            known.append(0)
    return 3.0 * layout.sheets * len(source) * sum(known) / len(known)


def _build(request: Request) -> None:
    """Decodes every image once and writes data and manifest, the manifest last."""
    needed = expected_bytes(request.source, request.side, request.reading.layout)
    free = shutil.disk_usage(request.folder).free
    store = needed <= 2 * request.limit  # than which no estimate is farther off
    if needed <= request.limit and needed > free:
        raise OSError(f"it needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free")
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
    if lengths(manifest.size_N2, manifest.reading.layout).sum() > request.limit:
        request.file("u8").unlink(missing_ok=True)
    request.file(MANIFEST).unlink(missing_ok=True)  # whatever is in its place
    manifest.write(request.file(MANIFEST))


def _decode_all(request: Request, file: IO[bytes]) -> Manifest:
    """Writes every canvas that decodes; raises as soon as too many do not."""
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
                _refuse_too_many(request, skipped, len(kept))
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
    _refuse_too_many(request, skipped, len(kept))
    kept_N, aspect_N = np.array(kept, np.int64), np.array(aspect, np.float32)
    size_N2 = np.array(sizes, np.int64).reshape(-1, 2)
    content.update(size_N2.tobytes())
    content.update(aspect_N.tobytes())  # views are cut by it
    content.update(b"" if request.reading == Reading() else repr(request.reading).encode())
    for label_N in (*source.targets.values(), *source.multilabels.values()):
        content.update(label_N[kept_N].tobytes())
    return Manifest(
        VERSION, request.fingerprint, request.side, content.hexdigest(), kept_N, size_N2, aspect_N,
        np.array(checksums, np.uint32), Names.of(identifiers), skipped,
        [source.identifier(index) for index in sorted(source.stacks)], request.reading,
    )  # fmt: skip


def _refuse_too_many(request: Request, broken: Mapping[str, str], whole: int) -> None:
    """Raises if more images are broken than the user allows, or none is left."""
    total = len(request.source)
    if len(broken) == total:
        raise UserError(
            f"none of the {total} images of {request.source.name} can be decoded:\n{_lines(broken)}"
        )
    if len(broken) > request.max_broken * total:
        raise UserError(
            f"{len(broken)} of the first {len(broken) + whole} images of "
            f"{request.source.name} are broken, and max_broken = {request.max_broken:g} allows "
            f"{int(request.max_broken * total)} of all {total}. Replace or remove them, or raise "
            f"max_broken:\n{_lines(broken)}"
        )


def _lines(broken: Mapping[str, str]) -> str:
    """The first ten, a line each."""
    lines = [f"  {name}: {reason}" for name, reason in list(broken.items())[:_LISTED]]
    more = len(broken) - len(lines)
    return "\n".join([*lines, *([f"  … and {more} more"] if more else [])])


def _remove_stale(request: Request, unfinished: bool) -> None:
    """Removes files of earlier states of the set and of earlier versions of this program.

    Args:
        request: The set.
        unfinished: Whether to remove what killed builds of earlier versions left, too.
    """
    for path in request.folder.glob(f"{request.stem}.*"):
        other = request.fingerprint[:16] not in path.name
        stale = path.suffix in (".u8", f".{MANIFEST}") and other
        killed = unfinished and path.suffix in (".unfinished", ".partial")
        if stale or killed or path.suffix == ".json":  # the manifest of an earlier version
            path.unlink(missing_ok=True)
    name = named_after(request.source.whereabouts)
    for path in request.folder.glob(f"{name}-*px.*.{MANIFEST}"):
        if Manifest.version_of(path) in range(VERSION):
            path.with_suffix(".u8").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
