"""Write the features of every image of a set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

from mast.commands.common import ENCODER, command, open_search, or_default, write_arrays
from mast.core.checkpoint import write_atomically
from mast.core.files import as_unicode, out_file, short_name
from mast.core.kinds import Device, EncoderLike
from mast.core.table import begins

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


@command
def embed(
    data: str | Path,
    encoder: EncoderLike | None = None,
    out: str | Path | None = None,
    size: int | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
) -> Path:
    """Write the features of every image of a set.

    Args:
        data: The images, or one file; labels are written if there are any.
        out: File to write, .npz or .parquet (extra `parquet`); by default `<set>-<run>.npz` in the
            current folder.

    Returns:
        The file. An .npz holds `features` (N, D) float32; `identifiers` (N,), in a folder the paths
        below it; for each target the class indices `target_<name>` (N,), -1 without a label; and
        for each multi-label task `multilabel_<name>` (N, C) int8 (1 present, 0 absent, -1 unknown).
        A .parquet has one row per image with the same columns, except that `identifiers` is called
        `identifier`. Metadata are further arrays of an .npz, or JSON in a .parquet's metadata:
        `classes_<name>` (C,), the class names; `data`, the name of the set; `encoder`, the
        encoder's fingerprint, as in evaluations; `size`, the input size; `ignored` and `matched`,
        the operators; `weighted`, the properties with their weights; `space`, "depths" for all
        stages; and, if images cannot be decoded, `broken` (K, 2), their names with the reasons.
    """
    encoder = or_default(encoder, data)
    import numpy as np

    from mast.encoders.load import EncoderOptions, source_name
    from mast.evaluation.result import readable
    from mast.invariance.choice import InvarianceChoice

    if out is None:
        place = Path(source_name(encoder)).absolute()
        place = place.parent if place.name == ENCODER else place
        name = place.stem if place.is_file() else place.name
        out = short_name(f"{readable(str(data))}-{readable(name)}") + ".npz"
    file = out_file(out, {".npz": _is_npz, ".parquet": begins("identifier")})
    options = EncoderOptions(encoder, size, weights, download, untrained)
    invariances = InvarianceChoice(ignore, match, space)
    by, canvases = open_search(options, data, invariances, device)
    arrays = {
        "identifiers": np.array(canvases.identifiers),
        **{f"target_{name}": values for name, values in canvases.targets.items()},
        **{f"multilabel_{name}": table for name, table in canvases.multilabels.items()},
        "features": by.features(canvases).numpy(),
    }
    metadata: dict[str, Any] = {
        **{f"classes_{name}": names for name, names in canvases.classes.items()},
        "data": str(data),
        "encoder": by.encoder.description["fingerprint"],
        "size": by.size,
        **by.chosen,
        **({"broken": list(canvases.skipped.items())} if canvases.skipped else {}),
    }
    if file.suffix == ".npz":
        about = {name: np.array(value) for name, value in metadata.items()}
        write_arrays(file, np.savez, arrays | about)
    else:
        _write_parquet(file, arrays, {name: json.dumps(of) for name, of in metadata.items()})
    return file


def _is_npz(path: Path) -> bool:
    """Whether a file holds features that this command wrote."""
    try:
        with ZipFile(path) as archive:
            return {"features.npy", "identifiers.npy"} <= {*archive.namelist()}
    except (OSError, BadZipFile):
        return False


def _write_parquet(
    path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    import numpy as np
    import pyarrow
    import pyarrow.parquet

    columns = {"identifier": pyarrow.array(map(as_unicode, arrays["identifiers"].tolist()))}
    for name, values in arrays.items():
        if name != "identifiers":
            column = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
            if values.ndim == 2:
                column = pyarrow.FixedSizeListArray.from_arrays(column, values.shape[1])
            columns[name] = column
    table = pyarrow.table(columns, metadata=metadata)
    write_atomically(path, lambda partial: pyarrow.parquet.write_table(table, partial))
