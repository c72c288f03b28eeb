"""Read and write files that users name; never overwrite files of another kind."""

import codecs
import csv
import hashlib
import io
import json
import math
import os
import re
import shlex
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mast.core.errors import UserError

_HALVES = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")  # encoding that preserves undecodable bytes


def named(path: str | Path) -> Path:
    """Expand `~` in a path; `~unknown_user` is left unchanged."""
    text = os.fspath(path)  # Path.expanduser raises for unknown users
    return Path(text if "\0" in text else os.path.expanduser(text))


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/mast`, or `~/.cache/mast` if it is not set."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mast"
    except RuntimeError as error:
        raise UserError("no home folder for the cache: set XDG_CACHE_HOME") from error


def short_name(name: str, most: int = 200, whole: str = "") -> str:
    """A name of at most `most` bytes, so that extensions fit; longer ones are cut, with a hash."""
    if len(os.fsencode(name)) <= most:
        return name
    short = os.fsencode(name)[:most].decode(errors="ignore")
    return f"{short}-{hashlib.sha256(os.fsencode(whole or name)).hexdigest()[:6]}"


def as_word(path: str | Path) -> str:
    """A path as a command-line argument, never mistaken for an option."""
    text = str(path)
    return os.path.join(".", text) if text.startswith("-") else text


def quoted(path: str | Path) -> str:
    """A path quoted for the shell, to show in a command."""
    return shlex.quote(as_word(path))


def out_file(
    out: str | Path, kinds: Mapping[str, Callable[[Path], bool]], option: str = "out"
) -> Path:
    """Check an output file before computing its content.

    Args:
        out: The file. If it is a symbolic link, its target is checked.
        kinds: Allowed extensions, each with a predicate for existing files of the kind that the
            command writes; only such a file, or an empty one, may be replaced.
        option: Name of the option, for the error.
    """
    path = named(out)
    if path.suffix not in kinds:
        listed = " or ".join(filter(None, (", ".join([*kinds][:-1]), [*kinds][-1])))
        raise UserError(f"{option}: expected a name ending in {listed}, got {path}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UserError(f"{option}: .parquet needs `pip install 'mast-ssl[parquet]'`")
    target = Path(os.path.realpath(path))
    if kind := special(target):
        raise UserError(f"{option}: expected a file, {path} is {kind}")
    place = next(parent for parent in target.parents if parent.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise UserError(f"{option}: cannot write {path}, as {place} is not a writable folder")
    if target.exists() and target.stat().st_size and not kinds[path.suffix](target):
        raise UserError(
            f"{option}: {path} exists and was not written by this command; choose another "
            "name or remove it"
        )
    return path


def out_folder(out: str | Path) -> Path:
    """Check an output folder, which may exist."""
    path = named(out)
    if path.exists() and not path.is_dir():
        raise UserError(f"out: expected a folder, {path} is none")
    return path


def refuse_others(folder: Path, ours: Collection[str], command: str) -> None:
    """Refuse an output folder with files other than a command's own; hidden ones are ignored."""
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set[str]()
    if others := {name for name in names if not name.startswith(".")} - {*ours}:
        raise UserError(
            f"out: expected a new folder or one that `{command}` wrote; {folder} has {min(others)}"
        )


def in_gb(size: float) -> str:
    """Bytes as GB, or below 0.1 GB as MB or kB."""
    if size < 1e5:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.1f} MB" if size < 1e8 else f"{size / 1e9:.1f} GB"


def special(path: Path) -> str | None:
    """Kind of a path that is no regular file, such as a named pipe, which blocks if opened."""
    if path.is_file() or not path.exists():
        return None
    return "a folder" if path.is_dir() else "a device or a pipe"


MISSING = -1, -1


def state_of(file: Path | os.DirEntry[str]) -> tuple[int, int]:
    """Size in bytes and modification time in ns; `MISSING` if it is no file."""
    try:
        status = file.stat()
    except (OSError, ValueError):  # no such file, or an invalid name
        return MISSING
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else MISSING


def read_bytes(path: Path, most: int = -1) -> bytes:
    """Content of a file, or its first bytes."""
    try:
        if kind := special(path):
            raise UserError(f"{path} is {kind}: expected a file")
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def read_text(path: Path) -> str:
    """Content of a UTF-8 text file, or UTF-16 with a byte-order mark."""
    content = read_bytes(path)
    by_mark = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if by_mark else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}; save it as UTF-8"
        ) from error


def cells(line: str) -> list[str]:
    """A line of a list, and its first cell, in case a spreadsheet saved it."""
    quoted = re.match(r'"((?:[^"]|"")*)"', line)
    return [line, quoted[1].replace('""', '"') if quoted else re.split("[,;\t]", line)[0]]


def read_rows(path: Path, known: Collection[str]) -> list[list[str]]:
    """The rows of a .csv, with cells separated by commas, semicolons or tabs.

    Args:
        path: The file.
        known: Possible names of one column, in lower case, to detect the separator.
    """
    text = re.sub(r"\Asep=.\r?\n", "", read_text(path))
    ways = list[list[list[str]]]()
    for sign in ",;\t":
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=sign) if row]
        except csv.Error as error:
            raise UserError(f"{path} is not a table: {error}") from error
        header = [cell.strip() for cell in rows[0]] if rows else []
        ways.append([header, *rows[1:]] if rows else [])
        if not {cell.lower() for cell in header}.isdisjoint(known):
            return ways[-1]
    return ways[0]


def read_json(path: Path) -> Any:
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise UserError(f"{path} is damaged: it {error}") from error


def parse_json(text: str | bytes) -> Any:
    """Parse JSON with finite numbers; the ValueError's message continues a sentence with "it"."""
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from error


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"has the number {text:.20}, which is not finite")
    return value


def as_unicode(text: str) -> str:
    """Make file names that Python could not decode valid UTF-8.

    Python stores such bytes as lone surrogates. They are decoded as UTF-8, in case only the locale
    was wrong, and otherwise written as \\xff. Other lone surrogates, which JSON may contain, are
    written as \\ud800.
    """
    whole = _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    return whole.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def spelling(name: str) -> str:
    """A name normalized for comparison across Unicode forms, locales and lists."""
    return name if name.isascii() else unicodedata.normalize("NFC", as_unicode(name))


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a lock during the block; yields whether it succeeded.

    It fails on file systems without locks. Without `wait`, raises `filelock.Timeout` if another
    process holds the lock.
    """
    lock = FileLock(path, timeout=-1 if wait else 0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise
    except OSError:  # such as NFS without its daemon
        pass
    try:
        yield lock.is_locked
    finally:
        with suppress(OSError):
            lock.release()
