"""Weights that a name of timm names by its tag, such as those of "timm:resnet18.a1_in1k".

They are looked for where timm keeps them, in the cache of the Hugging Face Hub, and are downloaded
only where the user asks for it.
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mast.core.errors import UserError, unknown
from mast.models.encoders import IMAGENET, Normalization, read_normalization, resolve

DEFAULT = "efficientnet_lite0"  # the encoder of a command that names none
# What a run is to be compared with, and the size that its weights are for: small and well known.
BASELINE, BASELINE_SIZE = "timm:resnet18.a1_in1k", 224
FILE = "model.safetensors"  # of every model that timm keeps on the Hub


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
    """Up to `count` names of weights like one that names none, with `timm:` before them.

    The weights of the architecture, if there is one of that name; else those whose names are most
    like it; those of a ResNet-18 where none is.
    """
    import timm

    model = name.rpartition(":")[2]
    of_it = timm.list_pretrained(f"{model.partition('.')[0]}.*")
    near = get_close_matches(model, of_it or timm.list_pretrained(), n=count)
    return [f"timm:{weights}" for weights in near or of_it[:count] or ["resnet18.a1_in1k"]]


def normalization_of(name: str) -> Normalization:
    """The mean and standard deviation with which the weights of a name were trained.

    ImageNet's where it names no weights.
    """
    from timm.data.config import resolve_data_config

    weights = named_weights(name)
    if weights is None:
        return IMAGENET
    data = resolve_data_config({}, pretrained_cfg=_described(weights))
    return read_normalization(data["mean"], data["std"])


def size_of(name: str) -> int | None:
    """The side in pixels of the images with which the weights of a name were trained, or None."""
    weights = named_weights(name)
    return None if weights is None else int(_described(weights)["input_size"][-1])


def weights_file(weights: str, download: bool = False) -> Path:
    """The file of weights as `named_weights` calls them, in the cache of the Hugging Face Hub."""
    from huggingface_hub import hf_hub_download

    repository, _, revision = (_described(weights).get("hf_hub_id") or "").partition("@")
    instead = (
        f"give a FILE as weights to read them from there, or timm:{weights.partition('.')[0]} for "
        "random weights"
    )
    if not repository:
        raise UserError(f"the weights {weights!r} are not on the Hugging Face Hub: {instead}")
    try:
        file = hf_hub_download(
            repository, FILE, revision=revision or None, local_files_only=not download
        )
    except (OSError, ValueError) as error:
        if download:
            raise UserError(
                f"cannot download the weights {weights!r} from {repository} "
                f"({type(error).__name__}): {instead}"
            ) from error
        raise UserError(
            f"the weights {weights!r} are not in the cache of the Hugging Face Hub: give "
            f"--download to fetch them, {instead}"
        ) from error
    return Path(file)


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
