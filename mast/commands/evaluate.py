"""Measure an encoder on labelled images."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.launch import Device, make_fabric, precision_of
from mast.core.run import RunFolder
from mast.data import (
    DataConfig,
    SetDescription,
    describe,
    joined,
    open_canvas,
    open_source,
    with_objects,
)
from mast.data.sources import default_cache
from mast.measure.frozen import FrozenEncoder
from mast.measure.result import FOLDER, Result
from mast.measure.sets import EvaluationData, ObjectData
from mast.measure.store import FeatureStore, fingerprint
from mast.protocols.run import EvaluationSettings, evaluate_encoder, evaluator, kind_of
from mast.runs.load import Loaded, load, load_untrained
from mast.runs.scores import Labelled, operators_asked, unmeasured


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
    sources = {
        part: with_objects(open_source(spec, root, download))
        for part, spec in described.parts.items()
    }
    # Nothing is tuned: what is there to choose hyper-parameters by is learned from as well.
    pool = [sources[part] for part in ("train", "val") if part in sources]
    train = joined("+".join(source.name for source in pool), pool) if len(pool) > 1 else pool[0]
    return ObjectData(train, sources["test"], size)


def measure_missing(
    folder: RunFolder,
    on: Labelled,
    device: Device,
    seed: int,
    protocols: Sequence[str],
    operators: Sequence[str] = (),
) -> None:
    """Probe a labelled set by the protocols that were not run on it before.

    Args:
        folder: Of the run.
        on: The set.
        device: Where to.
        seed: Of the protocols.
        protocols: Names.
        operators: What `retained` asks about, beside those of the run's views and what it was asked
            about before.
    """
    missing = unmeasured(folder, on, seed, protocols, operators)
    if missing:
        settings = {"retained": {"operators": operators_asked(folder, on, seed, operators)}}
        evaluate(folder.path, on.data, missing, device=device, seed=seed, settings=settings)
