"""Write the features of every image of a set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

from mast.commands.common import command, open_search, or_default, write_arrays
from mast.core.checkpoint import write_atomically
from mast.core.errors import UserError
from mast.core.files import as_unicode, out_file, short_name
from mast.core.kinds import Device, EncoderLike, Representation
from mast.core.run import RunFolder

if TYPE_CHECKING:
    import numpy as np

    from mast.data import CanvasSet
    from mast.invariance.choice import SearchEncoder


MADE = ("data", "encoder", "size")  # what a file says beside the features


@command
def embed(
    data: str | Path,
    encoder: EncoderLike | None = None,
    out: str | Path | None = None,
    size: int | None = None,
    representation: Representation | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
    max_broken: float = 1.0,
) -> Path:
    """Write the features of every image of a set.

    Args:
        data: The images, or one file; labels are written if there are any.
        out: File to write, .npz or .parquet (extra `parquet`); by default `<set>-<run>.npz` in the
            current folder.
        representation: "encoder" (the default), "ensemble" or "embedding". Excludes ignore,
            match and space.

    Returns:
        The file. An .npz holds `features` (N, D) float32; `identifiers` (N,), in a folder the paths
        below it; for each target the class indices `target_<name>` (N,), -1 without a label; and
        for each multi-label task `multilabel_<name>` (N, C) int8 (1 present, 0 absent, -1 unknown).
        A .parquet has one row per image with the same columns, except that `identifiers` is called
        `identifier`. Metadata are further arrays of an .npz, or JSON in a .parquet's metadata:
        `classes_<name>` (C,), the names of the classes; `data`, the set as it was named; `encoder`,
        its fingerprint, as in evaluations; `size`, the side of the views; `ignored` and `matched`,
        the operators; `weighted`, the properties with their weights; `space`, "depths" for all
        depths; and, if images cannot be decoded, `broken` (K, 2), their names with the reasons.
    """
    encoder = or_default(encoder, data)
    writers = {".npz": _write_npz, ".parquet": _write_parquet}
    from mast.data import DataConfig, open_photos
    from mast.encoders.load import EncoderOptions
    from mast.evaluation.result import readable
    from mast.invariance.choice import InvarianceChoice

    name = out or short_name(f"{readable(str(data))}-{_name(encoder)}") + ".npz"
    file = out_file(name, {".npz": _is_npz, ".parquet": _is_parquet})
    invariances = InvarianceChoice(ignore, match, space)
    options = EncoderOptions(encoder, size, weights, download, untrained)
    if representation in (None, "encoder"):
        by, canvases = open_search(options, data, invariances, device, max_broken)
    else:
        if invariances.names:
            raise UserError("representation, and ignore, match or space: give one of them")
        by = _represented(encoder, representation, size, device)
        config = DataConfig(str(data), max_broken=max_broken)
        canvases = open_photos(config, by.size, by.encoder.module, see=by.encoder.see)
    beside: dict[str, Any] = {
        **{f"classes_{name}": names for name, names in canvases.classes.items()},
        "data": str(data),
        "encoder": by.encoder.description["fingerprint"],
        "size": by.size,
        **by.chosen,
        **({"broken": list(canvases.skipped.items())} if canvases.skipped else {}),
    }
    writers[file.suffix](file, by.features(canvases).numpy(), canvases, beside)
    return file


def _represented(
    encoder: EncoderLike, representation: Representation, size: int | None, device: Device
) -> SearchEncoder:
    """What a run learned beside its encoder."""
    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.encoders.load import frozen, source_name
    from mast.invariance.choice import SearchEncoder
    from mast.runs.load import load_representation

    loaded = load_representation(source_name(encoder), representation, size)
    return SearchEncoder(frozen(loaded, encoder, Compute(find_device(device))), loaded.size)


def _name(encoder: EncoderLike) -> str:
    """What a file is named by: the run, the file, or the model's name or class."""
    from torch import nn

    from mast.evaluation.result import readable

    if isinstance(encoder, nn.Module):
        return type(encoder).__name__
    path = Path(encoder)
    in_a_run = path.is_file() and RunFolder(path.parent).config.is_file()
    place = (path.parent if in_a_run else path).absolute()
    return readable(place.stem if place.is_file() else place.name)


def _is_npz(path: Path) -> bool:
    """Whether it holds features as this command writes them."""
    try:
        with ZipFile(path) as archive:
            return {"features.npy", *(f"{name}.npy" for name in MADE)} <= {*archive.namelist()}
    except (OSError, BadZipFile):
        return False


def _is_parquet(path: Path) -> bool:
    """Likewise."""
    import pyarrow.parquet

    try:
        known = pyarrow.parquet.read_schema(path).metadata or {}
    except (OSError, ValueError):
        return False
    return {name.encode() for name in MADE} <= known.keys()


def _write_npz(
    path: Path, features_ND: np.ndarray, canvases: CanvasSet, beside: Mapping[str, Any]
) -> None:
    import numpy as np

    arrays = {
        "features": features_ND,
        "identifiers": np.array(canvases.identifiers),
        **{f"target_{name}": values for name, values in canvases.targets.items()},
        **{f"multilabel_{name}": table for name, table in canvases.multilabels.items()},
        **{name: np.array(value) for name, value in beside.items()},
    }
    write_arrays(path, np.savez, arrays)


def _write_parquet(
    path: Path, features_ND: np.ndarray, canvases: CanvasSet, beside: Mapping[str, Any]
) -> None:
    import numpy as np
    import pyarrow
    import pyarrow.parquet

    def rows(table: np.ndarray) -> Any:
        flat = pyarrow.array(np.ascontiguousarray(table).reshape(-1))
        return pyarrow.FixedSizeListArray.from_arrays(flat, table.shape[1])

    columns = {
        "identifier": pyarrow.array([as_unicode(name) for name in canvases.identifiers]),
        **{f"target_{name}": pyarrow.array(values) for name, values in canvases.targets.items()},
        **{f"multilabel_{name}": rows(table) for name, table in canvases.multilabels.items()},
        "features": rows(features_ND),
    }
    table = pyarrow.table(
        columns, metadata={name: json.dumps(value) for name, value in beside.items()}
    )
    write_atomically(path, lambda partial: pyarrow.parquet.write_table(table, partial))
