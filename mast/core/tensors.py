"""Tensors in safetensors files with a digest, to detect damage."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mast.core.checkpoint import write_atomically
from mast.core.errors import UserError
from mast.core.files import read_bytes, special

OURS = "mast"  # our entry in the header, as JSON
DIGEST = "sha256"  # key in that entry


def digest(tensors: Mapping[str, Tensor], described: Any = None) -> str:
    """SHA-256 of tensors (names, dtypes, shapes and bytes) and of their description."""
    state = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():  # an empty tensor may have an invalid stride
            content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            state.update(content.numpy().data)
    return state.hexdigest()


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    described: Mapping[str, Any] | None = None,
    header: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file with a digest, atomically.

    Args:
        path: The file.
        tensors: Tensors that share no memory.
        described: A description as JSON values. It is a single entry of the header, as
            safetensors writes several in random order, and equal runs must give equal
            files.
        header: Further entries, for other programs.
    """
    from safetensors.torch import save_file

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {**(header or {}), OURS: json.dumps(described or {})}
    ours = read_metadata(metadata) | {DIGEST: _digest_of_file(whole, metadata)}
    metadata[OURS] = json.dumps(ours, sort_keys=True)
    write_atomically(path, lambda partial: save_file(whole, partial, metadata=metadata))


def read_tensors(
    path: Path, remedy: str = "restore it"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and header of a safetensors file; raises if the digest does not match.

    Files of other programs have no digest, and are read without this check. `remedy` says what to
    do about a damaged file.
    """
    from safetensors import SafetensorError, safe_open

    read_bytes(path, 1)  # safetensors reports unreadable files as missing
    try:
        with safe_open(path, framework="pt") as archive:
            tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
            header = archive.metadata() or {}
        expected = read_metadata(header).get(DIGEST)
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            f"{path} is damaged, not a readable safetensors file ({error}): {remedy}"
        ) from error
    if expected is not None and expected != _digest_of_file(tensors, header):
        raise UserError(f"{path} is damaged, its digest does not match: {remedy}")
    return tensors, header


def read_header(path: Path) -> dict[str, str] | None:
    """Header of a safetensors file, unverified; None if unreadable."""
    from safetensors import SafetensorError, safe_open

    try:
        if special(path):
            return None
        with safe_open(path, framework="pt") as archive:
            return archive.metadata() or {}
    except (OSError, SafetensorError):
        return None


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse NaN or infinite weights, as from a diverged run."""
    wrong = [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]
    if wrong:
        raise UserError(
            f"{path} has NaN or infinite weights in {len(wrong)} of {len(tensors)} tensors, "
            f"first in {wrong[0]!r:.200}: restore it, or train again"
        )


def read_metadata(header: Mapping[str, str]) -> dict[str, Any]:
    """The entry of `write_tensors` in a header; empty for files of other programs."""
    try:
        ours = json.loads(header.get(OURS, "{}"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(ours, dict):
        raise ValueError(f"expected fields, got {type(ours).__name__}")
    return ours


def _digest_of_file(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    ours = {name: value for name, value in read_metadata(header).items() if name != DIGEST}
    return digest(tensors, {**header, OURS: ours})
