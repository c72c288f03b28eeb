"""Files that are whole or absent: atomic writes and checkpoints."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from mast.core.errors import UserError
from mast.core.files import as_unicode


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, flush it to disk, then rename it.

    Args:
        path: The target; it is replaced only by a complete file.
        write: Called with the path to fill.

    Raises:
        UserError: The disk is full or the folder cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
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


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write tensors, numbers and containers of them, atomically."""

    def write(partial: Path) -> None:
        # Through a Python file: on a full disk torch's own writer raises no OSError.
        with partial.open("wb") as file:
            torch.save(state, file)

    write_atomically(path, write)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint without executing anything from it.

    Args:
        path: A file of `save_checkpoint`.

    Raises:
        UserError: The file is damaged or holds more than tensors.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises RuntimeError, UnpicklingError, EOFError, …
        raise UserError(
            f"{path} is not a readable checkpoint ({type(error).__name__}: {error}). "
            "Delete it to start the run again."
        ) from error
    return state


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, atomically."""

    def write(partial: Path) -> None:
        partial.write_text(as_unicode(text), encoding="utf-8")

    write_atomically(path, write)
