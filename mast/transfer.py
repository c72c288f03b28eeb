"""Using a trained encoder: evaluate it on labelled images, embed images with it."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from mast.core.checkpoint import write_atomically, write_text
from mast.core.errors import UserError
from mast.core.launch import Device, find_device, make_fabric, precision_of
from mast.data import (
    Annotated,
    CanvasSet,
    DataConfig,
    SetDescription,
    describe,
    open_canvas,
    open_source,
)
from mast.data.sources import default_cache
from mast.evaluate import (
    Comparison,
    EvaluationData,
    EvaluationSettings,
    FeatureStore,
    FrozenEncoder,
    ObjectData,
    Result,
    evaluate_encoder,
    extract,
    fingerprint,
)
from mast.evaluate import compare as comparison
from mast.evaluate.result import FOLDER
from mast.evaluate.run import evaluator, kind_of
from mast.loading import Loaded, Representation, load, load_untrained


def evaluate(
    encoder: str | Path,
    data: str | None = None,
    protocols: Sequence[str] = ("knn", "linear"),
    train: str | None = None,
    val: str | None = None,
    test: str | None = None,
    size: int | None = None,
    device: Device = "auto",
    devices: int = 1,
    precision: Literal["float32", "bfloat16"] = "float32",
    seed: int = 0,
    settings: dict[str, dict[str, Any]] | None = None,
    cache: bool = True,
    root: Path | None = None,
    download: bool = False,
    weights: str | Path | None = None,
    untrained: bool = False,
) -> list[Result]:
    """Measure an encoder on labelled images.

    Hyper-parameters of a protocol are chosen on the validation set (or a tenth of the training
    set, where there is none); the test set is scored once. Results are also written to
    `evaluations/<protocol>-<set>.json` in the run folder; for a name in
    `runs/<name>-random-<seed>`, for a checkpoint of another project in `runs/<file>-<SHA-256>`.

    Args:
        encoder: A run folder, an `encoder.safetensors`, a checkpoint of another project (VICReg,
            MoCo, SimSiam, SwAV, DINO, solo-learn, lightly, VISSL and others), or a timm or
            torchvision name.
        data: The labelled set: a folder with `train`, `test` and perhaps `val` below it,
            `factors`, `torchvision:NAME`, `hf:owner/name`, `coco:FOLDER` or
            `voc:VOCdevkit/VOC2007`, of which the usual splits are taken.
        protocols: Names of protocols: knn, linear, linear_sgd, fewshot, rotation, robust,
            retained, svm, semi, finetune, ensemble, embedding, detection, segmentation.
        train: Training images, if not those of `data`.
        val: Validation images, if not those of `data`.
        test: Test images, if not those of `data`.
        size: Side of the views in pixels; that of pretraining if not given, for a name 224.
        device: auto, cpu or cuda.
        devices: Processes on this node (torchrun overrides it); they share the work of training
            and of the encoder.
        precision: Of the encoder's forward pass, and of training; bfloat16 is mixed precision.
        seed: Seed of everything a protocol draws.
        settings: Settings of protocols that differ from the defaults, by protocol.
        cache: Whether to keep features for the next call, in `features` beside the canvases; they
            are found by the content of encoder and images.
        root: Folder of torchvision and Hugging Face sets; `downloads` beside the canvases if not
            given.
        download: Whether such a set may be downloaded.
        weights: A checkpoint with weights for the name; they are random if not given.
        untrained: Measure the run's encoder with the weights that it started from; the results go
            to `untrained/` in the run folder, to stand beside the run's.

    Returns:
        One result a protocol; in the first process, none in the others.

    Raises:
        UserError: A path, a protocol or a label that does not fit; the message says which.
    """
    if not protocols:
        raise UserError("no protocol is named; give --protocols knn linear, or others")
    dtype = getattr(torch, precision)
    fabric = make_fabric(device, devices, precision=precision_of(dtype))
    fabric.launch()
    loaded = (
        load_untrained(encoder, size)
        if untrained
        else load(encoder, size=size, seed=seed, weights=weights)
    )
    results: list[Result] = []

    def done(result: Result) -> None:
        if fabric.is_global_zero:
            result.write(loaded.folder)
            results.append(result)

    def other(name: str) -> FrozenEncoder:
        return frozen(load(encoder, name, size, seed, weights))  # type: ignore[arg-type]

    def frozen(loaded: Loaded) -> FrozenEncoder:
        identity = fingerprint(loaded.module, loaded.described)
        return FrozenEncoder(
            loaded.module,
            fabric.device,
            dtype,
            store=FeatureStore(default_cache() / "features", identity) if cache else None,
            about={"source": str(encoder), "fingerprint": identity, **loaded.described},
            others=None if untrained else other,
            fabric=fabric,
            workspace=loaded.folder / FOLDER,
        )

    # What cannot work is found before anything runs for hours.
    frozen_encoder = frozen(loaded)
    common = EvaluationSettings(seed=seed, protocols=settings or {})
    for name in protocols:
        evaluator(name, common).prepare(frozen_encoder)
    described = _described(data, train, val, test)
    groups = [
        (_open(kind, described, loaded.size, root, download), list(names))
        for kind, names in itertools.groupby(protocols, lambda name: kind_of(name).needs)
    ]
    if fabric.is_global_zero:
        write_text(loaded.folder / FOLDER / ".writable", "")
        (loaded.folder / FOLDER / ".writable").unlink()
    for sets, names in groups:
        evaluate_encoder(frozen_encoder, sets, names, common, done)
    return results


def _described(
    data: str | None, train: str | None, val: str | None, test: str | None
) -> SetDescription:
    """The parts of `data` (`factors` if nothing is named), those that are named taking its place.

    Raises:
        UserError: There is no train or no test among them.
    """
    named = {"train": train, "val": val, "test": test}
    given = {part: spec for part, spec in named.items() if spec is not None}
    described = SetDescription({}) if data is None and given else describe(data or "factors")
    parts = {**described.parts, **given}
    missing = {"train", "test"} - parts.keys()
    if missing:
        raise UserError(
            f"{data or 'what is named'} has no {' and no '.join(sorted(missing))} folder; name "
            "them with " + " ".join(f"--{part} PATH" for part in sorted(missing))
        )
    return replace(described, parts=parts)


def _open(
    kind: type[EvaluationData] | type[ObjectData],
    described: SetDescription,
    size: int,
    root: Path | None,
    download: bool,
) -> EvaluationData | ObjectData:
    """The sets as a protocol needs them."""
    if kind is EvaluationData:
        sets = {
            part: open_canvas(DataConfig(spec, root=root, download=download), size)
            for part, spec in described.parts.items()
        }
        return EvaluationData(sets["train"], sets.get("val"), sets["test"], size, described.metric)
    if not described.parts["train"].startswith(("coco:", "voc:")):
        raise UserError(
            f"{described.parts['train']} has no annotated objects; detection and segmentation need "
            "coco:FOLDER, coco:FILE.json@FOLDER or voc:FOLDER"
        )
    # Nothing is tuned: what is there to choose hyper-parameters by is learned from as well.
    pool = [described.parts[part] for part in ("train", "val") if part in described.parts]
    named = {"train": "+".join(pool), "test": described.parts["test"]}
    sources = {part: open_source(spec) for part, spec in named.items()}
    for source in sources.values():
        if not isinstance(source, Annotated):
            raise UserError(
                f"{source.name} has no annotated objects; detection and segmentation need "
                "coco:FOLDER, coco:FILE.json@FOLDER or voc:FOLDER"
            )
    return ObjectData(sources["train"], sources["test"], size)  # type: ignore[arg-type]


def compare(runs: Sequence[str | Path], seed: int = 0, resamples: int = 1000) -> Comparison:
    """Put what was measured of several runs side by side; see `mast.evaluate.compare`.

    Args:
        runs: Run folders with evaluations; differences are to the first.
        seed: Of the bootstrap.
        resamples: Test sets drawn for the 95 % intervals, the same ones for all runs.

    Raises:
        UserError: No run, or one without evaluations.
    """
    return comparison(runs, seed, resamples)


def embed(
    encoder: str | Path,
    data: str,
    out: Path | None = None,
    size: int | None = None,
    representation: Representation = "encoder",
    device: Device = "auto",
    weights: str | Path | None = None,
) -> Path:
    """Write the representation of every image of a set.

    Args:
        encoder: A run folder, an `encoder.safetensors`, a checkpoint of another project, or a
            timm or torchvision name.
        data: The images; labels are not needed, and are written where there are some.
        out: A file ending in .npz or .parquet (which needs the extra of that name); `<set>.npz`
            in the current folder if not given.
        size: Side of the views in pixels; that of pretraining if not given.
        representation: "encoder", "ensemble" or "embedding".
        device: auto, cpu or cuda.
        weights: A checkpoint with weights for the name; they are random if not given.

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
    loaded = load(encoder, representation, size, weights=weights)
    size = loaded.size
    canvases = open_canvas(DataConfig(data), size)
    features_ND = extract(loaded.module, canvases, size, device=find_device(device)).numpy()
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
