"""Files that are whole or absent: atomic writes and checkpoints."""

import json
import os
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from mast.core.errors import UserError
from mast.core.files import as_unicode


def write_atomically(path: Path, write: Callable[[Path], None], keep: Path | None = None) -> None:
    """Let `write` fill a file beside `path`, flush it to disk, then rename it.

    Args:
        path: The target; it is replaced only by a complete file. Where it is a symbolic link, the
            file that it points to is.
        write: Called with the path to fill.
        keep: Where the file that is replaced is kept; None: nowhere.

    Raises:
        UserError: The disk is full, the folder cannot be written, or the target is there and is no
            regular file.
    """
    path = Path(os.path.realpath(path))
    partial = path.with_name(path.name + ".partial")
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"cannot write {path}: it is there and is not a regular file")
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()
        mode = partial.stat().st_mode  # what the umask leaves; some libraries set one of their own
        write(partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.chmod(mode)
        if keep is not None and path.is_file():
            path.replace(keep)
        partial.replace(path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        # safetensors has an error of its own for a full disk.
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot write {path}: {reason}. Free some space or choose another "
            "folder; what was there before is unharmed."
        ) from error


def check_writable(folder: Path) -> None:
    """Make sure that files can be written into a folder before hours are spent on what is to be.

    Raises:
        UserError: As `write_atomically`.
    """
    probe = folder / ".writable"
    write_text(probe, "")
    probe.unlink()


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def previous(path: Path) -> Path:
    """Where `save_checkpoint` keeps the checkpoint before the last one."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def save_checkpoint(path: Path, state: dict[str, Any], keep: bool = True) -> None:
    """Write tensors, numbers and containers of them, atomically.

    Args:
        path: The checkpoint.
        state: What it holds.
        keep: Whether the one that it replaces is kept as `previous`; not where it is damaged, as
            it would take the place of one that is whole.
    """

    def write(partial: Path) -> None:
        # Through a Python file: on a full disk torch's own writer raises no OSError.
        with partial.open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # of closing the archive that could not be written
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    write_atomically(path, write, keep=previous(path) if keep else None)


def remove_checkpoint(path: Path) -> None:
    """Remove what `save_checkpoint` wrote."""
    for file in (path, previous(path)):
        file.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, if it is as it was written, without executing anything from it.

    Args:
        path: A file of `save_checkpoint`. It is a ZIP archive, whose checksums (CRC-32) are
            verified: PyTorch would take bytes that changed on the disk for weights.

    Raises:
        UserError: The file is damaged, or holds more than tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} changed since it was written")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises RuntimeError, UnpicklingError, EOFError, …
        what = str(error).splitlines()[0] if isinstance(error, zipfile.BadZipFile | OSError) else ""
        said = f"{type(error).__name__}: {what}" if what else type(error).__name__
        raise UserError(
            f"{path} is not a readable checkpoint ({said}). Delete it to start the run again."
        ) from error
    if not isinstance(state, dict):
        raise UserError(f"{path} is not a checkpoint of this program")
    return state


def saved_step(path: Path) -> int | None:
    """The step of the last checkpoint that can be read; None: there is none."""
    for file in filter(Path.is_file, (path, previous(path))):
        with suppress(Exception):  # torch raises RuntimeError, UnpicklingError, EOFError, …
            return int(torch.load(file, map_location="cpu", weights_only=True, mmap=True)["step"])
    return None


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, atomically."""

    def write(partial: Path) -> None:
        partial.write_text(as_unicode(text), encoding="utf-8")

    write_atomically(path, write)
