"""Features on disk, found by content: a set is encoded only once."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.core.tensors import DIGEST, digest, read_metadata, read_tensors, write_tensors

_log = logging.getLogger("mast")

VERSION = 2  # of how views and features are made; a new one ignores all older files


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


@dataclass(frozen=True)
class FeatureStore:
    """The features of one encoder in a folder, which may be deleted; one file for each set and
    size.
    """

    folder: Path
    encoder: str

    def path(self, **dependencies: Any) -> Path:
        """The file of a set, by all that its features depend on besides the encoder."""
        parts = {"version": VERSION, "encoder": self.encoder, **dependencies}
        key = json.dumps(parts, sort_keys=True)
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.safetensors"

    def read(self, path: Path) -> Tensor | None:
        """Features (N, D), or None where they are not stored, or are not what was stored."""
        if not path.is_file():
            return None
        try:
            tensors, header = read_tensors(path, "the features are extracted again")
        except UserError as error:
            _log.warning("%s", error)
            return None
        metadata, features_ND = read_metadata(header), tensors.get("features")
        if DIGEST not in metadata or features_ND is None:  # files of earlier versions
            return None
        right = features_ND.dtype is torch.float32 and features_ND.ndim == 2
        right = right and bool(features_ND.isfinite().all())
        if not right or metadata.get("key", path.stem) != path.stem:
            _log.warning("%s is not what its name says: the features are extracted again", path)
            return None
        return features_ND

    def write(self, path: Path, features_ND: Tensor) -> None:
        """Keep features (N, D), with a digest of them."""
        write_tensors(path, {"features": features_ND}, {"key": path.stem})
