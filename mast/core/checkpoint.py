"""Atomic writes and checkpoints: a file is complete or absent."""

import json
import os
import shutil
import stat
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from mast.core.errors import UserError
from mast.core.files import as_unicode

UNFINISHED = ".mast-*.partial"  # prefix of the temporary folder of a file
_ABANDONED = 86_400.0  # seconds after which no living process uses such a folder


@contextmanager
def replacing(path: Path, keep: Path | None = None) -> Iterator[Path]:
    """A file to fill in a block; it replaces `path` if the block succeeds.

    It lies in a temporary folder next to `path`, as some libraries (safetensors) create further
    files next to the one they write. Leftovers of killed processes are removed a day later.
    Permissions do not change; the replaced file is moved to `keep`.
    """
    for left in path.parent.glob(UNFINISHED):
        with suppress(OSError):
            changed = max(each.stat().st_mtime for each in (left, *left.iterdir()))
            if time.time() - changed > _ABANDONED:
                shutil.rmtree(left)
    with TemporaryDirectory(".partial", ".mast-", path.parent, ignore_cleanup_errors=True) as place:
        partial = Path(place, "new")
        partial.touch()  # by the umask; some libraries set another mode
        mode = (path if path.exists() else partial).stat().st_mode
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.chmod(stat.S_IMODE(mode))
        if keep is not None and path.exists():
            path.replace(keep)
        partial.replace(path)


def write_atomically(path: Path, write: Callable[[Path], object], keep: Path | None = None) -> None:
    """Let `write` fill a file next to `path`, flush it to disk, then rename it.

    If `path` is a symbolic link, its target is replaced; see `replacing`.
    """
    path = Path(os.path.realpath(path))
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"cannot write {path}: it exists and is not a regular file")
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, keep) as partial:
            write(partial)
    except Exception as error:
        # safetensors has an error of its own for a full disk.
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot write {path}: {reason}. Free some space or choose another folder; the "
            "previous file is unchanged."
        ) from error


def check_writable(folder: Path) -> None:
    """Check that a folder is writable before spending hours on results."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror or error}") from error


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def previous(path: Path) -> Path:
    """Path of the checkpoint before the last one."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def save_checkpoint(path: Path, state: dict[str, Any], keep: bool = True) -> None:
    """Write tensors, numbers and containers, atomically.

    The replaced file moves to `previous`, unless it is damaged (`keep` is false).
    """
    import torch

    def write(partial: Path) -> None:
        # Through a Python file: on a full disk torch's own writer raises no OSError.
        with partial.open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # from closing the incomplete archive
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    write_atomically(path, write, keep=previous(path) if keep else None)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a file of `save_checkpoint`, without executing code in it.

    Verifies the checksums (CRC-32) of the ZIP archive, as PyTorch would load damaged bytes as
    weights.
    """
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} changed since it was written")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises RuntimeError, UnpicklingError, EOFError, …
        what = str(error).splitlines()[0] if isinstance(error, zipfile.BadZipFile | OSError) else ""
        reason = f"{type(error).__name__}: {what}" if what else type(error).__name__
        raise UserError(
            f"{path} is not a readable checkpoint ({reason}). Delete it to continue without it."
        ) from error
    if not isinstance(state, dict):
        raise UserError(f"{path} is not a checkpoint of this program")
    return state


def saved(path: Path) -> dict[str, Any]:
    """Content of the last readable checkpoint, unverified; empty if there is none."""
    import torch

    for file in filter(Path.is_file, (path, previous(path))):
        with suppress(Exception):  # torch raises RuntimeError, UnpicklingError, EOFError, …
            return dict(torch.load(file, map_location="cpu", weights_only=True, mmap=True))
    return {}


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, atomically."""
    write_atomically(path, lambda partial: partial.write_text(as_unicode(text), encoding="utf-8"))
