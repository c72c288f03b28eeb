"""Write the representation of every image of a set."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from mast.core.arguments import as_list
from mast.core.checkpoint import write_atomically
from mast.core.errors import UserError
from mast.core.files import as_unicode
from mast.core.launch import Device, find_device
from mast.core.table import check_ending
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.measure.compute import Compute
from mast.measure.features import extract
from mast.methods import Embedding, MatchBy
from mast.runs.load import Representation, load


def embed(
    encoder: str | Path | nn.Module,
    data: str | Path,
    out: str | Path | None = None,
    size: int | None = None,
    representation: Representation | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    match_by: MatchBy | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    seed: int = 0,
) -> Path:
    """Write the representation of every image of a set.

    Args:
        encoder: A run folder, an `encoder.safetensors`, a checkpoint of another project, or a
            timm or torchvision name; a tag, as in `timm:resnet18.a1_in1k`, names weights too. In
            Python also a module from images (B, 3, H, W), RGB in [0, 1], to (B, D).
        data: The images; labels are not needed, and are written where there are some.
        out: A file ending in .npz or .parquet (which needs the extra of that name); `<set>.npz`
            in the current folder if not given.
        size: Side of the views in pixels; that of pretraining if not given. A module needs one.
        representation: "encoder", "ensemble" or "embedding"; the encoder if not given. Not where
            operators are ignored or matched.
        ignore: Operators of a run to which its embedding is to be invariant, or properties such as
            color, which stand for the operators that destroy them; where nothing is exempt, the
            whole embedding.
        match: Likewise, from which it is to be exempt, so that neighbours agree in what they
            change; where nothing is exempt, what heads that tell them read of the representation.
        match_by: "block" or "heads", to choose what matches where a run has both; the block if not
            given.
        device: auto, cpu or cuda.
        weights: A checkpoint with weights for the name. If not given, those that the name names,
            or random ones where it names none.
        download: Whether the weights that the name names may be downloaded.
        seed: Of the random weights of a name.

    Returns:
        The file. An .npz holds `features` (N, D) float32, `identifiers` (N,), one (N,) array of
        class indices a target as `target_<name>`, and one (N, C) int8 array a task of several
        labels as `multilabel_<name>` (1 present, 0 absent, -1 unknown); a .parquet has one row an
        image with the same columns. The operators are kept in `ignored` and `matched`, in the
        metadata of a .parquet as JSON, where there are some.

    Raises:
        UserError: No such encoder or images, an unknown kind of file, or a choice of operators that
            the run does not have or that leaves no dimension.
    """
    writers = {".npz": _write_npz, ".parquet": _write_parquet}
    file = Path(out or Path(data).name.replace(":", "-").replace("@", "-") + ".npz")
    check_ending(file, tuple(writers))
    chosen = {"ignored": as_list(ignore or ()), "matched": as_list(match or ())}
    chosen = {kind: names for kind, names in chosen.items() if names}
    if match_by is not None and "matched" not in chosen:
        raise UserError(f"match_by {match_by} says how to match: give match, too")
    if chosen and representation is not None:
        raise UserError(
            "what is ignored and matched says in what images are compared: leave out "
            f"representation, got {representation}"
        )
    kind = representation or ("embedding" if chosen else "encoder")
    loaded = load(encoder, kind, size, seed, weights, download)
    module, size = loaded.module, loaded.size
    space = None
    if chosen:
        assert isinstance(module, Embedding)
        chosen = {kind: module.named(names) for kind, names in chosen.items()}
        with torch.no_grad():
            space = module.space(chosen.get("ignored", ()), chosen.get("matched", ()), match_by)
        if space.of == "representation":
            module = module.method.encoder
    canvases = open_canvas(DataConfig(str(data)), size)
    features_ND = extract(module, canvases, size, Compute(find_device(device)))
    if space is not None:
        features_ND = space.seen(features_ND)
    writers[file.suffix](file, features_ND.numpy(), canvases, chosen)
    return file


def _write_npz(
    path: Path, features_ND: np.ndarray, canvases: CanvasSet, chosen: Mapping[str, Sequence[str]]
) -> None:
    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            arrays: dict[str, Any] = {
                "features": features_ND,
                "identifiers": np.array(canvases.identifiers),
                **{f"target_{name}": values for name, values in canvases.targets.items()},
                **{f"multilabel_{name}": table for name, table in canvases.multilabels.items()},
                **{kind: np.array(names) for kind, names in chosen.items()},
            }
            np.savez(file, **arrays)

    write_atomically(path, write)


def _write_parquet(
    path: Path, features_ND: np.ndarray, canvases: CanvasSet, chosen: Mapping[str, Sequence[str]]
) -> None:
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
        columns, metadata={kind: json.dumps(names) for kind, names in chosen.items()}
    )
    write_atomically(path, lambda partial: pyarrow.parquet.write_table(table, partial))
