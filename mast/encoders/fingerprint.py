"""Hashes that identify encoders: of their weights and of what rebuilds them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mast.core.errors import UserError
from mast.core.tensors import digest, read_tensors


def fingerprint(module: nn.Module, described: Any) -> str:
    """Hash of an encoder: of every weight and buffer, and of what rebuilds it, as JSON has it.

    Two encoders with the same weights and another forward pass must differ in the latter.
    """
    state = module.state_dict()  # a module may keep something else than tensors in it
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    return digest(tensors, described)


def weights_are_in(file: Path, encoder: Mapping[str, Any]) -> bool | None:
    """Whether a result is of the encoder in an `encoder.safetensors`, by what it says of its
    encoder.

    None where either does not say, or where the result is of a space, which is in no such file.
    """
    described = {key: each for key, each in encoder.items() if key not in ("source", "fingerprint")}
    if "fingerprint" not in encoder or "space" in encoder or not file.is_file():
        return None
    state = file.stat()
    found = _fingerprint_in(file, json.dumps(described), state.st_mtime_ns, state.st_size)
    return None if found is None else found == encoder["fingerprint"]


@functools.lru_cache(maxsize=64)
def _fingerprint_in(file: Path, described: str, *_: int) -> str | None:
    """The `fingerprint` of the encoder in a file, as long as that stays as it is."""
    try:
        tensors, _header = read_tensors(file)
    except UserError:
        return None
    state = {f"model.{name}": tensor for name, tensor in tensors.items()}
    return digest(state, json.loads(described))
