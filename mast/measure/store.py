"""Features on disk, found by content: a set is encoded only once."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mast.core.checkpoint import write_atomically

_log = logging.getLogger("mast")

VERSION = 2  # of how views and features are made; a new one ignores all older files


def fingerprint(module: nn.Module, described: Any) -> str:
    """Hash of an encoder: of every weight and buffer, and of what its code depends on besides.

    Args:
        module: The encoder.
        described: What rebuilds it, as JSON has it; two encoders with the same weights and another
            forward pass must differ here.
    """
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_content(tensor))
    return digest.hexdigest()


def _content(tensor: Tensor) -> Any:
    """The bytes of a tensor, as an array."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()


@dataclass(frozen=True)
class FeatureStore:
    """The features of one encoder, one file for each set and way to see it.

    Args:
        folder: Where they are stored; it may be deleted at any time.
        encoder: The encoder's `fingerprint`.
    """

    folder: Path
    encoder: str

    def path(self, **dependencies: Any) -> Path:
        """The file of a set.

        Args:
            dependencies: All that the features depend on besides the encoder: the set's
                fingerprint, the size of the views, the precision, the kind of device, what is done
                to the views.
        """
        parts = {"version": VERSION, "encoder": self.encoder, **dependencies}
        key = json.dumps(parts, sort_keys=True)
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.safetensors"

    def read(self, path: Path) -> Tensor | None:
        """Features (N, D), or None where they are not stored, or are not what was stored."""
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            return None
        try:
            with safe_open(path, "pt") as file:
                features_ND: Tensor = file.get_tensor("features")
                digest = (file.metadata() or {}).get("digest")
        except (OSError, SafetensorError, KeyError):
            digest = None
        if digest is None or digest != _digest(features_ND):
            _log.warning("%s is damaged; the features are extracted again", path)
            return None
        return features_ND

    def write(self, path: Path, features_ND: Tensor) -> None:
        """Keep features (N, D), with a digest of them."""
        from safetensors.torch import save_file

        metadata = {"digest": _digest(features_ND)}
        write_atomically(
            path, lambda partial: save_file({"features": features_ND}, partial, metadata=metadata)
        )


def _digest(tensor: Tensor) -> str:
    return hashlib.blake2b(_content(tensor), digest_size=16).hexdigest()
