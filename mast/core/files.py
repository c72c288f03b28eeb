"""Files that users name: read whole, or refused in one line; text that can always be written."""

import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from mast.core.errors import UserError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def named(path: str | Path) -> Path:
    """The path that a user wrote, its `~` replaced; that of an unknown user stays as it is."""
    return Path(os.path.expanduser(path))  # Path.expanduser raises where there is no such user


def special(path: Path) -> str | None:
    """What a path is where it is no file, such as "a named pipe", which waits for who opens it.

    Raises:
        OSError: There is nothing of that name.
    """
    kind = stat.S_IFMT(path.stat().st_mode)
    return None if kind == stat.S_IFREG else _KINDS.get(kind, "something else")


def read_bytes(path: Path) -> bytes:
    """What a file holds.

    Raises:
        UserError: It is no file, or cannot be read.
    """
    try:
        if kind := special(path):
            raise UserError(f"{path} is {kind}: expected a file")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def read_text(path: Path) -> str:
    """What a file of UTF-8 text holds.

    Raises:
        UserError: It is no file, cannot be read, or is written otherwise.
    """
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}; save it as UTF-8"
        ) from error


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        UserError: It is no file, cannot be read, or is no JSON.
    """
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged: it is not JSON") from error


SIGNATURE = re.compile(r"<!-- sha256 ([0-9a-f]{64}) -->\s*\Z")


def signed(markup: str) -> str:
    """XML with a comment at its end by which `read_markup` sees whether it changed."""
    markup = markup.rstrip()
    return f"{markup}\n<!-- sha256 {_digest(markup)} -->\n"


def read_markup(path: Path) -> str:
    """What a file of `signed` XML holds, without the signature; one that has none is not verified.

    Raises:
        UserError: It is no file, cannot be read, or changed since it was written.
    """
    text = read_text(path)
    signature = SIGNATURE.search(text)
    if signature is None:
        return text
    markup = text[: signature.start()].rstrip()
    if _digest(markup) != signature[1]:
        raise UserError(f"{path} is damaged: it is not what was written")
    return markup


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def as_unicode(text: str) -> str:
    """Text with names of files that Python could not decode, as text that UTF-8 can hold.

    Python keeps such bytes as lone surrogates. They are decoded as UTF-8, which is right where only
    the locale was not, and written as \\xff where they are none.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
