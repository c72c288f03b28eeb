"""Using a trained encoder: evaluate it on labelled images, embed images with it."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from mast.core.checkpoint import load_checkpoint, write_atomically
from mast.core.errors import UserError
from mast.core.run import RunFolder, plain
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.data.sources import default_cache
from mast.evaluate import (
    EvaluationData,
    EvaluationSettings,
    FeatureStore,
    Result,
    evaluate_encoder,
    extract,
    fingerprint,
)
from mast.methods import MaskedEnsemble, Mast, Method
from mast.models import Encoder, EncoderConfig, load_encoder
from mast.pretrain import build_method
from mast.recipes import read_config

Representation = Literal["encoder", "ensemble"]


def load_method(run: str | Path) -> Method:
    """The whole method of a run (projector and masks too), from its last checkpoint.

    Args:
        run: A run folder.

    Raises:
        UserError: No run, or no checkpoint, at that place.
    """
    folder = RunFolder(run)
    method = build_method(read_config(folder.require().config))
    if not folder.last.is_file():
        raise UserError(f"{folder.path} has no checkpoint at {folder.last}")
    method.load_state_dict(load_checkpoint(folder.last)["module"])
    return method.eval()


class Loaded(NamedTuple):
    """A representation: its module, the side of its views, what rebuilds it, as JSON has it, and
    the folder that its evaluations belong to.
    """

    module: nn.Module
    size: int
    described: dict[str, Any]
    folder: Path


def load(
    run: str | Path,
    representation: Representation = "encoder",
    size: int | None = None,
    seed: int = 0,
) -> Loaded:
    """Load what a run learned.

    Args:
        run: A run folder, an `encoder.safetensors`, or a timm or torchvision name such as
            "resnet18" or "timm:resnet18", whose weights are then random.
        representation: "encoder" (the pooled features, what is meant to be used), or
            "ensemble" (the K masked embeddings side by side, as in Table 3), which needs a run
            folder of `mast` with its checkpoint.
        size: Side of the views in pixels; that of pretraining if not given, for a name 224.
        seed: Of random weights.

    Returns:
        A module in evaluation mode from images (B, 3, H, W) in [0, 1] to (B, D), the side of the
        views in pixels, a description, and the folder of its evaluations: the run's, or
        `runs/<name>-random-<seed>`.

    Raises:
        UserError: No encoder there and none of that name, or no masks.
    """
    path = Path(run)
    if not path.exists() and "/" not in str(run) and path.suffix != ".safetensors":
        return _random(str(run), representation, size or 224, seed)
    encoder = load_encoder(path)
    size, folder = size or encoder.size, path if path.is_dir() else path.parent
    if representation == "encoder":
        return Loaded(encoder, size, encoder.describe(), folder)
    method = load_method(run)
    if not isinstance(method, Mast):
        raise UserError(f"{run} was not trained with masks; use --representation encoder")
    described = encoder.describe() | {"ensemble": plain(method.config)}
    return Loaded(MaskedEnsemble(method).eval(), size, described, folder)


def _random(name: str, representation: Representation, size: int, seed: int) -> Loaded:
    """An encoder that learned nothing, to stand beside one that did."""
    if representation != "encoder":
        raise UserError(f"{name} was not trained with masks; use --representation encoder")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = Encoder(EncoderConfig(name), size).eval()
    except UserError as error:
        raise UserError(f"no run folder {name} here, and {error}") from error
    folder = Path("runs") / f"{name.replace(':', '-')}-random-{seed}"
    return Loaded(encoder, size, encoder.describe(), folder)


def evaluate(
    encoder: str | Path,
    data: str = "factors",
    protocols: Sequence[str] = ("knn", "linear"),
    train: str | None = None,
    val: str | None = None,
    test: str | None = None,
    size: int | None = None,
    representation: Representation = "encoder",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    seed: int = 0,
    settings: dict[str, dict[str, Any]] | None = None,
    cache: bool = True,
) -> list[Result]:
    """Measure a frozen encoder on labelled images.

    Hyper-parameters of a protocol are chosen on the validation set (or a tenth of the training
    set, where there is none); the test set is scored once. Results are also written to
    `evaluations/<protocol>-<set>.json` in the run folder; for a name in
    `runs/<name>-random-<seed>`.

    Args:
        encoder: A run folder, an `encoder.safetensors`, or a timm or torchvision name, whose
            weights are then random.
        data: The labelled set: a folder with `train`, `test` and perhaps `val` below it,
            `factors`, or `torchvision:NAME`.
        protocols: Names of protocols: knn, linear, linear_sgd, fewshot, rotation,
            robust.
        train: Training images, if not those of `data`.
        val: Validation images, if not those of `data`.
        test: Test images, if not those of `data`.
        size: Side of the views in pixels; that of pretraining if not given, for a name 224.
        representation: "encoder" or "ensemble" (K masked embeddings side by side).
        device: auto, cpu or cuda.
        seed: Seed of everything a protocol draws.
        settings: Settings of protocols that differ from the defaults, by protocol.
        cache: Whether to keep features for the next call, in `features` beside the canvases; they
            are found by the content of encoder and images.

    Returns:
        One result a protocol.

    Raises:
        UserError: A path, a protocol or a label that does not fit; the message says which.
    """
    loaded = load(encoder, representation, size, seed)
    size = loaded.size
    parts = _splits(data) | {
        part: spec
        for part, spec in (("train", train), ("val", val), ("test", test))
        if spec is not None
    }
    missing = {"train", "test"} - parts.keys()
    if missing:
        raise UserError(
            f"{data} has no {' and no '.join(sorted(missing))} folder; name them with "
            + " ".join(f"--{part} PATH" for part in sorted(missing))
        )
    opened = {part: open_canvas(DataConfig(spec), size) for part, spec in parts.items()}
    store = None
    if cache:
        identity = fingerprint(loaded.module, loaded.described)
        store = FeatureStore(default_cache() / "features", identity)
    results = evaluate_encoder(
        loaded.module,
        EvaluationData(opened["train"], opened.get("val"), opened["test"], size),
        protocols,
        EvaluationSettings(seed=seed, protocols=settings or {}),
        _device(device),
        store,
    )
    for result in results:
        result.write(loaded.folder)
    return results


def embed(
    encoder: str | Path,
    data: str,
    out: Path | None = None,
    size: int | None = None,
    representation: Representation = "encoder",
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> Path:
    """Write the representation of every image of a set.

    Args:
        encoder: A run folder, an `encoder.safetensors`, or a timm or torchvision name, whose
            weights are then random.
        data: The images; labels are not needed, and are written where there are some.
        out: A file ending in .npz or .parquet (which needs the extra of that name); `<set>.npz`
            in the current folder if not given.
        size: Side of the views in pixels; that of pretraining if not given.
        representation: "encoder" or "ensemble".
        device: auto, cpu or cuda.

    Returns:
        The file. An .npz holds `features` (N, D) float32, `identifiers` (N,), one (N,) array of
        class indices a target as `target_<name>`, and one (N, C) int8 array a task of several
        labels as `multilabel_<name>` (1 present, 0 absent, -1 unknown); a .parquet has one row an
        image with the same columns.

    Raises:
        UserError: No encoder or images there, or a file of another kind.
    """
    writers = {".npz": _write_npz, ".parquet": _write_parquet}
    if out is None:
        out = Path(Path(data).name.replace(":", "-").replace("@", "-") + ".npz")
    if out.suffix not in writers:
        raise UserError(f"out must end in .npz or .parquet, got {out}")
    if out.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UserError("writing .parquet needs `pip install 'mast-ssl[parquet]'`")
    loaded = load(encoder, representation, size)
    size = loaded.size
    canvases = open_canvas(DataConfig(data), size)
    features_ND = extract(loaded.module, canvases, size, device=_device(device)).numpy()
    writers[out.suffix](out, features_ND, canvases)
    return out


def _write_npz(path: Path, features_ND: np.ndarray, canvases: CanvasSet) -> None:
    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            arrays: dict[str, Any] = {
                "features": features_ND,
                "identifiers": np.array(canvases.identifiers),
                **{f"target_{name}": values for name, values in canvases.targets.items()},
                **{f"multilabel_{name}": table for name, table in canvases.multilabels.items()},
            }
            np.savez(file, **arrays)

    write_atomically(path, write)


def _write_parquet(path: Path, features_ND: np.ndarray, canvases: CanvasSet) -> None:
    import pyarrow
    import pyarrow.parquet

    def rows(table: np.ndarray) -> Any:
        flat = pyarrow.array(np.ascontiguousarray(table).reshape(-1))
        return pyarrow.FixedSizeListArray.from_arrays(flat, table.shape[1])

    columns = {
        "identifier": pyarrow.array(canvases.identifiers),
        **{f"target_{name}": pyarrow.array(values) for name, values in canvases.targets.items()},
        **{f"multilabel_{name}": rows(table) for name, table in canvases.multilabels.items()},
        "features": rows(features_ND),
    }
    table = pyarrow.table(columns)
    write_atomically(path, lambda partial: pyarrow.parquet.write_table(table, partial))


def _splits(data: str) -> dict[str, str]:
    """The specifications of a set's train, val and test images."""
    if data == "factors":
        return {part: f"factors@{part}" for part in ("train", "val", "test")}
    if data.startswith(("torchvision:", "hf:")):
        return {part: f"{data}@{part}" for part in ("train", "test")}
    root = Path(data)
    if not root.is_dir():
        raise UserError(f"no folder {root}; give one with `train` and `test` below it")
    return {part: str(root / part) for part in ("train", "val", "test") if (root / part).is_dir()}


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but PyTorch sees no GPU; use --device cpu or auto")
    cuda = name != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if cuda else "cpu")
