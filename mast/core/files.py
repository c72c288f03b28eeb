"""Files that users name: read whole, written over none of another kind, or refused in one line."""

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

_HALVES = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")  # of characters, but for undecoded bytes


def named(path: str | Path) -> Path:
    """The path that a user wrote, its `~` replaced; that of an unknown user stays as it is."""
    text = os.fspath(path)  # Path.expanduser raises where there is no such user
    return own_form(Path(text if "\0" in text else os.path.expanduser(text)))


def own_form(path: Path) -> Path:
    """The path, each name in the Unicode form in which it is there, such as that of a Mac."""
    if str(path).isascii() or os.path.exists(path):
        return path
    forms = [unicodedata.normalize(form, path.name) for form in ("NFC", "NFD")]
    others = [own_form(path.parent) / name for name in (path.name, *forms)]
    return next(filter(os.path.exists, others), path)


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/mast`, or `~/.cache/mast` where that is not set."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mast"
    except RuntimeError as error:
        raise UserError("there is no home folder for the cache: set XDG_CACHE_HOME") from error


def short_name(name: str, most: int = 200, whole: str = "") -> str:
    """A name of `most` bytes, so that endings fit behind it; a longer one is cut, with a hash."""
    if len(os.fsencode(name)) <= most:
        return name
    short = os.fsencode(name)[:most].decode(errors="ignore")
    return f"{short}-{hashlib.sha256(os.fsencode(whole or name)).hexdigest()[:6]}"


def as_word(path: str | Path) -> str:
    """A path as a word that a command of this program reads as one, not as an option."""
    text = str(path)
    return os.path.join(".", text) if text.startswith("-") else text


def quoted(path: str | Path) -> str:
    """A path as a shell takes it, in a command of this program that is shown."""
    return shlex.quote(as_word(path))


def out_file(
    out: str | Path, kinds: Mapping[str, Callable[[Path], bool]], option: str = "out"
) -> Path:
    """The file that a user names to be written, checked before there is anything to write.

    Args:
        out: The file. Where it is a symbolic link, the file that it points to is looked at.
        kinds: The endings that it may have, each with what says whether a file that is there is of
            the kind that the command writes; only such a file, or an empty one, is replaced.
        option: What names it, for the error.
    """
    path = named(out)
    if path.suffix not in kinds:
        listed = " or ".join(filter(None, (", ".join([*kinds][:-1]), [*kinds][-1])))
        raise UserError(f"{option} must end in {listed}, got {path}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UserError("writing .parquet needs `pip install 'mast-ssl[parquet]'`")
    target = Path(os.path.realpath(path))
    if kind := special(target):
        raise UserError(f"{option} must be a file, and {path} is {kind}: give another name")
    place = next(parent for parent in target.parents if parent.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise UserError(f"cannot write {path}: {place} is no folder that may be written into")
    if target.exists() and target.stat().st_size and not kinds[path.suffix](target):
        raise UserError(
            f"{path} exists and is not what this command writes: give another {option}, or "
            "remove it"
        )
    return path


def out_folder(out: str | Path) -> Path:
    """The folder that a user names to be written into, which may be there."""
    path = named(out)
    if path.exists() and not path.is_dir():
        raise UserError(f"out must be a folder, and {path} is none: give another name")
    return path


def in_gb(size: float) -> str:
    """A number of bytes in GB, or where that is below a tenth in MB or kB."""
    if size < 1e5:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.1f} MB" if size < 1e8 else f"{size / 1e9:.1f} GB"


def special(path: Path) -> str | None:
    """What a path is where it is no file, such as a named pipe, which is waited for if opened."""
    if path.is_file() or not path.exists():
        return None
    return "a folder" if path.is_dir() else "a device or a pipe"


MISSING = -1, -1


def state_of(file: Path | os.DirEntry[str]) -> tuple[int, int]:
    """Size in bytes and time of modification in ns; `MISSING` of what is no file."""
    try:
        status = file.stat()
    except (OSError, ValueError):  # no such file, or no name of one
        return MISSING
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else MISSING


def read_bytes(path: Path, most: int = -1) -> bytes:
    """What a file holds, or its first bytes."""
    try:
        if kind := special(path):
            raise UserError(f"{path} is {kind}: expected a file")
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def read_text(path: Path) -> str:
    """What a file of UTF-8 text holds, or of UTF-16 with a byte-order mark."""
    content = read_bytes(path)
    by_mark = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if by_mark else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}; save it as UTF-8"
        ) from error


def cells(line: str) -> list[str]:
    """A line of a list, and its first cell, if a spreadsheet saved it."""
    quoted = re.match(r'"((?:[^"]|"")*)"', line)
    return [line, quoted[1].replace('""', '"') if quoted else re.split("[,;\t]", line)[0]]


def read_rows(path: Path, known: Collection[str]) -> list[list[str]]:
    """The rows of a .csv, whose cells spreadsheets part by commas, semicolons or tabs.

    Args:
        path: The file.
        known: What one column is called, in small letters; it tells by which sign.
    """
    text = re.sub(r"\Asep=.\r?\n", "", read_text(path))
    ways = list[list[list[str]]]()
    for sign in ",;\t":
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=sign) if row]
        except csv.Error as error:
            raise UserError(f"{path} is no table: {error}") from error
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
    """JSON whose numbers are finite; the message of the ValueError continues "it"."""
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
    """Text with names of files that Python could not decode, as text that UTF-8 can hold.

    Python keeps such bytes as lone surrogates. They are decoded as UTF-8, which is right where only
    the locale was not, and written as \\xff where they are none. Other halves of characters, which
    JSON may hold, are written as \\ud800.
    """
    whole = _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    return whole.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def spelling(name: str) -> str:
    """A name as it is compared: whatever Unicode form, locale or list it comes from."""
    return name if name.isascii() else unicodedata.normalize("NFC", as_unicode(name))


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a lock during the block; yields whether it is held.

    On a file system without locks it is not. Without `wait`, `filelock.Timeout` says that another
    process holds it.
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
