"""Hashes that identify encoders by weights and configuration."""

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
    """Hash of an encoder's weights, buffers and configuration (JSON values).

    Encoders with equal weights but different forward passes must differ in the configuration.
    """
    state = module.state_dict()  # a module may keep something else than tensors in it
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    return digest(tensors, described)


def weights_are_in(file: Path, encoder: Mapping[str, Any]) -> bool | None:
    """Whether a result belongs to the encoder in an `encoder.safetensors`, by its description.

    None if either is unknown, or if the result is of a space, which no such file contains.
    """
    described = {key: each for key, each in encoder.items() if key not in ("source", "fingerprint")}
    if "fingerprint" not in encoder or "space" in encoder or not file.is_file():
        return None
    state = file.stat()
    found = _fingerprint_in(file, json.dumps(described), state.st_mtime_ns, state.st_size)
    return None if found is None else found == encoder["fingerprint"]


@functools.lru_cache(maxsize=64)
def _fingerprint_in(file: Path, described: str, *_: int) -> str | None:
    """The `fingerprint` of the encoder in a file, cached until the file changes."""
    try:
        tensors, _header = read_tensors(file)
    except UserError:
        return None
    state = {f"model.{name}": tensor for name, tensor in tensors.items()}
    return digest(state, json.loads(described))
