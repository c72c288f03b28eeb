"""Features of any model from a file, instead of an encoder.

N rows of the file, D dimensions, M images of a set.
"""

import os
import posixpath
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, final
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from mast.core.errors import UserError, reason_of
from mast.core.files import parse_json, spelling
from mast.data.canvas import CanvasSet
from mast.data.pieces import split_cut

ENDINGS = (".npz", ".parquet")
PATHS = ("paths", "path", "identifiers", "identifier")  # possible keys of image names
EXPECTED = "expected `features` (N, D) and `paths` (N,), or what `mast embed` writes"


@final
class FeatureFile(nn.Module):
    """Features (N, D) of images by path; any unique ending of a path suffices.

    The file is an .npz with the arrays `features` and `paths`, a .parquet with these columns, or
    the output of `mast embed`; `size` is the input size in pixels, if recorded.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        if not path.is_file():
            raise UserError(f"no features at {path}")
        self.path = path
        read = _read_npz if path.suffix == ".npz" else _read_parquet
        try:
            values_ND, names, metadata = read(path)
            features_ND = values_ND.astype(np.float32)
            self.size = int(metadata["size"]) if "size" in metadata else None
        except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
            why = f"{EXPECTED} ({reason_of(error):.200})"
            raise UserError(f"{path} holds no features: {why}") from error
        if features_ND.ndim != 2 or len(features_ND) != len(names) or 0 in features_ND.shape:
            raise UserError(f"{path}: {EXPECTED}, got {features_ND.shape} and {len(names):,} paths")
        self.features_ND = torch.from_numpy(features_ND)
        if not bool(self.features_ND.isfinite().all()):
            bad = int((~self.features_ND.isfinite().all(dim=1)).nonzero()[0])
            raise UserError(f"{path} has features that are not finite, first of {names[bad]}")
        root = split_cut(str(metadata.get("data", "")))[0]
        keys = [_key(posixpath.join(root, name)) for name in names]
        self._rows = {key: row for row, key in enumerate(keys)}
        if len(self._rows) < len(keys):
            twice = next(key for row, key in enumerate(keys) if self._rows[key] != row)
            raise UserError(f"{path} has features of {twice} twice")
        self._images: dict[int, str] = {}  # of the rows that were looked up

    def of(self, canvas_set: "CanvasSet") -> Tensor:
        """Features (M, D) of the images of a set."""
        root, names = _root(canvas_set.name), canvas_set.identifiers
        keys = [_key(posixpath.join(root, name)) for name in names]
        found = [self._row(key, len(_key(name))) for key, name in zip(keys, names, strict=True)]
        if all(row is None for row in found):  # paths may be endings of names in the set
            found = [self._row(key, 1) for key in keys]
        missing = [name for name, row in zip(names, found, strict=True) if row is None]
        if missing:
            raise UserError(
                f"{self.path} has no features of {len(missing):,} of {len(canvas_set):,} images of "
                f"{canvas_set.name!r}, first of {missing[0]}: add them, or name an encoder"
            )
        rows = [row for row in found if row is not None]
        for row, key in zip(rows, keys, strict=True):
            other = self._images.setdefault(row, key)
            if other != key:
                raise UserError(
                    f"{self.path} has one row for two images, {other} and {key}: write longer paths"
                )
        return self.features_ND[rows]

    def _row(self, key: str, least: int) -> int | None:
        """The row of the longest ending of a path with at least this many characters."""
        parts = key.split("/")
        ends = ("/".join(parts[at:]) for at in range(len(parts)))
        return next((self._rows[end] for end in ends
                     if len(end) >= least and end in self._rows), None)  # fmt: skip

    def refuse(self) -> NoReturn:
        raise UserError(
            f"{self.path} holds features, and this must encode images again: name an encoder"
        )

    def forward(self, images_BCHW: Tensor) -> Tensor:
        self.refuse()


def _root(name: str) -> str:
    """The folder of a set's images, or its name if it is no folder."""
    # `photos@train` is drawn from `photos`.
    spec = name if os.path.exists(name) else re.sub("@(train|test)$", "", name)
    place = split_cut(spec)[0]
    return os.path.abspath(place) if os.path.exists(place) else name


def _key(path: str) -> str:
    parts = posixpath.normpath(spelling(path)).split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))


def _read_npz(path: Path) -> tuple[np.ndarray, Sequence[str], dict[str, Any]]:
    with np.load(path) as arrays:
        metadata = {key: arrays[key].item() for key in ("data", "size") if key in arrays.files}
        return arrays["features"], arrays[_named(arrays.files)].astype(str).tolist(), metadata


def _read_parquet(path: Path) -> tuple[np.ndarray, Sequence[str], dict[str, Any]]:
    if find_spec("pyarrow") is None:
        raise UserError("reading .parquet needs `pip install 'mast-ssl[parquet]'`")
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(path)
    name = _named(schema.names)
    table = pyarrow.parquet.read_table(path, columns=[name, "features"])
    known = schema.metadata or {}
    metadata = {key: parse_json(known[key.encode()]) for key in ("data", "size")
            if key.encode() in known}  # fmt: skip
    names = [str(value) for value in table[name].to_pylist()]
    return np.stack(table["features"].to_numpy()), names, metadata


def _named(names: Sequence[str]) -> str:
    found = [name for name in PATHS if name in names]
    if not found or "features" not in names:
        raise ValueError(f"it has {', '.join(names[:8]) or 'nothing'}")
    return found[0]
