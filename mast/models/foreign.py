"""Encoders that other projects trained, read from their checkpoints.

A checkpoint is recognised by its keys (`mast.models.layouts`). Nothing in a file is executed, and
the encoder loads whole or not at all: each of its weights must be there, and every key behind its
prefix must fit in name and shape, except those of known heads.

A checkpoint does not record how images were normalized. The tag of a given name does, and so does a
file that the Hub keeps next to the checkpoint, such as `config.json`. Otherwise weights without a
prefix get the normalization of timm's default weights for the architecture, and all others get
ImageNet's mean and standard deviation, with which these projects train, except solo-learn on CIFAR
and STL-10. Images other than RGB get 0.5 and 0.25. A checkpoint does not record other parts without
weights either: a 3x3 stem is assumed to have stride 1 and no pooling after it, as on CIFAR;
activations and other strides are the architecture's.
"""

import os
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from math import isqrt
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.core.reading import MOST_CHANNELS
from mast.core.seeds import forked
from mast.core.tensors import check_finite, read_header, read_metadata, read_tensors
from mast.models.encoders import (
    IMAGENET,
    Encoder,
    EncoderConfig,
    load_whole,
    usual_normalization,
    weightless_model,
)
from mast.models.layouts import (
    CHILDREN,
    CLASSIFIERS,
    KeyLayout,
    first_keys,
    in_order,
    recognise,
)
from mast.models.pretrained import named_weights, normalization_beside, normalization_of, size_of

# Blocks of the four layers, whether they are bottlenecks, and the output and input channels of the
# first 3x3 convolution.
RESNETS: dict[tuple[tuple[int, ...], bool, tuple[int, ...]], str] = {
    ((2, 2, 2, 2), False, (64, 64)): "resnet18",
    ((3, 4, 6, 3), False, (64, 64)): "resnet34",
    ((3, 4, 6, 3), True, (64, 64)): "resnet50",
    ((3, 4, 23, 3), True, (64, 64)): "resnet101",
    ((3, 8, 36, 3), True, (64, 64)): "resnet152",
    ((3, 4, 6, 3), True, (128, 4)): "resnext50_32x4d",
    ((3, 4, 23, 3), True, (256, 8)): "resnext101_32x8d",
    ((3, 4, 23, 3), True, (256, 4)): "resnext101_64x4d",
    ((3, 4, 6, 3), True, (128, 128)): "wide_resnet50_2",
    ((3, 4, 23, 3), True, (128, 128)): "wide_resnet101_2",
}
# Dimensions and blocks. The size of the patches and LayerScale (DINOv2) are options.
VITS = {
    (192, 12): "timm:vit_tiny_patch16_224",
    (384, 12): "timm:vit_small_patch16_224",
    (768, 12): "timm:vit_base_patch16_224",
    (1024, 24): "timm:vit_large_patch16_224",
}
NAME_IT = (
    "give its timm or torchvision name together with the file: NAME --weights FILE, --encoder of "
    "mast pretrain or --encoder of mast plan"
)


class Foreign(NamedTuple):
    """An encoder of another project, the layout of its checkpoint, and the keys left out of it.

    `beside` is a file in the same folder that records the normalization.
    """

    encoder: Encoder
    layout: str
    left_out: tuple[str, ...]
    beside: Path | None = None


def load_foreign(
    path: str | Path,
    name: str | None = None,
    size: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Foreign:
    """Read an encoder from a checkpoint that another project wrote.

    Args:
        path: A file of `torch.save` or a `.safetensors`.
        name: A timm or torchvision name, as in `EncoderConfig`, perhaps with a tag. By default it
            is inferred: for ResNets, ResNeXts and wide ResNets of torchvision, and for ViTs of timm
            (tiny, small, base and large, with a class token).
        options: Of the architecture of that name, as in `EncoderConfig`.
        size: Side of the views in pixels; by default that of the weights that a tag names, 32
            with a 3x3 stem, and else 224. Position embeddings of a ViT for another size are
            interpolated.

    Returns:
        The encoder in evaluation mode, on the CPU, which takes images (B, channels, H, W) in
        [0, 1]; the name of the layout; the keys that were left out.

    Raises:
        UserError: No such file, a damaged one, one that holds code, an unknown layout or
            architecture, or weights that do not fit the architecture.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no checkpoint at {path}")
    if path.suffix == ".safetensors":
        content, header = read_tensors(path)
        if "encoder" in read_metadata(header):
            raise UserError(f"{path} names its encoder itself: give the file without a name")
    else:
        content = _read_torch(path)
    tagged = name is not None and named_weights(name) is not None
    beside, normalization = (None, None) if tagged else normalization_beside(path)
    try:
        layout, tensors, left_out = recognise(content)
        config, size = _architecture(layout, tensors, name, options, size)
        if normalization is None:
            normalization = normalization_of(name) if name and not layout.prefix else IMAGENET
        config = replace(config, **normalization._asdict())
        model = weightless_model(config, size)
        if (channels := _channels(model, tensors)) != config.channels:
            config = replace(config, **usual_normalization(channels)._asdict())
            model = weightless_model(config, size)
        expected = model.state_dict()
        if layout.ordered:
            tensors = in_order(tensors, expected)
        head = tuple(key for key in tensors if key not in expected and key.startswith(CLASSIFIERS))
        weights = {key: tensor for key, tensor in tensors.items() if key not in head}
        try:
            load_whole(model, weights)
        except UserError as error:
            raise UserError(
                f"its keys are those of {layout.name}, but its weights are not those of "
                f"{config.name!r} ({error}); if its architecture is another one, {NAME_IT}"
            ) from error
        check_finite(path, weights)
        with forked():  # the first weights are drawn, only to be replaced
            encoder = Encoder(config, size).eval()
        load_whole(encoder.model, weights)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    left_out = (*(f"{layout.prefix}{key}" for key in head), *left_out)
    return Foreign(encoder, layout.name, left_out, beside)


def is_foreign(path: Path) -> bool:
    """Whether a file was written by another project than this one."""
    if path.suffix != ".safetensors":
        return os.path.isfile(path)  # also raises for names that are too long
    header = read_header(path)
    try:
        return header is not None and not {"encoder", "classifier"} & read_metadata(header).keys()
    except ValueError:  # ours, and damaged
        return False


def _safe_classes() -> list[Any]:
    """Classes without behaviour that projects store with weights: arguments and numbers."""
    scalar, array = np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]
    kinds = ("bool", "int32", "int64", "float16", "float32", "float64")
    return [
        Namespace,
        np.ndarray,
        np.dtype,
        *(type(np.dtype(kind)) for kind in kinds),
        *((scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
        *((array, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    ]


def _read_torch(path: Path) -> Any:
    """The content of a file of `torch.save`, loaded without executing code."""
    try:
        with torch.serialization.safe_globals(_safe_classes()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damage leads to errors of any kind
        refused = re.search(r"(?:GLOBAL|function|class) ([\w.]+\.\w+)", str(error))
        if isinstance(error, UnpicklingError) and refused is not None:
            raise UserError(
                f"{path}: expected weights alone, got a file that runs {refused[1]} when it is "
                "read, which is never done here. If you trust the file, save only its weights: "
                "x = torch.load(FILE, weights_only=False); torch.save(x.state_dict() if hasattr(x, "
                "'state_dict') else x['state_dict'], 'weights.pth')"
            ) from error
        # PyTorch's message recommends unsafe loading
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise UserError(f"{path} is not a readable checkpoint ({reason})") from error


# ------------------------------------------------------------------------------ architectures


def _architecture(
    layout: KeyLayout,
    tensors: dict[str, Tensor],
    name: str | None,
    options: Mapping[str, Any] | None,
    size: int | None,
) -> tuple[EncoderConfig, int]:
    """The encoder that has these weights, and the side of its views."""
    config = EncoderConfig(name or "", dict(options or {}), stem="standard")
    if name is None:
        config.name, config.options = _inferred(layout, tensors)
    stem = tensors.get("conv1.weight")
    if stem is not None and stem.shape[2:] == (3, 3) and _is_resnet(tensors):
        config.stem, config.stem_stride, config.stem_padding = "small", 1, layout.padding
        size = size or 32
    size = size or size_of(config.name) or 224
    config.options |= _vit_options(layout, tensors, size)
    return config, size


def _inferred(layout: KeyLayout, tensors: dict[str, Tensor]) -> tuple[str, dict[str, Any]]:
    """Name and options of a ResNet or a ViT, from the shapes of its weights."""
    name: str | None = None
    options: dict[str, Any] = {}
    if _is_resnet(tensors):
        blocks = tuple(_count(tensors, f"layer{layer}.") for layer in (1, 2, 3, 4))
        first = tensors["layer1.0.conv2.weight"]
        name = RESNETS.get((blocks, "layer1.0.conv3.weight" in tensors, tuple(first.shape[:2])))
    elif "cls_token" in tensors and (patches := _patches(tensors)) is not None:
        dim = patches.shape[0]
        name = VITS.get((dim, _count(tensors, "blocks.")))
        if patches.shape[-1] != 16:
            options["patch_size"] = patches.shape[-1]
        if "blocks.0.ls1.gamma" in tensors:
            options["init_values"] = 1.0  # any number: the file has the scales
        if "reg_token" in tensors:
            options |= {"reg_tokens": tensors["reg_token"].shape[1], "no_embed_class": True}
        if dim < 768 and _has_sines(tensors) and not layout.sine_heads:
            name = None  # MoCo v3 has 12 heads, others 3 or 6, and no weight tells
    if name is None:
        raise UserError(
            f"its keys are those of {layout.name}, but its architecture cannot be inferred from "
            f"its weights, which begin with {first_keys(tensors)}; {NAME_IT}"
        )
    return name, options


def _vit_options(layout: KeyLayout, tensors: dict[str, Tensor], size: int) -> dict[str, Any]:
    """Options of a timm ViT that its position embeddings ask for."""
    positions, patches = tensors.get("pos_embed"), _patches(tensors)
    if positions is None or positions.ndim != 3 or patches is None:
        return {}
    dim, _, _, side = patches.shape
    options: dict[str, Any] = {}
    trained = isqrt(positions.shape[1]) * side  # the class token makes no square
    if trained != size:
        if over := size % side:
            raise UserError(
                f"size: expected a multiple of the patches' {side} pixels, got {size}; give "
                f"{size - over + side}"
            )
        options |= {"img_size": trained, "dynamic_img_size": True}
    if layout.sine_heads and dim < 768 and _has_sines(tensors):
        options["num_heads"] = layout.sine_heads
    return options


def _channels(model: nn.Module, tensors: dict[str, Tensor]) -> int:
    """The number of channels of the images, from the weights of the first layer."""
    maps = (item for item in model.named_parameters() if item[1].ndim == 4)
    key, ours = next(maps, ("", None))
    theirs = tensors.get(key)
    if ours is None or theirs is None or theirs.ndim != 4:
        return 3
    return theirs.shape[1] if 1 <= theirs.shape[1] <= MOST_CHANNELS else ours.shape[1]


def _is_resnet(tensors: dict[str, Tensor]) -> bool:
    parts = {key.split(".")[0] for key in tensors if not key.startswith(CLASSIFIERS)}
    return parts == set(CHILDREN[0].values()) and "layer1.0.conv2.weight" in tensors


def _patches(tensors: dict[str, Tensor]) -> Tensor | None:
    """The weights that embed a ViT's patches, if there are any."""
    patches = tensors.get("patch_embed.proj.weight")
    return patches if patches is not None and patches.ndim == 4 and patches.numel() else None


def _has_sines(tensors: dict[str, Tensor]) -> bool:
    """Whether positions are fixed sines, where the class token's position is exactly zero."""
    positions = tensors.get("pos_embed")
    return positions is not None and positions.ndim == 3 and not positions[:1, :1].any()


def _count(tensors: dict[str, Tensor], prefix: str) -> int:
    return len({key[len(prefix) :].split(".")[0] for key in tensors if key.startswith(prefix)})
