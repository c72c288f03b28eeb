"""Load an encoder from a run, a checkpoint, a model name, or a module.

D dimensions, B images.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mast.core.bench import Bench
from mast.core.compute import Compute
from mast.core.display import say
from mast.core.errors import UserError
from mast.core.files import default_cache
from mast.core.run import RunFolder
from mast.core.seeds import forked
from mast.core.tensors import digest
from mast.data.store import ImageStore
from mast.encoders.extract import represent
from mast.encoders.feature_file import ENDINGS, FeatureFile
from mast.encoders.fingerprint import fingerprint
from mast.encoders.frozen import FrozenEncoder
from mast.encoders.onnx_file import OnnxFile
from mast.models import Encoder, EncoderConfig, load_encoder
from mast.models.depths import Depths
from mast.models.encoders import channels_of, check_size, evaluating, resolve
from mast.models.foreign import is_foreign, load_foreign
from mast.models.pretrained import (
    DEFAULT,
    DEFAULT_IN_TIMM,
    default_weights,
    named_weights,
    near_weights,
    weights_file,
)

ADAPTED = "subspaces.safetensors"  # file in the folder of an adapted encoder
LONGEST = 24  # letters of a name in a folder's name
CHECKPOINTS = (".safetensors", ".pth", ".pt", ".ckpt", ".torch", ".bin", ".tar")


class EncoderOptions(NamedTuple):
    """The user's choice of an encoder; arguments of `load`."""

    run: str | Path | nn.Module
    size: int | None = None
    weights: str | Path | None = None
    download: bool = False
    untrained: bool = False
    seed: int = 0


class Loaded(NamedTuple):
    """An encoder, or another representation of a run.

    Attributes:
        module: From images (B, 3, H, W) in [0, 1] to (B, D), in evaluation mode.
        size: Side of its views in pixels.
        description: Its configuration as JSON values.
        folder: Folder of its evaluations.
        own: Whether the user's weights replace those of the name.
    """

    module: nn.Module
    size: int
    description: dict[str, Any]
    folder: Path
    own: bool = False


def load(
    run: str | Path | nn.Module,
    size: int | None = None,
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Loaded:
    """Load an encoder of a run or of another project.

    Args:
        run: A run folder, an `encoder.safetensors`, a checkpoint of another project, pretrained
            weights such as `DEFAULT` or "timm:resnet18.a1_in1k", an architecture with `weights`,
            a file for `FeatureFile`, an `.onnx` for `OnnxFile`, or a module from RGB images
            (B, 3, H, W) in [0, 1] to (B, D), which normalizes images itself.
        size: Input size in pixels; by default that of pretraining, of the weights or of the
            feature file, else 224. Required for a module other than `Encoder`.
        weights: A checkpoint to load into the named architecture.
        download: Whether weights may be downloaded.
        untrained: Whether to use random weights for a named architecture.
        seed: Seed of random weights.
        options: Other fields of `EncoderConfig` for the named architecture.

    Returns:
        The module, and the folder of its evaluations: the run's, or in `runs/`
        `<name>-random-<seed>` or a `short_folder` of the name without its tag, the file or the
        module's class.

    Raises:
        UserError: No such encoder, weights that are missing or do not fit, or an
            architecture without weights.
    """
    if size is not None:
        check_size(size)
    if isinstance(run, nn.Module):
        if weights is not None:
            raise UserError("a module has its weights: leave weights out")
        return _module(run, size)
    if str(run) == DEFAULT and weights is None:
        loaded = _foreign(default_weights(), DEFAULT_IN_TIMM, size, options)
        return loaded._replace(folder=Path("runs") / DEFAULT)
    path = Path(run)
    if path.suffix in ENDINGS:
        return _of_file(FeatureFile(path), path, size, weights)
    if path.suffix == ".onnx":
        return _of_file(OnnxFile(path), path, size, weights)
    own = weights is not None
    is_name = not os.path.exists(path) and "/" not in str(run) and path.suffix not in CHECKPOINTS
    if is_name and weights is None and (named := named_weights(str(run))) is not None:
        weights = weights_file(named, download)
    if weights is not None or is_foreign(path):
        name = str(run) if weights is not None else None
        return _foreign(Path(weights or path), name, size, options)._replace(own=own)
    if is_name:
        return _random(str(run), 224 if size is None else size, seed, untrained)
    encoder = load_encoder(path)
    size = encoder.size if size is None else size
    folder = path if path.is_dir() else path.parent
    if not (RunFolder(folder).config.is_file() or (path / ADAPTED).is_file()):  # taken elsewhere
        weights_of = RunFolder(path).encoder if path.is_dir() else path
        folder = short_folder(path.stem, _sha256(weights_of))
    return Loaded(encoder, size, encoder.describe(), folder)


def short_folder(name: str, sha256: str) -> Path:
    """The folder for results of an encoder that is not a run: `runs/resnet50-3f9a1c`.

    The name includes digits of a SHA-256, as VICReg and Barlow Twins both write `resnet50.pth`.
    """
    short = name.rpartition(":")[2].partition(".")[0][:LONGEST]
    return Path("runs") / f"{short or 'encoder'}-{sha256[:6]}"


def source_name(run: str | Path | nn.Module) -> str:
    """Name of an encoder in results: the user's, or the class of a module."""
    kind = type(run)
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(run, nn.Module) else str(run)


def _foreign(
    file: Path, name: str | None, size: int | None, options: Mapping[str, Any] | None
) -> Loaded:
    """Load an encoder of another project."""
    encoder, layout, left_out, beside = load_foreign(file, name, size, options)
    if beside or (name is not None and named_weights(name) is None):
        mean, std = (", ".join(f"{value:g}" for value in moments)
                     for moments in encoder.config.normalization)  # fmt: skip
        says = f"{beside} says so" if beside else "a tag names another choice"
        say(f"{name or file} normalizes images by mean {mean} and std {std}; {says}")
    sha256 = _sha256(file)
    content = {"file": file.name, "sha256": sha256, "layout": layout, "left_out": len(left_out)}
    described = encoder.describe() | {"weights": content}
    return Loaded(encoder, encoder.size, described, short_folder(name or file.name, sha256))


def _of_file(
    module: FeatureFile | OnnxFile, file: Path, size: int | None, weights: str | Path | None
) -> Loaded:
    """An encoder from a single file of features or an ONNX graph."""
    if weights is not None:
        raise UserError(f"weights: expected none with {file}, which has its own")
    sha256 = _sha256(file)
    kind = "features" if isinstance(module, FeatureFile) else "graph"
    described = {kind: file.name, "sha256": sha256}
    size = size or module.size or 224
    return Loaded(module.eval(), size, described, short_folder(file.stem, sha256))


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _module(module: nn.Module, size: int | None) -> Loaded:
    """The user's own module; for an `Adapted`, its encoder."""
    if isinstance(depths := getattr(module, "depths", None), Depths):
        module, size = depths.encoder, size or depths.size
    kind = type(module).__name__
    described = {"module": source_name(module)}
    if isinstance(module, Encoder):
        described = module.describe()
    if size is None and isinstance(own := getattr(module, "size", None), int):
        size = own
    if size is None:
        raise UserError(f"{kind} does not say at which size it takes images: give size in pixels")
    return Loaded(module, size, described, short_folder(kind, fingerprint(module, described)))


def _random(name: str, size: int, seed: int, untrained: bool) -> Loaded:
    """An encoder with random weights, for comparison."""
    try:
        resolve(name)
        with forked():
            torch.manual_seed(seed)
            encoder = Encoder(EncoderConfig(name), size).eval() if untrained else None
    except UserError as error:
        raise UserError(f"no run folder {name!r:.200} here, and {error}") from error
    if encoder is None:
        raise UserError(
            f"encoder {name} names no weights: expected a name with a tag such as "
            f"{near_weights(name, 1)[0]}, a file as weights, or untrained for random weights"
        )
    folder = Path("runs") / f"{name.replace(':', '-')}-random-{seed}"
    return Loaded(encoder, size, encoder.describe(), folder)


def frozen(
    loaded: Loaded,
    source: str | Path | nn.Module,
    compute: Compute,
    cache: bool = True,
    bench: Bench | None = None,
) -> FrozenEncoder:
    """Freeze a loaded encoder for protocols.

    Args:
        source: The user's name of the encoder, as for `load`.
        cache: Whether to cache features. For a user's module, the key includes its outputs for
            test images, as code may change without weights; features are not cached if it is
            random, or if several processes share the work.
        bench: Where protocols train.
    """
    inner = next((part for part in loaded.module.modules() if isinstance(part, Encoder)), None)
    if inner is not None and loaded.size != inner.size:
        inner.check_side(loaded.size)
    identity = fingerprint(loaded.module, loaded.description)
    cache = cache and not isinstance(loaded.module, FeatureFile)
    description = {"source": source_name(source), "fingerprint": identity, **loaded.description}
    description |= {"own_weights": True} if loaded.own else {}
    kept_as = identity
    if cache and isinstance(source, nn.Module):
        alone = compute.processes == 1
        answers_BD = _answers(loaded.module, loaded.size, compute) if alone else None
        cache = answers_BD is not None
        kept_as = "" if answers_BD is None else digest({"answers": answers_BD}, identity)
    store = ImageStore(default_cache()) if cache else None
    return FrozenEncoder(loaded.module, compute, store, description, bench, kept_as=kept_as)


def _answers(module: nn.Module, size: int, compute: Compute) -> Tensor | None:
    """Outputs for fixed noise images, also bright or gray; None if they are random."""
    device, shape = compute.place(module), (1, channels_of(module), size, size)
    noise_1CHW = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    bright_1CHW = 0.8 + 0.2 * noise_1CHW
    gray_1CHW = noise_1CHW.mean(dim=1, keepdim=True).expand(shape)
    images_BCHW = torch.cat([noise_1CHW, bright_1CHW, gray_1CHW]).to(device)
    with forked(device), evaluating(module), torch.inference_mode():
        first_BD, again_BD = (represent(module, images_BCHW, compute.dtype) for _ in range(2))
    return first_BD if torch.equal(first_BD, again_BD) else None
