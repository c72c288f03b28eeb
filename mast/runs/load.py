"""From what the user names to an encoder: a run, a checkpoint, a model by name, or a module."""

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from mast.config import build_method, configuration_of
from mast.core.checkpoint import load_checkpoint
from mast.core.entry import entry
from mast.core.errors import UserError, unknown
from mast.core.run import RunFolder, plain
from mast.core.seeds import drawing
from mast.core.tensors import check_finite, read_tensors
from mast.measure.adapted import FILE as ADAPTED
from mast.measure.adapted import Adapted, load_adapted
from mast.measure.feature_file import ENDINGS, FeatureFile
from mast.measure.store import fingerprint
from mast.methods import ENCODER, Embedding, Ensemble, Method
from mast.models import (
    Encoder,
    EncoderConfig,
    is_foreign,
    load_encoder,
    load_foreign,
    named_weights,
    size_of,
    weights_file,
)
from mast.models.encoders import RETRAIN, check_size, mismatches
from mast.models.layouts import checkpoint_of, first_keys

_log = logging.getLogger("mast")

Representation = Literal["encoder", "ensemble", "embedding"]
FAR = 2 / 3  # of the size of its weights; at smaller ones an encoder is warned of
CHECKPOINTS = (".safetensors", ".pth", ".pt", ".ckpt", ".torch", ".bin", ".tar")


@entry(draws=True)
def load_method(run: str | Path) -> Method:
    """The whole method of a run (projector and masks too), in evaluation mode.

    Args:
        run: A run folder. A complete one holds `encoder.safetensors` and `embedding.safetensors`;
            of any other the last checkpoint is read. Of a complete one `encoder` is what was kept,
            which is the teacher's in DINO.

    Raises:
        UserError: No such run, none of these files in it, or one that does not fit.
    """
    folder = RunFolder(run)
    method = build_method(configuration_of(folder.require()))
    complete = folder.encoder.is_file() and folder.embedding.is_file()
    file = folder.embedding if complete else folder.last
    if not file.is_file():
        raise UserError(
            f"{folder.path} has neither {folder.embedding.name} beside its encoder nor a "
            f"checkpoint at {folder.last}"
        )
    try:
        state = _weights(folder, method) if complete else load_checkpoint(file)["module"]
        if kinds := mismatches(state, method.state_dict())["keys of another type"]:
            raise TypeError(first_keys(kinds))
        if complete:  # one that diverged is looked into by its checkpoint
            check_finite(file, state)
        method.load_state_dict(state)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise UserError(
            f"{file} does not fit {folder.config}; was it written by another version of "
            f"mast? {' '.join(str(error).split())}"
        ) from error
    return method.eval()


@entry(draws=True)
def load_embedding(run: str | Path) -> Embedding:
    """Load the embedding of a run, whose invariances are chosen when it is used.

    `embedding(images, ignore="color")` gives what is invariant to the operators that destroy
    colour, `embedding(images, match="color")` what is exempt from them, so that neighbours agree in
    colour; `Embedding.space` says what this is in a run without masks.

    Args:
        run: A run folder.

    Returns:
        The embedding in evaluation mode, on the CPU: from images (B, channels, H, W) in [0, 1],
        best of side `size`, to (B, D), or what heads read of them. `trained_with` names the
        operators that can be chosen, as do the properties of images that they destroy.

    Raises:
        UserError: As `load_method`.
    """
    return Embedding(load_method(run)).eval()


def _weights(folder: RunFolder, method: Method) -> dict[str, Tensor]:
    """The state of a complete run's method, from its two files."""
    encoder = load_encoder(folder.encoder)
    method.encoder.reading = encoder.reading  # which no configuration has
    if encoder.describe() != method.encoder.describe():
        raise UserError(f"{folder.encoder} holds another encoder than {folder.config} describes")
    tensors, _ = read_tensors(folder.embedding, RETRAIN)
    return {f"{ENCODER}{key}": value for key, value in encoder.state_dict().items()} | tensors


class Loaded(NamedTuple):
    """A representation.

    Attributes:
        module: From images (B, 3, H, W) in [0, 1] to (B, D), in evaluation mode.
        size: Side of its views in pixels.
        description: What rebuilds it, as JSON has it.
        folder: What its evaluations belong to.
    """

    module: nn.Module
    size: int
    description: dict[str, Any]
    folder: Path


def load(
    run: str | Path | nn.Module,
    representation: Representation = "encoder",
    size: int | None = None,
    seed: int = 0,
    weights: str | Path | None = None,
    download: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Loaded:
    """Load what a run, or another project, learned.

    Args:
        run: A run folder, an `encoder.safetensors`, a checkpoint of another project, or a timm or
            torchvision name such as "resnet18" or "timm:resnet18"; a tag, as in
            "timm:resnet18.a1_in1k", names weights too. Or features of any model, by a file as
            `FeatureFile` reads it. Or a module from images (B, 3, H, W), RGB
            in [0, 1], to (B, D): what it needs besides, such as a normalization, it does itself.
        representation: "encoder" (the pooled features, what is meant to be used), or
            "ensemble" (MAST's masked embeddings or LooC's heads, side by side) or "embedding",
            which need a run folder of `mast`.
        size: Side of the views in pixels; that of pretraining if not given, for a name that of
            the weights that it names, else 224, for a checkpoint of another project as
            `load_foreign` says, for features that of their file. A module needs one, unless it
            is an `Encoder` of this library.
        seed: Of the random weights of a name.
        weights: A checkpoint with weights for the name. If not given, those that the name names,
            or random ones where it names none.
        download: Whether the weights that the name names may be downloaded.
        options: Of the architecture that the name names, beside weights, as in `EncoderConfig`.

    Returns:
        A module in evaluation mode from images (B, channels, H, W) in [0, 1] to (B, D), the side of
        the views in pixels, a description, and the folder of its evaluations: the run's,
        `runs/<name>-random-<seed>`, or for another project's checkpoint, beside which nothing is
        written, `runs/[<name>-]<file>-<first digits of its SHA-256>`, for a module
        `runs/<class>-<first digits of its weights' SHA-256>`.

    Raises:
        UserError: No such encoder, neither a file nor a name, or no parts for an ensemble; a
            checkpoint that does not fit; weights that a name names, which are not there.
    """
    if representation not in get_args(Representation):
        raise unknown("representation", representation, get_args(Representation))
    if size is not None:
        check_size(size)
    if isinstance(run, nn.Module):
        if weights is not None:
            raise UserError("a module has its weights: leave weights out")
        if isinstance(run, Adapted):
            return _module(run.encoder, representation, size or run.size)
        return _module(run, representation, size)
    path = Path(run)
    if path.suffix in ENDINGS:
        return _listed(path, representation, size, weights)
    is_name = not os.path.exists(path) and "/" not in str(run) and path.suffix not in CHECKPOINTS
    if is_name and weights is None and (named := named_weights(str(run))) is not None:
        weights = weights_file(named, download)
    if weights is not None or is_foreign(checkpoint_of(path)[0]):
        name = str(run) if weights is not None else None
        return _foreign(Path(weights or path), name, representation, size, options)
    if is_name:
        return _random(str(run), representation, 224 if size is None else size, seed)
    if (path / ADAPTED).is_file() and not RunFolder(path).encoder.is_file():
        load_adapted(path)  # which says that it needs its module
    encoder = load_encoder(path)
    size = encoder.size if size is None else size
    folder = path if path.is_dir() else path.parent
    known = RunFolder(path).config.is_file() or (path / ADAPTED).is_file()
    if path.is_dir() and not known:
        raise UserError(
            f"{path} is not a run folder: it has no config.yaml; without it, give its "
            "encoder.safetensors"
        )
    if path.is_file() and not RunFolder(folder).config.is_file():  # taken elsewhere
        folder = Path("runs") / f"{path.stem}-{_digest(path)[:8]}"
    if representation == "encoder":
        return Loaded(encoder, size, encoder.describe(), folder)
    method = load_method(run)
    kind = Ensemble if representation == "ensemble" else Embedding
    description = encoder.describe() | {representation: plain(method.config)}
    return Loaded(kind(method).eval(), size, description, folder)


def called(run: str | Path | nn.Module) -> str:
    """What an encoder is called in a result: as the user named it, or the class of a module."""
    if not isinstance(run, nn.Module):
        return str(run)
    return f"{type(run).__module__}.{type(run).__qualname__}"


def _foreign(
    file: Path,
    name: str | None,
    representation: Representation,
    size: int | None,
    options: Mapping[str, Any] | None,
) -> Loaded:
    """An encoder that another project trained."""
    if representation != "encoder":
        raise UserError(
            f"{file} has no {representation}: it is an encoder alone; give a run folder"
        )
    encoder, layout, left_out = load_foreign(file, name, size, options)
    trained = None if name is None else size_of(name)
    if trained is not None and encoder.size < FAR * trained:
        _log.warning(
            "%s was trained with images of %d pixels and now gets %d: far fewer will be right; "
            "leave size out for %d", name, trained, encoder.size, trained,
        )  # fmt: skip
    file, _ = checkpoint_of(file)
    digest = _digest(file)
    weights = {"file": file.name, "sha256": digest, "layout": layout, "left_out": len(left_out)}
    stem = file.name
    while Path(stem).suffix in CHECKPOINTS:  # of `.pth.tar`, both
        stem = Path(stem).stem
    # VICReg and Barlow Twins both write `resnet50.pth`: the file's name alone is not enough.
    parts = [name.replace(":", "-")] if name else []
    folder = Path("runs") / "-".join([*parts, stem, digest[:8]])
    return Loaded(encoder, encoder.size, encoder.describe() | {"weights": weights}, folder)


def _listed(
    file: Path, representation: Representation, size: int | None, weights: str | Path | None
) -> Loaded:
    """Features of another model, which are known already."""
    if weights is not None or representation != "encoder":
        raise UserError(f"{file} holds features: leave weights and representation out")
    module = FeatureFile(file)
    digest = _digest(file)
    folder = Path("runs") / f"{file.stem}-{digest[:8]}"
    described = {"features": file.name, "sha256": digest}
    return Loaded(module.eval(), size or module.size or 224, described, folder)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _module(module: nn.Module, representation: Representation, size: int | None) -> Loaded:
    """A module of the user's own."""
    kind = type(module).__name__
    if representation != "encoder":
        raise UserError(f"{kind} has no {representation}: it is a module; give a run folder")
    described = {"module": called(module)}
    if isinstance(module, Encoder):
        described, size = module.describe(), module.size if size is None else size
    if size is None:
        raise UserError(f"{kind} does not say at which size it takes images: give size in pixels")
    folder = Path("runs") / f"{kind}-{fingerprint(module, described)[:8]}"
    return Loaded(module, size, described, folder)


def _random(name: str, representation: Representation, size: int, seed: int) -> Loaded:
    """An encoder that learned nothing, to compare with one that did."""
    if representation != "encoder":
        raise UserError(f"{name} has no {representation}: it was not trained; give a run folder")
    try:
        with drawing():
            torch.manual_seed(seed)
            encoder = Encoder(EncoderConfig(name), size).eval()
    except UserError as error:
        raise UserError(f"no run folder {name!r:.200} here, and {error}") from error
    folder = Path("runs") / f"{name.replace(':', '-')}-random-{seed}"
    return Loaded(encoder, size, encoder.describe(), folder)
