"""A cache of facts and features of single images.

One SQLite file has the digests of files, facts of images, and features by encoder and image. The
key of an image is the digest of its file's content, so renamed or moved photos are recognized, and
only new photos of a folder are encoded. Several processes may share a store.

Legend: N images, D dimensions, B bits of a perceptual hash in 8 orientations.
"""

import hashlib
import logging
import os
import sqlite3
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple, final
from zlib import crc32

import numpy as np

from mast.core.compute import one_thread
from mast.core.display import track
from mast.core.errors import UserError
from mast.core.launch import cores

VERSION = 4  # version of the tables and their meaning
WAIT_S = 60.0  # seconds to wait for another writer
SIZE = 16  # bytes of a key
_ROWS = 1000  # computed rows between writes
_PAGE = 32_768  # bytes of a page, enough for most rows of features
_log = logging.getLogger("mast")
# Files that this process could not read or write (True), and files that it recreated.
_failed, _anew = set[tuple[Path, bool]](), set[Path]()
# Codes of SQLite for errors in the content of a file.
_WITHIN = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT,
           sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_NOTADB}  # fmt: skip
# Errors of damaged files, whose values may be of any type, and of the disk.
_ERRORS = sqlite3.Error, OSError, TypeError, ValueError, OverflowError


class Facts(NamedTuple):
    """Facts of an image, without its pixels."""

    height: int  # of its canvas, as the width
    width: int
    aspect: float  # width / height of the original
    full_height: int  # of the original, in pixels
    full_width: int
    file_bytes: int  # of its file; 0 of one in a file of many
    taken: str  # its EXIF date, such as "2026:11:29 15:47:05"; "" where there is none
    sharpness: float  # `hashes.sharpness_and_border`
    border: float  # share covered by a plain border
    pixels: bytes  # digest of its canvas
    hashes: bytes  # its perceptual hashes (8, B), int8
    stack: int  # 1 if its file has other pages


_TABLES = f"""
create table if not exists files (path blob primary key, state, digest) without rowid;
create table if not exists images
    (key blob primary key, {", ".join(Facts._fields)}, checksum) without rowid;
create table if not exists encoders (name primary key, about) without rowid;
create table if not exists features (encoder, key blob, row, checksum, primary key (encoder, key));
"""


class Kept(NamedTuple):
    """Features of an encoder in the store."""

    name: str
    about: str
    images: int
    bytes: int


def key_of(*parts: object) -> bytes:
    """A key from descriptive parts."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=SIZE).digest()


def _is_damage(error: Exception) -> bool:
    """Whether the content of a file caused an error."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    return not isinstance(error, OSError) and code in _WITHIN


@final
class ImageStore:
    """A store in a folder, which may be deleted.

    A damaged store is recreated; an unusable one counts as empty. Both give one warning.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"images-{VERSION}.sqlite"

    @property
    def keeps(self) -> bool:
        """Whether no access failed yet."""
        return all(file != self.file for file, _ in _failed)

    @contextmanager
    def _open(self, write: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection for a block, which is one transaction; a file error ends the block.

        If the database cannot be opened, an empty one in memory replaces it.
        """
        try:
            database = self._connect(write, ":memory:" if (self.file, write) in _failed else None)
        except _ERRORS as error:
            self._note(error, write)
            database = self._connect(write, ":memory:")
        with closing(database):  # rolls back
            try:
                yield database
                database.commit()
            except _ERRORS as error:
                self._note(error, write)

    def _connect(self, write: bool, place: str | None = None) -> sqlite3.Connection:
        """Connect to the file, or another place, and begin a transaction."""
        if place is None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            if self.file.exists() and not self.file.is_file():
                raise OSError("not a regular file")
        database = sqlite3.connect(place or self.file, timeout=WAIT_S, isolation_level=None)
        try:
            if not database.execute("pragma schema_version").fetchone()[0]:
                database.execute(f"pragma page_size = {_PAGE}")
                database.executescript(f"begin immediate; {_TABLES} commit;")
            database.execute("begin immediate" if write else "begin")
        except BaseException:
            database.close()
            raise
        return database

    def _note(self, error: Exception, write: bool) -> None:
        """Remove a damaged store, once; after that, stop using it."""
        if _is_damage(error) and self.file not in _anew:
            _anew.add(self.file)
            with suppress(OSError):  # it stays damaged
                self.file.unlink(missing_ok=True)
                _log.warning("%s is damaged (%s): recreating it", self.file, error)
            return
        if self.keeps:
            _log.warning("cannot cache in %s: %s", self.file, error)
        _failed.add((self.file, write))

    # --------------------------------------------------------------------------------- files

    def digests(self, files: Sequence[Path]) -> list[bytes]:
        """The digest of each file's content, if it exists.

        Files with unchanged size, times and inode are not read.
        """
        paths = [os.fsencode(os.path.abspath(file)) for file in files]
        known, found, new = dict[bytes, tuple[str, bytes]](), list[bytes](), []
        with self._open() as database:
            rows = _select(database, "select * from files where path", paths)
            known = {path: (state, digest) for path, state, digest in rows}
        for path in paths:
            state, (before, digest) = _state(path), known.get(path, ("", b""))
            if state is None or before != state:
                digest = _digest(path) if state is not None else b""
                if state and digest and _state(path) == state:  # unchanged while reading
                    new.append((path, state, digest))
            found.append(digest or os.urandom(SIZE))  # forget unreadable files
        if new:
            with self._open(write=True) as database:
                database.executemany("insert or replace into files values (?, ?, ?)", new)
        return found

    # --------------------------------------------------------------------------------- facts

    def facts(self, keys: Sequence[bytes]) -> dict[bytes, Facts]:
        """Cached facts of images, by key."""
        found = dict[bytes, Facts]()
        with self._open() as database:
            for key, *values, checksum in _select(database, "select * from images where key", keys):
                if _checksum(facts := Facts(*values)) == checksum:
                    found[key] = facts
        return found

    def add_facts(self, facts: Mapping[bytes, Facts]) -> None:
        """Cache facts of images."""
        with self._open(write=True) as database:
            rows = [(key, *each, _checksum(each)) for key, each in facts.items()]
            marks = ", ".join("?" * (2 + len(Facts._fields)))
            database.executemany(f"insert or replace into images values ({marks})", rows)

    # ------------------------------------------------------------------------------ features

    def features(self, encoder: str, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Cached features of images.

        Args:
            encoder: Key of the encoder: all that its features depend on, except the images.
            keys: Of the images.

        Returns:
            features_ND in float32, and whether each is cached, (N,); D is 0 if none is.
        """
        features_ND, known_N = np.empty((len(keys), 0), np.float32), np.zeros(len(keys), bool)
        places, damaged = defaultdict[bytes, list[int]](list), 0
        for at, key in enumerate(keys):
            places[key].append(at)
        with self._open() as database:
            of_encoder = f"select key, row, checksum from features where encoder = '{encoder}'"
            for key, row, checksum in _select(database, f"{of_encoder} and key", [*places]):
                if crc32(row) != checksum:
                    damaged += 1
                    continue
                if not features_ND.size:
                    features_ND = np.zeros((len(keys), len(row) // 4), np.float32)
                features_ND[places[key]] = np.frombuffer(row, "<f4")
                known_N[places[key]] = True
        if damaged:
            _log.warning("%s: %d damaged rows, encoding these images again", self.file, damaged)
        return features_ND, known_N

    def add_features(
        self, encoder: str, keys: Sequence[bytes], features_ND: np.ndarray, about: str = ""
    ) -> None:
        """Cache features; `about` is a readable name of the encoder."""
        values = [row.tobytes() for row in np.asarray(features_ND, "<f4")]
        rows = [(encoder, key, row, crc32(row)) for key, row in zip(keys, values, strict=True)]
        with self._open(write=True) as database:
            database.execute("insert or ignore into encoders values (?, ?)", [encoder, about])
            database.executemany("insert or replace into features values (?, ?, ?, ?)", rows)

    def computed(
        self,
        encoder: str,
        keys: Sequence[bytes],
        look: Callable[[int], Sequence[float] | np.ndarray],
        shown: tuple[str, str],
        about: str,
    ) -> np.ndarray:
        """Cached features, (N, D) float32; `look` computes missing rows by index, in threads.

        Args:
            shown: Description of the work and unit of the rows, for the display of progress.
        """
        features_ND, known_N = self.features(encoder, keys)
        new = np.flatnonzero(~known_N).tolist()
        with one_thread(), ThreadPoolExecutor(cores()) as pool:
            rows = track(pool.map(look, new), shown[0], len(new), shown[1])
            for start in range(0, len(new), _ROWS):
                part = new[start : start + _ROWS]
                some_MD = np.array([*islice(rows, len(part))], np.float32)
                self.add_features(encoder, [keys[at] for at in part], some_MD, about)
                if not features_ND.size:
                    features_ND = np.zeros((len(keys), some_MD.shape[1]), np.float32)
                features_ND[part] = some_MD
        return features_ND

    # -------------------------------------------------------------------------------- upkeep

    def kept(self) -> list[Kept]:
        """Summary of each encoder's features."""
        if not self.file.exists():
            return []
        counted = (
            "select name, about, count(key), total(length(row)) from encoders "
            "left join features on name = encoder group by name order by about, name"
        )
        found = list[Kept]()
        with self._open() as database:
            found += [Kept(name, str(about), images, int(size))
                      for name, about, images, size in database.execute(counted)]  # fmt: skip
        return found

    def forget(self, names: Iterable[str] | None = None) -> None:
        """Remove the features of some encoders; None removes everything."""
        try:
            with closing(self._connect(write=True)) as database:  # other processes may be writing
                for table in ("files", "images", "encoders", "features") if names is None else ():
                    database.execute(f"delete from {table}")
                for name in names or ():
                    database.execute("delete from features where encoder = ?", [name])
                    database.execute("delete from encoders where name = ?", [name])
                database.commit()
                with suppress(sqlite3.OperationalError):  # other processes are reading
                    database.execute("vacuum")
        except (sqlite3.Error, OSError) as error:
            if names is not None or not _is_damage(error):
                raise UserError(f"forget: {self.file} cannot be changed: {error}") from error
            self.file.unlink(missing_ok=True)


_AT_ONCE = 30_000  # values per statement; SQLite's limit is 32,766


def _select(database: sqlite3.Connection, what: str, among: Sequence[bytes]) -> Iterator[tuple]:
    """Rows whose last named column has one of the values."""
    for start in range(0, len(among), _AT_ONCE):
        part = among[start : start + _AT_ONCE]
        marks = ",".join("?" * len(part))
        yield from database.execute(f"{what} in ({marks})", part)


def _checksum(facts: Facts) -> int:
    return crc32(repr(facts).encode())


def _state(file: Path | bytes) -> str | None:
    """State of a file that changes when it is written or replaced; None if it is no file."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return None
    state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return repr(state) if stat.S_ISREG(status.st_mode) else None


def _digest(file: bytes) -> bytes:
    """Digest of a file's content; empty if unreadable."""
    try:
        with open(file, "rb") as opened:
            content = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=SIZE))
        return content.digest()
    except OSError:
        return b""
